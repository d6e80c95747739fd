//! Tests of every form of a line, every split, and the limits.

use proptest::prelude::*;

use super::*;

/// All events of a stream that arrives in these pieces, including an unterminated last one.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Event> {
    let mut reader = Reader::default();
    let mut events = Vec::new();
    for piece in pieces {
        reader.push(piece, &mut events).expect("small events");
    }
    events.extend(reader.finish());
    events
}

fn check(stream: &[u8], expected: &[(&str, &str)]) {
    let shown = String::from_utf8_lossy(stream).into_owned();
    for cut in 0..=stream.len() {
        let events = read([&stream[..cut], &stream[cut..]]);
        let events: Vec<_> = events.iter().map(|event| (event.name.as_str(), event.data.as_str())).collect();
        assert_eq!(events, expected, "{shown:?} cut at {cut}");
    }
    let bytes: Vec<_> = read(stream.chunks(1)).into_iter().map(|event| (event.name, event.data)).collect();
    let bytes: Vec<_> = bytes.iter().map(|(name, data)| (name.as_str(), data.as_str())).collect();
    assert_eq!(bytes, expected, "{shown:?} byte by byte");
}

#[test]
fn lines_end_in_any_way_and_an_event_with_a_blank_one() {
    check(b"data: a\n\ndata: b\n\n", &[("", "a"), ("", "b")]);
    check(b"data: a\r\n\r\ndata: b\r\n\r\n", &[("", "a"), ("", "b")]);
    check(b"data: a\r\rdata: b\r\r", &[("", "a"), ("", "b")]);
    check(b"data: a\r\n\ndata: b\n\r\n", &[("", "a"), ("", "b")]);
    check(b"data: a\n\r\rdata: b\r\n\n\n\n", &[("", "a"), ("", "b")]);
}

#[test]
fn fields_are_read_as_the_standard_says() {
    check(b"data:a\ndata: b\ndata\ndata:  c\n\n", &[("", "a\nb\n\n c")]);
    check(b"event: error\ndata: {}\n\ndata: x\n\n", &[("error", "{}"), ("", "x")]);
    check(b"event: lost\n\ndata: x\n\n", &[("", "x")]);
    check(b"id: 7\nretry: 10\nnonsense\ndata: x\n\n", &[("", "x")]);
    check(b"data\n\n", &[("", "")]);
    check(b"data: a: b\n\n", &[("", "a: b")]);
}

#[test]
fn comments_and_a_byte_order_mark_are_skipped() {
    check(b": OPENROUTER PROCESSING\n\n:\n\ndata: a\n: keepalive\ndata: b\n\n", &[("", "a\nb")]);
    check(b"\xef\xbb\xbfdata: a\n\n", &[("", "a")]);
    check(b"\xef\xbb\xbf: hi\n\xef\xbb\xbfdata: a\n\ndata: b\n\n", &[("", "b")]);
}

#[test]
fn split_characters_are_joined_and_invalid_utf8_is_replaced() {
    check("data: 18 °C ☂ 🦀\n\n".as_bytes(), &[("", "18 °C ☂ 🦀")]);
    check(b"data: a\xffb\n\n", &[("", "a\u{fffd}b")]);
}

#[test]
fn an_event_without_a_final_blank_line_counts() {
    check(b"data: a\n\ndata: [DONE]\n", &[("", "a"), ("", "[DONE]")]);
    check(b"data: a\n\ndata: [DONE]", &[("", "a"), ("", "[DONE]")]);
    check(b"data: a\n\nevent: x", &[("", "a")]);
    check(b"", &[]);
}

#[test]
fn sse_events_and_lines_have_a_maximum_size() {
    let fits = |stream: &[u8]| {
        let mut reader = Reader::new(16);
        let mut events = Vec::new();
        stream.chunks(3).try_for_each(|piece| reader.push(piece, &mut events)).map(|()| events.len())
    };
    assert_eq!(fits(b"data: 0123456789\n\n"), Ok(1));
    assert_eq!(fits(b"data: 0123456789a\n\n"), Err(TooLarge(16)));
    assert_eq!(fits(b"data: 01\ndata: 2345\n\n"), Err(TooLarge(16)));
    assert_eq!(fits(b"a line that never ends"), Err(TooLarge(16)));
    assert_eq!(fits(&b": 0123456789\n".repeat(100)), Ok(0));
    assert_eq!(fits(&b"data: 0123456789\n\n".repeat(100)), Ok(100));
}

proptest! {
    #[test]
    fn any_bytes_split_anywhere_give_the_same_events(
        pieces in prop::collection::vec(
            prop_oneof![
                Just(b"data: x".to_vec()), Just(b"event: e".to_vec()), Just(b"\n".to_vec()), Just(b"\r\n".to_vec()),
                Just(b"\r".to_vec()), Just(b":".to_vec()), Just("☂".as_bytes().to_vec()), prop::collection::vec(any::<u8>(), 0..6),
            ],
            0..40,
        ),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let stream = pieces.concat();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        places.sort_unstable();
        let mut split = Vec::new();
        let mut from = 0;
        for place in places {
            split.push(&stream[from..place]);
            from = place;
        }
        split.push(&stream[from..]);
        prop_assert_eq!(read(split), read([stream.as_slice()]));
    }
}
