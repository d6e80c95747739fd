//! Properties of any sequence of context operations: counters are correct, a call keeps its result, no text is lost,
//! and a reverted operation has no effect.

use std::cell::Cell;

use contextd::pb::{self, CompactionState, CompactionStrategy, MessageView, part};
use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::json;
use tokio_postgres::Client;

use crate::{
    compaction::answering,
    harness::{
        Host,
        errors::refusal,
        host::MODEL,
        transcripts::{check_counters, fork, one_turn, says},
    },
};

/// Number of sessions. Each has about a dozen operations.
const CASES: u32 = 200;
/// Clears every result that can be cleared, whether or not it pays off.
const ALL_RESULTS: (Option<i32>, Option<i32>, Option<i32>) = (Some(0), Some(0), Some(0));

#[derive(Debug, Clone, Copy)]
enum Deed {
    Say(usize),
    Work(usize),
    Pin,
    Show,
    Prune,
    Restore,
    Compact(CompactionStrategy, i32),
    CompactAndBack(CompactionStrategy, i32),
    Revert,
    Fork,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let strategy = prop_oneof![
        Just(CompactionStrategy::ReactiveOverflow),
        Just(CompactionStrategy::ProactiveThreshold),
        Just(CompactionStrategy::MiddleRemoval),
        Just(CompactionStrategy::Truncation),
    ];
    let how = (strategy, prop_oneof![Just(0), 1_i32..4_000]);
    let deed = prop_oneof![
        4 => (1_usize..400).prop_map(Deed::Say),
        6 => (1_usize..900).prop_map(Deed::Work),
        1 => Just(Deed::Pin),
        1 => Just(Deed::Show),
        2 => Just(Deed::Prune),
        1 => Just(Deed::Restore),
        3 => how.clone().prop_map(|(strategy, target)| Deed::Compact(strategy, target)),
        2 => how.prop_map(|(strategy, target)| Deed::CompactAndBack(strategy, target)),
        1 => Just(Deed::Revert),
        1 => Just(Deed::Fork),
    ];
    proptest::collection::vec(deed, 4..16)
}

/// One session, and all text that was ever in it.
struct Driver<'a> {
    host: &'a Host,
    client: &'a Client,
    session: String,
    said: Vec<Vec<Option<part::Content>>>,
    made: usize,
    pruned: Vec<i64>,
    /// The model's view at each seq.
    history: Vec<(i64, Vec<pb::Message>)>,
}

