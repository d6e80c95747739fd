//! Floods: frames that cost the sender nothing, at the rate that the connection accepts.

use super::{
    siege::Siege,
    wire::{
        CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PRIORITY, RST_STREAM, SETTINGS, Tally,
        WINDOW_UPDATE, call, field, flood, frame, indexed_field,
    },
};

const LIST: &str = "contextd.v1.SessionService/ListSessions";
const PUT: &str = "contextd.v1.BlobService/PutBlob";
/// Number of frames per write.
const AT_ONCE: usize = 500;
/// The HTTP/2 error code CANCEL.
const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// Each connection sends `opening`, then repeats one frame indefinitely.
async fn repeated(name: &'static str, opening: Vec<u8>, again: Vec<u8>) -> Tally {
    let siege = Siege::begin(name, "").await;
    siege
        .attacked(move |target| async move {
            let make = || {
                let mut opening = Some(opening.clone());
                let again = again.repeat(AT_ONCE);
                move || opening.take().unwrap_or_else(|| again.clone())
            };
            flood(target.address, target.until, make).await
        })
        .await
}

/// Each connection opens one stream after another, with the frames that `make` returns for it.
async fn streams(name: &'static str, settings: &'static str, make: fn(u32) -> Vec<u8>) -> Tally {
    let siege = Siege::begin(name, settings).await;
    siege
        .attacked(move |target| async move {
            let connection = || {
                let mut ids = (1..).step_by(2);
                move || ids.by_ref().take(AT_ONCE).flat_map(make).collect()
            };
            flood(target.address, target.until, connection).await
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_cancelled_at_once_end_the_connection() {
    let tally = streams("rapid reset", "[server]\nmax_pending_resets = 20\n", |id| {
        let request = frame(HEADERS, END_HEADERS | END_STREAM, id, &call(LIST));
        [request, frame(RST_STREAM, 0, id, &CANCEL)].concat()
    })
    .await;
    assert!(tally.ended() > 0, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_do_not_end_end_the_connection() {
    let opening = frame(HEADERS, 0, 1, &call(LIST));
    let again = frame(CONTINUATION, 0, 1, &field("x", "y"));
    let tally = repeated("CONTINUATION flood", opening, again).await;
    assert!(tally.ended() > 0, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_data_ends_the_connection() {
    let opening = frame(HEADERS, END_HEADERS, 1, &call(PUT));
    let tally = repeated("empty DATA flood", opening, frame(DATA, 0, 1, &[])).await;
    assert!(tally.ended() > 0, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn data_byte_by_byte_ends_the_connection() {
    // A message of 3 MB, sent with one byte per frame.
    let begin = frame(DATA, 0, 1, &[0, 0, 0x30, 0, 0]);
    let opening = [frame(HEADERS, END_HEADERS, 1, &call(PUT)), begin].concat();
    let tally = repeated("small DATA flood", opening, frame(DATA, 0, 1, &[1])).await;
    assert!(tally.ended() > 0, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_carry_nothing_end_the_connection() {
    let one = 1_u32.to_be_bytes();
    for (name, again) in [
        ("PING flood", frame(PING, 0, 0, &[7; 8])),
        ("SETTINGS flood", frame(SETTINGS, 0, 0, &[])),
        ("WINDOW_UPDATE flood", frame(WINDOW_UPDATE, 0, 0, &one)),
        ("PRIORITY flood", frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])),
        ("flood of unknown frames", frame(0xbb, 0, 0, &[])),
    ] {
        let tally = repeated(name, Vec::new(), again).await;
        assert!(tally.ended() > 0, "{name}: {tally:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_unpack_to_megabytes_end_the_connection() {
    // One byte of the header block decodes to 4 kB, so 4 kB of it decode to 16 MB.
    let large = indexed_field("x", &"a".repeat(3_900));
    let opening = frame(HEADERS, END_HEADERS | END_STREAM, 1, &[call(LIST), large].concat());
    let siege = Siege::begin("HPACK bomb", "").await;
    let tally = siege
        .attacked(move |target| async move {
            let make = || {
                let mut opening = Some(opening.clone());
                let mut ids = (3..).step_by(2);
                move || {
                    opening.take().unwrap_or_else(|| {
                        let block = [call(LIST), vec![0x80 | 62; 4_096]].concat();
                        frame(HEADERS, END_HEADERS | END_STREAM, ids.next().unwrap(), &block)
                    })
                }
            };
            flood(target.address, target.until, make).await
        })
        .await;
    assert!(tally.ended() > 0, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_frames_that_make_the_server_reset_streams_end_the_connection() {
    let tally = streams("resets by malformed frames", "", |id| {
        let overflow = 0x7fff_ffff_u32.to_be_bytes();
        [frame(HEADERS, END_HEADERS, id, &call(PUT)), frame(WINDOW_UPDATE, 0, id, &overflow)].concat()
    })
    .await;
    assert!(tally.ended() > 0, "{tally:?}");
}
