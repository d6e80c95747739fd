//! An HTTP/2 client for attacks: writes frames byte by byte, in any order and with any content.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

/// Flags: the last frame of a stream, the last frame of a header block, an acknowledgement.
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const ACK: u8 = 1;

/// Parameters of SETTINGS frames.
pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const MAX_HEADER_LIST_SIZE: u16 = 6;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long a server may take to send the reason for closing a connection.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How much longer a flood may continue until the server has closed its first connection. The machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A frame (RFC 9113, section 4.1).
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A parameter of a SETTINGS frame.
pub(super) fn setting(parameter: u16, value: u32) -> Vec<u8> {
    [&parameter.to_be_bytes()[..], &value.to_be_bytes()[..]].concat()
}

/// A header field that the receiver does not index (RFC 7541, section 6.2.2).
pub(super) fn field(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0];
    push_text(&mut field, name);
    push_text(&mut field, value);
    field
}

/// A header field that the receiver indexes: later blocks refer to it with one byte.
pub(super) fn indexed_field(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0x40];
    push_text(&mut field, name);
    push_text(&mut field, value);
    field
}

/// Appends a string with its length, without Huffman coding (RFC 7541, sections 5.1 and 5.2).
fn push_text(block: &mut Vec<u8>, text: &str) {
    let mut rest = text.len();
    if rest < 127 {
        block.push(u8::try_from(rest).unwrap());
    } else {
        block.push(127);
        rest -= 127;
        while rest >= 128 {
            block.push(u8::try_from(rest % 128).unwrap() | 128);
            rest /= 128;
        }
        block.push(u8::try_from(rest).unwrap());
    }
    block.extend(text.bytes());
}

/// The headers of a call, for example of `contextd.v1.TurnService/GetTurn`.
pub(super) fn call(rpc: &str) -> Vec<u8> {
    [
        field(":method", "POST"),
        field(":scheme", "http"),
        field(":path", &format!("/{rpc}")),
        field(":authority", "localhost"),
        field("content-type", "application/grpc"),
        field("te", "trailers"),
    ]
    .concat()
}

/// A message with its gRPC frame header.
pub(super) fn message(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length[..], message].concat()
}

/// What the server sent on one connection.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) settings: BTreeMap<u16, u32>,
    /// Number of streams with the beginning of a response.
    pub(super) answers: usize,
    /// Number of streams that were refused or whose response was ended.
    pub(super) refusals: usize,
    /// Number of streams that were reset, by error code.
    pub(super) resets: BTreeMap<u32, usize>,
    /// Bytes of responses.
    pub(super) bytes: usize,
    /// Number of window updates.
    pub(super) windows: usize,
    /// The error code and the debug data of GOAWAY.
    pub(super) goaway: Option<(u32, String)>,
    pub(super) closed: bool,
}

pub(super) struct Wire {
    write: OwnedWriteHalf,
    heard: Arc<Mutex<Heard>>,
    reader: JoinHandle<()>,
}

impl Wire {
    /// Connects and sends the connection preface with these settings.
    pub(super) async fn connect(address: SocketAddr, settings: &[u8]) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (read, mut write) = stream.into_split();
        let hello = [PREFACE, &frame(SETTINGS, 0, 0, settings), &frame(SETTINGS, ACK, 0, &[])].concat();
        write.write_all(&hello).await?;
        let heard = Arc::default();
        let reader = tokio::spawn(listen(read, Arc::clone(&heard)));
        Ok(Self { write, heard, reader })
    }

    /// Sends bytes. Returns whether the connection accepts more.
    pub(super) async fn send(&mut self, bytes: &[u8], until: Instant) -> bool {
        if self.hears(|heard| heard.closed) {
            return false;
        }
        // A timeout counts as success: a server that does not read has stopped the attack too.
        matches!(timeout_at(until, self.write.write_all(bytes)).await, Ok(Ok(())) | Err(_))
    }

    /// Evaluates `look` on what was received so far.
    pub(super) fn hears<T>(&self, look: impl FnOnce(&Heard) -> T) -> T {
        look(&self.heard.lock().unwrap())
    }

    /// Waits until the connection ends, and returns what was received.
    pub(super) async fn ended(self, patience: Duration) -> Heard {
        let abort = self.reader.abort_handle();
        if timeout(patience, self.reader).await.is_err() {
            abort.abort();
        }
        std::mem::take(&mut self.heard.lock().unwrap())
    }
}

