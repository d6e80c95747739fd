//! The small windows of local models are sufficient for a conversation with tools.

use contextd::{model::config::ContextPolicy, pb};
use serde_json::json;

use crate::harness::{
    Host, Options,
    events::kinds,
    host::call,
    requests::{result, tools, turn},
};

/// Rows S2 and S4
#[tokio::test(flavor = "multi_thread")]
async fn a_small_window_holds_a_conversation_with_tools() {
    for window in [2_048, 4_096, 8_192, 16_384] {
        let script = json!({"context_window": window, "max_output": window, "steps": [
            {"when": {"system_contains": "summary"}, "say": [{"text": "They looked."}]},
            {"when": {"call": 0}, "say": [call("look")]},
            {"say": [{"text": "There is nothing new on this page."}]},
        ]});
        let options = Options { context: ContextPolicy::default(), ..Options::default() };
        let host = Host::with(options.script("small", script.to_string())).await;
        host.create(pb::Session {
            session_id: "s".to_owned(),
            model: "scripted/small".to_owned(),
            tools: tools(&["look"]),
            ..pb::Session::default()
        })
        .await;
        let mut compacted = Vec::new();
        for n in 1..=20 {
            let asks = turn("s", "", &format!("Look at page {n}, please."));
            let seen = host.run_with(asks, |it| result(&it.call_id, &"word ".repeat(60))).await;
            assert_eq!(kinds(&seen).last(), Some(&"turn_completed"), "{window} {n}");
            if kinds(&seen).contains(&"compaction_started") {
                compacted.push(n);
            }
        }
        let stats = host.stats("s").await;
        assert_eq!((stats.context_window, stats.output_reserve), (window, (window / 4).min(4_096)));
        let used = stats.used.unwrap().tokens;
        assert!(used < window - stats.output_reserve, "{window}: {used}");
        let between = std::iter::once(&0).chain(&compacted).zip(&compacted).map(|(last, next)| next - last);
        assert!(between.clone().all(|turns| turns >= 3), "{window}: compacted in turns {compacted:?}");
        host.assert_counted("s").await;
    }
}
