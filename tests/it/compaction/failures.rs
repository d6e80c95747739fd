//! Compactions concurrent with queued messages, cancels, rollbacks and dead replicas.

use super::*;

/// Rows S14 and S18
#[tokio::test(flavor = "multi_thread")]
async fn messages_queued_during_a_compaction_are_in_the_next_call() {
    let waits = json!([{"wait_for": "go"}, {"text": "In short."}]);
    let host = Host::with(options(&waits)).await;
    session(&host, 6_000, pb::CompactionPolicy::default(), &[1_000; 5]).await;
    let mut stream = host.execute(turn("s", "", "Well?")).await;
    until(&mut stream, |payload| matches!(payload, Payload::CompactionStarted(_))).await;
    assert!(host.session("s").await.currently_compacting);
    let status = try_compact(&host, request("another")).await.unwrap_err();
    assert_eq!((status.code(), refusal(&status, "").1.as_str()), (Code::Aborted, "COMPACTION_IN_PROGRESS"));
    host.enqueue(enqueue("s", "And the tests?")).await;
    host.release("go");
    until(&mut stream, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
    let live = seen(&host).await;
    assert!(live.contains(&"User: And the tests?".to_owned()), "{live:?}");
    let calls = host.replica.scripted.prompts();
    assert_eq!(calls.iter().map(|prompt| prompt.model.as_str()).collect::<Vec<_>>(), ["sum", "it"]);
    let session = host.session("s").await;
    assert_eq!((session.compaction_count, session.currently_compacting), (1, false));
    assert!(session.last_compaction_time.is_some());
    assert_recount(&host, "s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_that_cannot_be_applied_is_billed_once() {
    let host = Host::with(options(&json!([{"wait_for": "go"}, {"text": "In short."}]))).await;
    session(&host, 100_000, pb::CompactionPolicy::default(), &[1_000; 5]).await;
    try_compact(&host, pb::CompactRequest { wait: false, ..request("once") }).await.unwrap();
    let prune = pb::PruneToolOutputsRequest {
        session_id: "s".to_owned(),
        minimum_tokens: Some(1),
        protect_tokens: Some(0),
        ..pb::PruneToolOutputsRequest::default()
    };
    host.contexts().prune_tool_outputs(prune).await.unwrap();
    host.release("go");
    let made = compact(&host, "once").await;
    assert_eq!((made.state(), made.usage.as_ref().unwrap().calls), (CompactionState::Failed, 1));
    let spent = host.stats("s").await.usage;
    assert_eq!(spent.iter().map(|spent| spent.usage).collect::<Vec<_>>(), [made.usage]);
}

/// A service that counts about 1.3 times as many tokens as the estimate.
#[tokio::test(flavor = "multi_thread")]
async fn the_size_after_a_compaction_is_the_same_in_its_report_statistics_and_the_next_step() {
    let usage = json!({"finish": {"reason": "stop", "usage": {"input": 6_700, "output": 10}}});
    let answers = [json!([{"text": "Fine."}, usage])];
    let host = Host::with(answering(&answers, &in_short())).await;
    session(&host, 100_000, pb::CompactionPolicy::default(), &[1_000; 5]).await;
    host.run(turn("s", "", "Well?")).await;
    let estimate = host.stats("s").await.used.unwrap().tokens;
    assert!((6_700..6_800).contains(&estimate), "{estimate}");
    let made = try_compact(&host, request("once")).await.unwrap();
    let after = made.tokens_after.unwrap().tokens;
    assert!(after < 4_000, "{after}");
    assert_eq!(host.stats("s").await.used.unwrap().tokens, after);
    let events = host.run(turn("s", "", "And?")).await;
    let next = events.iter().find_map(|event| match &event.payload {
        Some(Payload::StepStarted(step)) => step.context_tokens.clone(),
        _ => None,
    });
    let next = next.unwrap().tokens;
    assert!((after + 1..after + 20).contains(&next), "{after}, then {next}");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_a_host_appends_meanwhile_do_not_void_a_compaction() {
    let host = Host::with(options(&json!([{"wait_for": "go"}, {"text": "In short."}]))).await;
    session(&host, 100_000, pb::CompactionPolicy::default(), &[1_000; 5]).await;
    let beside = pb::CompactRequest { wait: false, ..request("once") };
    try_compact(&host, beside).await.unwrap();
    for call in ["later", "latest"] {
        host.append("s", one_turn(call, 100)).await;
    }
    host.release("go");
    let made = compact(&host, "once").await;
    assert_eq!(made.state(), CompactionState::Applied, "{:?}", made.failure);
    let live = host.listed("s", MessageView::Live, 0, false, 3).await;
    let mut all = host.messages("s").await;
    let summary = made.summary_message_id.clone();
    all.retain(|message| message.message_id != summary);
    let newest = |messages: &[pb::Message]| {
        let ids = messages.iter().rev().take(8);
        ids.map(|it| it.message_id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(newest(&live), newest(&all));
    assert!(live.len() < all.len());
    assert_recount(&host, "s").await;
    // The next compaction includes both.
    host.release("go");
    assert_eq!(compact(&host, "again").await.state(), CompactionState::Applied);
}

/// Rows D18 and F38
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_a_turn_during_its_compaction() {
    let host = Host::with(options(&json!([{"stall": true}]))).await;
    session(&host, 6_000, pb::CompactionPolicy::default(), &[1_000; 5]).await;
    let mut stream = host.execute(turn("s", "", "Well?")).await;
    let head = until(&mut stream, |payload| matches!(payload, Payload::CompactionStarted(_))).await;
    host.cancel("s", &head[0].turn_id).await;
    let rest = until(&mut stream, |payload| matches!(payload, Payload::TurnCancelled(_))).await;
    assert!(kinds(&rest).contains(&"compaction_failed"));
    assert_eq!(listed(&host).await[0].state(), CompactionState::Failed);
    assert_recount(&host, "s").await;
}

/// Row I5
#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_reverts_compactions_of_its_turn_and_reports_it() {
    let looks: Vec<_> = (0..4).map(|_| json!([call("look")])).collect();
    let host = Host::with(answering(&looks, &in_short())).await;
    session(&host, 100_000, pb::CompactionPolicy::default(), &[1_000; 5]).await;
    let outside = compact(&host, "outside").await.compaction_id;
    let before = stored(&host).await;
    let live = seen(&host).await;
    let mut stream = host.execute(pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", "", "Look!") }).await;
    for page in ["one ", "two ", "three "] {
        until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
        host.submit("s", vec![result(&host.pending("s").await[0], &page.repeat(2_000))]).await;
    }
    until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    let newest_third =
        pb::CompactRequest { strategy: CompactionStrategy::ProactiveThreshold.into(), ..request("inside") };
    let inside = try_compact(&host, newest_third).await.unwrap().compaction_id;
    let mode = pb::CancelMode::Rollback.into();
    let wish = pb::CancelTurnRequest { session_id: "s".to_owned(), mode, ..Default::default() };
    host.turns().cancel_turn(wish).await.unwrap();

    assert_eq!(kinds(&all(&mut stream).await).last(), Some(&"turn_cancelled"), "a turn ends with its end");
    let events = host.events("s", "", 0, 1_000).await;
    let end = events.iter().position(|event| matches!(event.payload, Some(Payload::TurnCancelled(_)))).unwrap();
    let told: Vec<_> = events[end + 1..].iter().map(|event| (event.turn_id.as_str(), event.payload.clone())).collect();
    let reverted = pb::Compaction {
        compaction_id: inside.clone(),
        session_id: "s".to_owned(),
        state: CompactionState::Reverted.into(),
        ..pb::Compaction::default()
    };
    let reverted = Payload::CompactionReverted(pb::CompactionReverted { compaction: Some(reverted) });
    assert_eq!(told, [("", Some(reverted))]);
    assert_eq!(host.session("s").await.last_seq, events.last().unwrap().seq);
    let states: Vec<_> = listed(&host).await.into_iter().map(|it| (it.compaction_id.clone(), it.state())).collect();
    assert_eq!(states, [(inside, CompactionState::Reverted), (outside, CompactionState::Applied)]);
    assert_eq!(seen(&host).await, live);
    assert_eq!(stored(&host).await.1, before.1, "the counters are what they were");
    assert_recount(&host, "s").await;
}

/// Row F38
#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_of_a_dead_replica_has_no_effect_and_is_repeated() {
    let waits = json!([{"wait_for": "go"}, {"text": "In short."}]);
    let host = Host::with(options(&waits)).await;
    session(&host, 6_000, pb::CompactionPolicy::default(), &[1_000; 5]).await;
    let before = seen(&host).await;
    let other = host.beside(options(&waits)).await;
    other.release("go");
    let mut stream = host.execute(turn("s", "", "Well?")).await;
    until(&mut stream, |payload| matches!(payload, Payload::CompactionStarted(_))).await;
    host.simulate_crash().await;
    assert_eq!(seen(&other).await[..20], before);
    let expire = "update compactions set lease_until = now() - interval '1 second' where status = 1";
    host.database.client().await.execute(expire, &[]).await.unwrap();
    let mut watch = other.watch("s", "", 0).await;
    let events = until(&mut watch, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
    let all = kinds(&events);
    let about: Vec<_> = all.iter().filter(|kind| kind.starts_with("compaction")).collect();
    assert_eq!(about, [&"compaction_started", &"compaction_failed", &"compaction_started", &"compaction_completed"]);
    let states: Vec<_> = listed(&other).await.iter().map(pb::Compaction::state).collect();
    assert_eq!(states, [CompactionState::Applied, CompactionState::Failed]);
    // The lost compaction continues, but cannot be applied.
    host.release("go");
    host.at_rest().await;
    assert_recount(&other, "s").await;
    assert_eq!(other.stats("s").await.compacted_count, listed(&other).await[0].messages_compacted);
}