impl Driver<'_> {
    async fn act(&mut self, deed: Deed) {
        match deed {
            Deed::Say(words) => {
                let words = "word ".repeat(words);
                self.append(vec![says(pb::Role::User, &words), says(pb::Role::Assistant, "I see.")]).await;
            }
            Deed::Work(tokens) => {
                self.made += 1;
                self.append(one_turn(&format!("c{}", self.made), tokens)).await;
            }
            Deed::Pin => {
                let pinned = pb::InputMessage { pinned: true, ..says(pb::Role::User, "Never push.") };
                self.append(vec![pinned, says(pb::Role::Assistant, "Never.")]).await;
            }
            Deed::Show => {
                let media = pb::Media {
                    media_type: "image/gif".to_owned(),
                    source: Some(pb::media::Source::Data(b"GIF89a\x40\x01\xf0\x00 a picture".to_vec())),
                    ..pb::Media::default()
                };
                let picture = pb::Part { content: Some(part::Content::Media(media)), ..pb::Part::default() };
                let mut shown = says(pb::Role::User, "Look.");
                shown.parts.push(picture);
                self.append(vec![shown, says(pb::Role::Assistant, "Nice.")]).await;
            }
            Deed::Prune => self.prune().await,
            Deed::Restore => self.restore().await,
            Deed::Compact(strategy, target) => drop(self.compact(strategy, target).await),
            Deed::CompactAndBack(strategy, target) => {
                let before = (self.stored().await, self.live().await);
                if let Some(made) = self.compact(strategy, target).await {
                    self.revert(&made).await;
                    assert_eq!((self.stored().await, self.live().await), before, "{deed:?}");
                }
            }
            Deed::Revert => {
                let request = pb::ListCompactionsRequest {
                    session_id: self.session.clone(),
                    page_size: 50,
                    ..Default::default()
                };
                let all = self.host.contexts().list_compactions(request).await.unwrap().into_inner().compactions;
                if let Some(newest) = all.iter().find(|made| made.state() == CompactionState::Applied) {
                    self.revert(&newest.compaction_id).await;
                }
            }
            Deed::Fork => {
                let new = format!("{}f", self.session);
                self.host.try_fork(fork(&self.session, 0, &new)).await.unwrap();
                let live = self.live().await;
                self.session = new;
                assert_eq!(unplaced(self.live().await), unplaced(live), "a fork has what its source has");
                // It has the history of its source, which cannot be changed through the fork.
                self.pruned.clear();
                self.said = self.everything().await;
            }
        }
    }

    async fn append(&mut self, messages: Vec<pb::InputMessage>) {
        let count = messages.len();
        self.host.append(&self.session, messages).await;
        let all = self.everything().await;
        assert_eq!(all.len(), self.said.len() + count);
        self.said.extend_from_slice(&all[self.said.len()..]);
    }

    async fn prune(&mut self) {
        let (minimum_tokens, protect_tokens, protect_turns) = ALL_RESULTS;
        let request = pb::PruneToolOutputsRequest {
            session_id: self.session.clone(),
            minimum_tokens,
            protect_tokens,
            protect_turns,
            ..Default::default()
        };
        let report = async || {
            let answer = self.host.contexts().prune_tool_outputs(request.clone()).await.unwrap();
            answer.into_inner().report.unwrap()
        };
        let first = report().await;
        let again = report().await;
        assert_eq!(again, pb::PruneReport::default(), "what is cleared is cleared");
        self.pruned.extend(Some(first.pruned_at_seq).filter(|seq| *seq > 0));
    }

    async fn restore(&mut self) {
        if let Some(pruned_at_seq) = self.pruned.pop() {
            let session_id = self.session.clone();
            let request_id = String::new();
            let request = pb::RestoreToolOutputsRequest { session_id, pruned_at_seq, request_id };
            self.host.contexts().restore_tool_outputs(request).await.unwrap();
        }
    }

    /// Returns the id of the compaction that was applied. Returns `None` if nothing could be removed or the gain was
    /// too small.
    async fn compact(&self, strategy: CompactionStrategy, target_tokens: i32) -> Option<String> {
        let request = pb::CompactRequest {
            session_id: self.session.clone(),
            strategy: strategy.into(),
            target_tokens,
            wait: true,
            ..Default::default()
        };
        match self.host.contexts().compact(request).await {
            Ok(made) => {
                let made = made.into_inner().compaction.unwrap();
                (made.state() == CompactionState::Applied).then_some(made.compaction_id)
            }
            Err(status) => {
                assert_eq!(refusal(&status).reason, "COMPACTION_NO_GAIN", "{status:?}");
                None
            }
        }
    }

    async fn revert(&self, compaction: &str) {
        let session_id = self.session.clone();
        let request_id = String::new();
        let request = pb::RevertCompactionRequest { session_id, compaction_id: compaction.to_owned(), request_id };
        self.host.contexts().revert_compaction(request).await.unwrap();
    }

    /// Everything in the transcript, without summaries.
    async fn everything(&self) -> Vec<Vec<Option<part::Content>>> {
        let all = self.host.listed(&self.session, MessageView::All, 0, false, 1_000).await;
        let said = all.into_iter().filter(|message| !message.is_summary);
        said.map(|message| message.parts.into_iter().map(|part| part.content.map(unmarked)).collect()).collect()
    }

    /// Records the current view of the model.
    async fn note(&mut self) {
        let seq = self.host.session(&self.session).await.last_seq;
        self.history.push((seq, unplaced(self.live().await)));
    }

    /// Fails unless each recorded view is unchanged.
    async fn check_history(&self, what: &str) {
        // 0 is not a seq: it means the current view.
        for (seq, seen) in self.history.iter().filter(|(seq, _)| *seq > 0) {
            let listed = self.host.listed(&self.session, MessageView::Live, *seq, false, 1_000).await;
            assert_eq!(&unplaced(listed), seen, "{what}: as of {seq}");
        }
    }

    async fn live(&self) -> Vec<pb::Message> {
        self.host.live(&self.session).await
    }

    /// The stored messages and counters of the session, without compactions and events.
    async fn stored(&self) -> (Option<String>, String) {
        let messages = "select string_agg(m::text || p::text, ';' order by m.seq, p.idx)
                          from messages m join parts p using (tenant_id, session_id, message_id) where session_id = $1 and not m.is_summary";
        let counters =
            "select (ctx_messages, ctx_overhead, ctx_tokens, ctx_parts)::text from session_run where session_id = $1";
        let messages = self.client.query_one(messages, &[&self.session]).await.unwrap().get(0);
        (messages, self.client.query_one(counters, &[&self.session]).await.unwrap().get(0))
    }

    async fn check(&self, what: &str) {
        check_counters(self.client, &self.session).await;
        assert_eq!(self.everything().await, self.said, "{what}: every word is there");
        let live = self.live().await;
        assert!(live.iter().filter(|message| message.is_summary).count() <= 1, "{what}");
        let newest = |messages: &[pb::Message]| {
            messages
                .iter()
                .rev()
                .find(|it| it.role() == pb::Role::User && !it.is_summary)
                .map(|it| it.message_id.clone())
        };
        let all = self.host.listed(&self.session, MessageView::All, 0, false, 1_000).await;
        assert_eq!(newest(&live), newest(&all), "{what}: the newest words of the user stay");
        assert_eq!(
            live.iter().filter(|message| message.pinned).count(),
            all.iter().filter(|message| message.pinned).count(),
            "{what}: what is pinned stays"
        );
        let request = pb::RenderContextRequest { session_id: self.session.clone(), ..Default::default() };
        self.host.contexts().render_context(request).await.expect("a call is never parted from its result");
    }
}