async fn listen(mut read: OwnedReadHalf, heard: Arc<Mutex<Heard>>) {
    let mut payload = Vec::new();
    loop {
        let mut head = [0; 9];
        if read.read_exact(&mut head).await.is_err() {
            break;
        }
        let [a, b, c, kind, flags, ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        payload.resize(length, 0);
        if read.read_exact(&mut payload).await.is_err() {
            break;
        }
        heard.lock().unwrap().note(kind, flags, &payload);
    }
    heard.lock().unwrap().closed = true;
}

impl Heard {
    fn note(&mut self, kind: u8, flags: u8, payload: &[u8]) {
        let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        match kind {
            HEADERS if flags & END_STREAM == 0 => self.answers += 1,
            HEADERS => self.refusals += 1,
            DATA => self.bytes += payload.len(),
            WINDOW_UPDATE => self.windows += 1,
            RST_STREAM => *self.resets.entry(number(0)).or_default() += 1,
            SETTINGS if flags & ACK == 0 => {
                let settings = payload.chunks(6).map(|it| {
                    let value = it[2..].try_into().unwrap();
                    (u16::from_be_bytes([it[0], it[1]]), u32::from_be_bytes(value))
                });
                self.settings.extend(settings);
            }
            GOAWAY => {
                let why = String::from_utf8_lossy(&payload[8..]).into_owned();
                self.goaway = Some((number(4), why));
            }
            _ => {}
        }
    }
}

/// The result of an attack: the connections, and how they ended.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) connections: usize,
    /// Connections that the server closed, by reason.
    pub(super) ends: BTreeMap<String, usize>,
    /// Number of streams that the server reset.
    pub(super) resets: usize,
    /// Number of streams with the beginning of a response.
    pub(super) answers: usize,
}

impl Tally {
    /// Adds a connection.
    pub(super) fn note(&mut self, heard: &Heard) {
        self.connections += 1;
        self.resets += heard.resets.values().sum::<usize>();
        self.answers += heard.answers;
        let end = match &heard.goaway {
            Some((code, why)) => format!("GOAWAY {} {why}", code_name(*code)),
            None if heard.closed => "closed".to_owned(),
            None => return,
        };
        *self.ends.entry(end.trim().to_owned()).or_default() += 1;
    }

    /// The number of connections that the server closed.
    pub(super) fn ended(&self) -> usize {
        self.ends.values().sum()
    }

    /// The reasons as text for the output.
    pub(super) fn ends_shown(&self) -> String {
        let mut shown = String::new();
        for (end, times) in &self.ends {
            let _ = write!(shown, "{times} {end}; ");
        }
        shown.trim_end_matches("; ").to_owned()
    }
}

fn code_name(code: u32) -> String {
    match code {
        0 => "NO_ERROR".to_owned(),
        1 => "PROTOCOL_ERROR".to_owned(),
        9 => "COMPRESSION_ERROR".to_owned(),
        11 => "ENHANCE_YOUR_CALM".to_owned(),
        code => format!("code {code}"),
    }
}

/// Opens connections one after another and sends on each what its `next` returns, as fast as the connection accepts it.
/// Ends when the time is over and the server has closed at least one connection.
pub(super) async fn flood<N: FnMut() -> Vec<u8>>(address: SocketAddr, until: Instant, make: impl Fn() -> N) -> Tally {
    let mut tally = Tally::default();
    let last = |tally: &Tally| match tally.ended() {
        0 => until + PATIENCE,
        _ => until,
    };
    while Instant::now() < last(&tally) {
        let Ok(mut wire) = Wire::connect(address, &[]).await else {
            continue;
        };
        let mut next = make();
        let mut patience = Duration::ZERO;
        let last = last(&tally);
        while Instant::now() < last {
            if !wire.send(&next(), last).await {
                patience = LAST_WORDS;
                break;
            }
        }
        tally.note(&wire.ended(patience).await);
    }
    tally
}
