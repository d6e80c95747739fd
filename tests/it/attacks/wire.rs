//! HTTP/2 as an attacker speaks it: frames written byte by byte, in any order and with any content.

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

/// Flags: the last frame of a stream, the last of a block of headers, an acknowledgement.
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const ACK: u8 = 1;

/// Parameters of SETTINGS.
pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const MAX_HEADER_LIST_SIZE: u16 = 6;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long a server may take to say why it closes a connection.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How much longer a flood may take until the server has ended its first connection: the machine may be
/// busy.
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

/// A setting, as SETTINGS carries it.
pub(super) fn setting(parameter: u16, value: u32) -> Vec<u8> {
    [&parameter.to_be_bytes()[..], &value.to_be_bytes()[..]].concat()
}

/// A field of a block of headers, which the receiver does not index (RFC 7541, section 6.2.2).
pub(super) fn field(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0];
    push_text(&mut field, name);
    push_text(&mut field, value);
    field
}

/// The same, indexed: later blocks name it by one byte.
pub(super) fn indexed_field(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0x40];
    push_text(&mut field, name);
    push_text(&mut field, value);
    field
}

/// A text without Huffman coding, after its length (RFC 7541, sections 5.1 and 5.2).
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

/// The headers of a call, e.g. of `contextd.v1.TurnService/GetTurn`.
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

/// A message as gRPC frames it.
pub(super) fn message(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length[..], message].concat()
}

/// What a server said on one connection.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Its settings.
    pub(super) settings: BTreeMap<u16, u32>,
    /// Streams that it began to answer.
    pub(super) answers: usize,
    /// Streams that it refused, or whose answer it ended.
    pub(super) refusals: usize,
    /// Streams that it ended, by the code.
    pub(super) resets: BTreeMap<u32, usize>,
    /// Bytes of answers.
    pub(super) bytes: usize,
    /// How often it opened a window further.
    pub(super) windows: usize,
    /// Why it ends the connection: the code, and what it adds.
    pub(super) goaway: Option<(u32, String)>,
    /// Whether the connection is closed.
    pub(super) closed: bool,
}

/// A connection.
pub(super) struct Wire {
    write: OwnedWriteHalf,
    heard: Arc<Mutex<Heard>>,
    reader: JoinHandle<()>,
}

impl Wire {
    /// Connects and says hello, with these settings.
    pub(super) async fn connect(address: SocketAddr, settings: &[u8]) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (read, mut write) = stream.into_split();
        let hello = [
            PREFACE,
            &frame(SETTINGS, 0, 0, settings),
            &frame(SETTINGS, ACK, 0, &[]),
        ]
        .concat();
        write.write_all(&hello).await?;
        let heard = Arc::default();
        let reader = tokio::spawn(listen(read, Arc::clone(&heard)));
        Ok(Self {
            write,
            heard,
            reader,
        })
    }

    /// Sends bytes; whether the connection takes them.
    pub(super) async fn send(&mut self, bytes: &[u8], until: Instant) -> bool {
        if self.hears(|heard| heard.closed) {
            return false;
        }
        // A server that does not read is as good as one that does: it has stopped the attack.
        matches!(
            timeout_at(until, self.write.write_all(bytes)).await,
            Ok(Ok(())) | Err(_)
        )
    }

    /// A look at what was heard.
    pub(super) fn hears<T>(&self, look: impl FnOnce(&Heard) -> T) -> T {
        look(&self.heard.lock().unwrap())
    }

    /// Waits for the end of the connection, and gives what was heard.
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
                    (
                        u16::from_be_bytes([it[0], it[1]]),
                        u32::from_be_bytes(value),
                    )
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

/// What came of an attack: connections, and how they ended.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Connections that were made.
    pub(super) connections: usize,
    /// Those that the server ended, by what it said.
    pub(super) ends: BTreeMap<String, usize>,
    /// Streams that it ended.
    pub(super) resets: usize,
    /// Streams that it began to answer.
    pub(super) answers: usize,
}

impl Tally {
    /// Notes a connection.
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

    /// Connections that the server ended.
    pub(super) fn ended(&self) -> usize {
        self.ends.values().sum()
    }

    /// The ends, for people.
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

/// Sends what `next` of each connection's `make` gives, as fast as it is taken, on one connection after
/// another: until the time is up and the server has ended one.
pub(super) async fn flood<N: FnMut() -> Vec<u8>>(
    address: SocketAddr,
    until: Instant,
    make: impl Fn() -> N,
) -> Tally {
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
