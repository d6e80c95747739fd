//! Tests of every recorded body of the dialect, and of arbitrary bytes.

use super::*;

/// The dialect of recorded bodies.
const RECORDED: &str = "openai_chat";

/// Creates a decoder for a recorded body.
fn decoder(file: &str) -> Decoder {
    let name = match file.split('/').next().unwrap_or_default() {
        "openai-chat" => "openai",
        "openai-compatible" => "xai",
        folder => folder,
    };
    Decoder::new(dialect::named(name).unwrap_or(&dialect::COMPATIBLE), None)
}

#[test]
fn every_recorded_answer_is_decoded_as_expected() {
    assert_eq!(recordings::check_whole(RECORDED, decoder), 109);
}

#[test]
fn a_recorded_answer_decodes_equally_under_any_chunking() {
    let small = recordings::check_splits(RECORDED, decoder);
    assert!(small > 20, "{small} small recordings");
}

#[test]
fn a_truncated_recorded_answer_is_never_complete() {
    recordings::check_truncated(RECORDED, decoder);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_and_decode_equally_under_any_chunking(
        noise in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..20),
                Just(b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n".to_vec()),
                Just(b"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"n\",\"arguments\":\"{\"}}]}}]}\n\n".to_vec()),
                Just(b"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":{\"a\":1}}}]},\"finish_reason\":\"stop\"}]}\n\n".to_vec()),
                Just(b"data: {\"choices\":[{\"delta\":{\"reasoning_details\":[{\"type\":\"t\",\"index\":0}]}}]}\n\n".to_vec()),
                Just(b"data: {\"usage\":{\"prompt_tokens\":1e99}}\n\n".to_vec()),
                Just(br#"data: {"choices":[{"delta":{"content":"\ud83d","reasoning":"\udc00"}}]}"#.to_vec()),
                Just(br#"data: {"choices":[{"delta":{"tool_calls":[{"index":"0","id":1,"function":{"name":"n","arguments":"\ud83d"}}]}}]}"#.to_vec()),
                Just(br#"data: {"choices":[{"delta":{"function_call":{"name":"n"},"reasoning_details":[{"text":"\ud83d"}]}}]}"#.to_vec()),
                Just(b"\n\n".to_vec()),
                Just(b"data: [DONE]\r\n\r\n".to_vec()),
            ],
            0..12,
        ),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = noise.concat();
        let cut = cut.index(bytes.len() + 1);
        let whole = decode("openrouter", [bytes.as_slice()]);
        prop_assert_eq!(decode("openrouter", [&bytes[..cut], &bytes[cut..]]), whole);
    }
}