/// Messages without the fields that differ between a fork and its source: the session, and the time when a result was
/// cleared.
fn unplaced(mut messages: Vec<pb::Message>) -> Vec<pb::Message> {
    for message in &mut messages {
        message.session_id.clear();
        for part in &mut message.parts {
            if let Some(part::Content::ToolResult(pb::ToolResult { prune_mark: Some(mark), .. })) = &mut part.content {
                mark.compacted_time = None;
            }
        }
    }
    messages
}

/// A part without the mark that it was cleared for the model.
fn unmarked(content: part::Content) -> part::Content {
    match content {
        part::Content::ToolResult(result) => part::Content::ToolResult(pb::ToolResult { prune_mark: None, ..result }),
        other => other,
    }
}

async fn run(host: &Host, client: &Client, session: &str, deeds: &[Deed]) {
    host.create(pb::Session { session_id: session.to_owned(), model: MODEL.to_owned(), ..pb::Session::default() })
        .await;
    let session = session.to_owned();
    let said = Vec::new();
    let pruned = Vec::new();
    let mut driver = Driver { host, client, session, said, made: 0, pruned, history: Vec::new() };
    for (n, deed) in deeds.iter().enumerate() {
        driver.act(*deed).await;
        driver.check(&format!("after {n}: {deed:?} of {deeds:?}")).await;
        driver.note().await;
    }
    driver.check_history(&format!("{deeds:?}")).await;
}

/// Rows I4, I5, I6 and D16
#[test]
fn after_any_context_operations_counters_equal_a_recount_and_no_text_is_lost() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (host, client) = runtime.block_on(async {
        let host = Host::with(answering(&[json!([{"text": "Fine."}])], &json!([{"text": "In short."}]))).await;
        let client = host.database.client().await;
        (host, client)
    });
    let sessions = Cell::new(0);
    let config =
        ProptestConfig { cases: CASES, max_shrink_iters: 60, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config)
        .run(&deeds(), |deeds| {
            sessions.set(sessions.get() + 1);
            runtime.block_on(run(&host, &client, &format!("s{}", sessions.get()), &deeds));
            Ok(())
        })
        .unwrap();
}
