//! Target sizes: every strategy reaches the target or changes nothing.

use super::*;

/// Rows D12, D13 and D15
#[tokio::test(flavor = "multi_thread")]
async fn every_strategy_meets_the_target_size_or_changes_nothing() {
    use CompactionStrategy::{MiddleRemoval, ProactiveThreshold, ReactiveOverflow, Truncation};
    // A summary of 1,100 tokens, regardless of its limit.
    let host = Host::with(options(&json!([{"repeat": {"text": "word", "times": 1_100}}]))).await;
    session(&host, 100_000, pb::CompactionPolicy::default(), &[300; 12]).await;
    for strategy in [ReactiveOverflow, ProactiveThreshold, MiddleRemoval, Truncation] {
        for target in [600, 1_200, 1_800, 2_400, 3_000] {
            let of = format!("{strategy:?}{target}");
            host.try_fork(crate::harness::transcripts::fork("s", 0, &of)).await.unwrap();
            let wish = pb::CompactRequest {
                session_id: of.clone(),
                strategy: strategy.into(),
                target_tokens: target,
                ..request("")
            };
            let planned = try_compact(&host, pb::CompactRequest { validate_only: true, ..wish.clone() }).await.unwrap();
            let made = try_compact(&host, wish).await.unwrap();
            assert_eq!(made.state(), CompactionState::Applied, "{of}: {:?}", made.failure);
            for (what, size) in [("planned", planned.tokens_after), ("made", made.tokens_after)] {
                let size = size.unwrap().tokens;
                assert!(size <= target, "{of}: {what} {size}");
            }
            let used = host.stats(&of).await.used.unwrap().tokens;
            assert!(used <= target, "{of}: {used}");
            assert_recount(&host, &of).await;
        }
    }
    let before = stored(&host).await;
    let impossible = pb::CompactRequest { target_tokens: 5, ..request("") };
    let status = try_compact(&host, impossible.clone()).await.unwrap_err();
    let (code, reason, after) = refusal(&status, "tokens_after");
    assert_eq!((code, reason.as_str()), (Code::FailedPrecondition, "COMPACTION_NO_GAIN"));
    assert!((6..100).contains(&after.parse::<i32>().unwrap()), "as small as it gets: {after}");
    assert_eq!(stored(&host).await, before);
    assert_eq!(listed(&host).await, [], "none was begun");
}

/// Row D12
#[tokio::test(flavor = "multi_thread")]
async fn a_summary_is_bounded_by_the_target_size() {
    let host = host().await;
    session(&host, 100_000, pb::CompactionPolicy::default(), &[300; 12]).await;
    let made = try_compact(&host, pb::CompactRequest { target_tokens: 900, ..request("") }).await.unwrap();
    assert_eq!((made.state(), made.strategy()), (CompactionState::Applied, CompactionStrategy::ReactiveOverflow));
    assert!(made.tokens_after.unwrap().tokens <= 900);
    let prompts = host.replica.scripted.prompts();
    let most = prompts[0].max_output_tokens.unwrap();
    assert!((100..900).contains(&most), "{most}");
    assert!(prompts[0].instructions().contains(&most.to_string()), "{}", prompts[0].instructions());
}
