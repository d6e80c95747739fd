//! Tests of plans and triggers: tables of cases, and property tests.

use proptest::prelude::*;

use super::{
    gain::gained_enough,
    ladder::{Urgency, ladder},
    trigger::*,
    *,
};
use crate::{
    context::testing::{self, assert_linear_time, assistant, user},
    model::{
        Transcript, TurnId,
        compaction::{Guard, Strategy, Trigger},
    },
};

/// A conversation. Each turn is a user message, this many steps with a result of this many tokens, and a response.
fn conversation(turns: &[(usize, u32)]) -> Vec<Message> {
    let mut messages = Vec::new();
    for (turn, (steps, tokens)) in turns.iter().enumerate() {
        let mut said = vec![user("Do it.")];
        for step in 0..*steps {
            let call = format!("c{turn}-{step}");
            said.push(testing::calls(&[&call]));
            said.push(testing::results(&[(&call, &"x".repeat(*tokens as usize * 4))]));
        }
        said.push(assistant("Done."));
        let of_turn = |message| Message { turn: Some(TurnId::new(format!("t{turn}"))), ..message };
        messages.extend(said.into_iter().map(of_turn));
    }
    numbered(messages)
}

fn numbered(mut messages: Vec<Message>) -> Vec<Message> {
    for (n, message) in messages.iter_mut().enumerate() {
        message.seq = Seq(10 * (i64::try_from(n).unwrap() + 1));
    }
    messages
}

fn total(messages: &[Message]) -> u32 {
    messages.iter().map(size).sum()
}

struct Case {
    messages: Vec<Message>,
    in_force: Option<ActiveCompaction>,
    policy: CompactionPolicy,
    window: u32,
    target: Option<u32>,
}

impl Case {
    fn of(messages: Vec<Message>) -> Self {
        let policy = CompactionPolicy { summary_max_tokens: 100, ..CompactionPolicy::default() };
        Self { messages, in_force: None, policy, window: 10_000, target: None }
    }

    fn situation(&self) -> PlanInput<'_> {
        PlanInput {
            messages: &self.messages,
            active_compaction: self.in_force.as_ref(),
            non_transcript_tokens: 0,
            size: total(&self.messages),
            budget: Budget { window: self.window, reserve: 0, assumed: false },
            policy: &self.policy,
            target: self.target,
            correction: None,
        }
    }

    fn plan(&self, strategy: Strategy) -> Option<Plan> {
        plan(CompactionMethod::KeepUnanswered(strategy), &self.situation())
    }

    /// The plan for a way that hides unread messages.
    fn unanswered(&self, way: CompactionMethod) -> Option<Plan> {
        plan(way, &self.situation())
    }

    /// The conversation after the plan is carried out.
    fn carried_out(&self, plan: &Plan) -> Vec<Message> {
        let stays = self.messages.iter().enumerate().filter(|(at, _)| !plan.hidden.contains(at));
        stays.map(|(_, message)| message.clone()).collect()
    }
}

/// Row L7
#[test]
fn the_guard_is_that_of_the_policy_else_it_watches_local_servers_only() {
    let table = [
        (None, false, Guard::None),
        (None, true, Guard::TwoLevel),
        (Some(Guard::None), true, Guard::None),
        (Some(Guard::TwoLevel), false, Guard::TwoLevel),
    ];
    for (own, local, expected) in table {
        let policy = CompactionPolicy { guard: own, ..CompactionPolicy::default() };
        assert_eq!(guard(&policy, local), expected, "{own:?} {local}");
    }
}

/// Rows D12 and D16
#[test]
fn newest_turns_are_kept_and_fewer_if_they_alone_are_too_large() {
    let plan = |turns: &[(usize, u32)], keep| {
        let mut case = Case::of(conversation(turns));
        case.policy.keep_turns = keep;
        case.plan(Strategy::ReactiveOverflow).map(|plan| (plan.from.0, plan.to.0, plan.stands_for))
    };
    // Each turn has four messages.
    assert_eq!(plan(&[(1, 900); 10], 2), Some((10, 320, 32)), "eight of ten turns");
    assert_eq!(plan(&[(1, 900); 10], 1), Some((10, 360, 36)));
    assert_eq!(plan(&[(1, 3_000); 3], 2), Some((10, 80, 8)), "two of 3,000 are more than half of the window");
    assert_eq!(plan(&[(1, 900), (1, 900)], 2), None, "there is nothing older");
}

/// Rows D12 and D16
#[test]
fn an_oversized_turn_is_split_between_steps_and_keeps_its_request() {
    let case = Case::of(conversation(&[(1, 10), (9, 1_000)]));
    let plan = case.plan(Strategy::ReactiveOverflow).unwrap();
    // The second turn has its request at 50, then steps of two messages each.
    assert_eq!((plan.from, plan.to, plan.kept.as_slice()), (Seq(10), Seq(150), &[Seq(50)][..]));
    assert!(Transcript::new(case.carried_out(&plan)).close().is_ok());
    assert!(plan.size_after(&case.situation(), 100) <= 5_000);
}

/// Row D13
#[test]
fn keep_ratio_boundary_moves_back_so_that_no_batch_is_split() {
    let mut case = Case::of(conversation(&[(1, 1_000); 10]));
    assert_eq!(case.plan(Strategy::ProactiveThreshold).unwrap().to, Seq(280), "three turns of ten are 30 %");
    case.policy.keep_ratio = Ratio::clamped(0.299);
    let plan = case.plan(Strategy::ProactiveThreshold).unwrap();
    let kept = total(&case.messages) - plan.hidden_messages(&case.messages).map(size).sum::<u32>();
    assert_eq!(plan.to, Seq(290), "where the share ends, a call would be parted from its result");
    assert!(kept >= total(&case.messages) * 299 / 1_000);
    case.policy.keep_ratio = Ratio::clamped(0.0);
    let all = case.plan(Strategy::ProactiveThreshold).unwrap();
    assert_eq!((all.to, all.kept.as_slice()), (Seq(400), &[Seq(370)][..]), "the newest words of the user stay");
    let one = Case::of(numbered(vec![user("Hello"), assistant("Hi")]));
    assert_eq!(one.plan(Strategy::ProactiveThreshold).map(|plan| plan.to), Some(Seq(20)));
}

/// Row D13
#[test]
fn middle_removal_keeps_both_ends() {
    let case = Case::of(conversation(&[(1, 900); 11]));
    let plan = case.plan(Strategy::MiddleRemoval).unwrap();
    assert_eq!(plan.from, Seq(50), "a quarter of half the window is a turn");
    assert!(plan.size_after(&case.situation(), 0) <= 5_000);
    assert!(!plan.carries_summary);
}

#[test]
fn truncation_keeps_the_newest_messages_that_fit_from_a_user_message_on() {
    let case = Case::of(conversation(&[(1, 900); 11]));
    let plan = case.plan(Strategy::Truncation).unwrap();
    let left = case.carried_out(&plan);
    assert_eq!((plan.from, left[0].role), (Seq(10), Role::User));
    assert!((3_500..=5_000).contains(&plan.size_after(&case.situation(), 0)));
    let long = Case::of(conversation(&[(1, 900), (12, 900)]));
    let plan = long.plan(Strategy::Truncation).unwrap();
    let left = long.carried_out(&plan);
    assert_eq!((left[0].role, left[0].seq, left[1].role), (Role::User, Seq(50), Role::Assistant));
}

#[test]
fn compaction_aims_at_a_requested_target_size() {
    for target in [1_500, 3_000, 6_000] {
        let case = Case { target: Some(target), ..Case::of(conversation(&[(1, 900); 11])) };
        for strategy in
            [Strategy::ReactiveOverflow, Strategy::ProactiveThreshold, Strategy::MiddleRemoval, Strategy::Truncation]
        {
            let plan = case.plan(strategy).unwrap();
            assert!(plan.size_after(&case.situation(), 0) <= target, "{strategy:?} {target}");
            let room = plan.substitute_budget(&case.situation());
            assert!(plan.size_after(&case.situation(), room) <= target, "{strategy:?} {target}: room for {room}");
            assert!(plan.size_after(&case.situation(), room + 2) > target, "{strategy:?} {target}: room for {room}");
        }
    }
}

#[test]
fn messages_that_the_model_has_not_read_are_kept() {
    let mut messages = conversation(&[(3, 2_000)]);
    messages.pop();
    let case = Case { target: Some(1), ..Case::of(messages) };
    for strategy in [Strategy::ReactiveOverflow, Strategy::MiddleRemoval, Strategy::Truncation] {
        assert_eq!(case.plan(strategy).unwrap().to, Seq(50), "{strategy:?}");
    }
    let mut open = conversation(&[(3, 2_000)]);
    open.truncate(6); // the last call has no result yet
    let case = Case { target: Some(1), ..Case::of(open) };
    assert_eq!(case.plan(Strategy::Truncation).unwrap().to, Seq(50));
    let only_words = Case { target: Some(1), ..Case::of(numbered(vec![user("a"), user("b")])) };
    assert_eq!(only_words.plan(Strategy::Truncation), None);
}

#[test]
fn pinned_messages_are_kept_with_their_batch() {
    let mut messages = conversation(&[(2, 900); 6]);
    messages[1].pinned = true; // a call
    messages[10].pinned = true; // a result
    let case = Case::of(messages);
    let plan = case.plan(Strategy::ReactiveOverflow).unwrap();
    let stay: Vec<usize> = (0..plan.hidden[plan.hidden.len() - 1]).filter(|at| !plan.hidden.contains(at)).collect();
    assert_eq!(stay, [1, 2, 9, 10]);
    assert_eq!(plan.kept, [Seq(30), Seq(100)], "those that are not pinned");
    assert!(Transcript::new(case.carried_out(&plan)).close().is_ok());
}

/// Row D12
#[test]
fn the_next_compaction_replaces_the_active_one() {
    let mut messages = conversation(&[(1, 900); 8]);
    let summary = Message { is_summary: true, seq: Seq(999), ..user("[Previous conversation summary]\n\nIn short.") };
    messages.splice(0..4, [summary]);
    let in_force = ActiveCompaction {
        id: CompactionId::new("k"),
        from: Seq(3),
        to: Seq(45),
        messages: 4,
        summary: Some("In short.".to_owned()),
        hides_pinned: false,
    };
    let case = Case { in_force: Some(in_force), ..Case::of(messages) };
    let next = case.plan(Strategy::ReactiveOverflow).unwrap();
    assert_eq!((next.from, next.to, next.stands_for, next.carries_summary), (Seq(3), Seq(240), 24, false));
    for strategy in [Strategy::ReactiveOverflow, Strategy::MiddleRemoval] {
        let hidden = case.plan(strategy).unwrap().hidden;
        assert_eq!(hidden[0], 0, "what the summary stands for is covered");
        assert!(hidden.is_sorted_by(|one, other| one < other), "each goes once: {hidden:?}");
    }
    assert_eq!(next.hidden_messages(&case.messages).count(), 20, "the summary is no message of the conversation");
    assert!(case.plan(Strategy::Truncation).unwrap().carries_summary);
}

#[test]
fn the_next_compaction_covers_a_removed_middle() {
    let mut messages = conversation(&[(1, 900); 12]);
    messages.drain(4..8); // 50 to 80 were removed without a summary
    let in_force = ActiveCompaction {
        id: CompactionId::new("k"),
        from: Seq(50),
        to: Seq(80),
        messages: 4,
        summary: None,
        hides_pinned: false,
    };
    let case = Case { in_force: Some(in_force), ..Case::of(messages) };
    let next = case.plan(Strategy::MiddleRemoval).unwrap();
    assert_eq!((next.from, next.kept.len(), next.carries_summary), (Seq(50), 0, false));
    assert!(next.to > Seq(80));
    let whole = case.plan(Strategy::ReactiveOverflow).unwrap();
    assert_eq!((whole.from, whole.stands_for), (Seq(10), 4 + 36));
}

/// Rows D13, D14, L3 and L7
#[test]
fn compaction_is_due_at_its_threshold_and_above_the_room() {
    let budget = Budget { window: 10_000, reserve: 2_000, assumed: false };
    let policy = |strategy, threshold: Option<f64>| CompactionPolicy {
        strategy,
        threshold: threshold.map(Ratio::clamped),
        ..CompactionPolicy::default()
    };
    let table = [
        (policy(Strategy::ReactiveOverflow, None), false, 8_000, None),
        (policy(Strategy::ReactiveOverflow, None), false, 8_001, Some(Trigger::Overflow)),
        (policy(Strategy::ReactiveOverflow, Some(0.1)), false, 8_000, None),
        (policy(Strategy::ProactiveThreshold, None), false, 4_999, None),
        (policy(Strategy::ProactiveThreshold, None), false, 5_000, Some(Trigger::Threshold)),
        (policy(Strategy::ProactiveThreshold, Some(0.8)), false, 7_999, None),
        (policy(Strategy::MiddleRemoval, Some(0.6)), false, 6_000, Some(Trigger::Threshold)),
        (policy(Strategy::MiddleRemoval, None), false, 7_999, None),
        (policy(Strategy::MiddleRemoval, None), false, 8_000, Some(Trigger::Threshold)),
        (policy(Strategy::MiddleRemoval, None), false, 8_001, Some(Trigger::Overflow)),
        (policy(Strategy::ReactiveOverflow, None), true, 8_000, Some(Trigger::Threshold)),
        (policy(Strategy::ReactiveOverflow, None), true, 7_999, None),
        (CompactionPolicy { guard: Some(Guard::None), ..CompactionPolicy::default() }, true, 8_000, None),
        (CompactionPolicy { enabled: false, ..CompactionPolicy::default() }, true, 99_999, None),
    ];
    for (policy, local, size, expected) in table {
        assert_eq!(due(&policy, budget, size, local), expected, "{policy:?} {size}");
        let from = starts_at(&policy, budget, local);
        assert_eq!(from.is_some_and(|from| size >= from), expected.is_some(), "{from:?} {size}");
    }
}

/// Row D11
#[test]
fn a_background_summary_starts_at_four_fifths_of_its_trigger() {
    let budget = Budget { window: 10_000, reserve: 2_000, assumed: false };
    let policy = |strategy, background| CompactionPolicy { strategy, background, ..CompactionPolicy::default() };
    // Compaction starts at 8,001, or at 5,000 by the share of the window.
    let table = [
        (policy(Strategy::ReactiveOverflow, true), 6_400, false),
        (policy(Strategy::ReactiveOverflow, true), 6_401, true),
        (policy(Strategy::ReactiveOverflow, false), 8_000, false),
        (policy(Strategy::ProactiveThreshold, true), 3_999, false),
        (policy(Strategy::ProactiveThreshold, true), 4_000, true),
        (policy(Strategy::MiddleRemoval, true), 8_000, false),
        (CompactionPolicy { enabled: false, ..policy(Strategy::ReactiveOverflow, true) }, 99_999, false),
    ];
    for (policy, size, expected) in table {
        assert_eq!(is_background_due(&policy, budget, size, false), expected, "{policy:?} {size}");
    }
}

/// Row D15
#[test]
fn a_reduction_of_five_percent_counts_as_progress() {
    for (before, after, progress) in [(1_000, 950, true), (1_000, 951, false), (1_000, 1_000, false), (20, 19, true)] {
        assert_eq!(gained_enough(before, after), progress, "{before} {after}");
    }
}

/// Rows D11 and D15
#[test]
fn last_strategy_shrinks_a_context_without_a_model() {
    use Strategy::{MiddleRemoval, ProactiveThreshold, ReactiveOverflow, Truncation};
    let steps = |first, need| ladder(first, need).collect::<Vec<_>>();
    let answered = |ways: &[Strategy]| ways.iter().copied().map(CompactionMethod::KeepUnanswered).collect::<Vec<_>>();
    for (first, ways) in [
        (ReactiveOverflow, &[ReactiveOverflow, MiddleRemoval, Truncation][..]),
        (ProactiveThreshold, &[ProactiveThreshold, MiddleRemoval, Truncation]),
        (MiddleRemoval, &[MiddleRemoval, Truncation]),
        (Truncation, &[Truncation]),
    ] {
        assert_eq!(steps(first, Urgency::Required), answered(ways));
        assert_eq!(steps(first, Urgency::Optional), answered(&[first]));
        let mut all = answered(ways);
        all.push(CompactionMethod::Excerpt);
        all.extend(first.summarises().then_some(CompactionMethod::SummariseUnanswered(first)));
        all.extend([CompactionMethod::Omit, CompactionMethod::ExcerptPinned, CompactionMethod::OmitPinned]);
        assert_eq!(steps(first, Urgency::LastResort), all);
    }
}

/// Row D15: U18
#[test]
fn what_no_model_has_answered_goes_but_for_the_newest_input() {
    let mut messages = conversation(&[(0, 0)]);
    let of_turn = |message: Message, turn: &str| Message { turn: Some(TurnId::new(turn)), ..message };
    messages.push(of_turn(user(&"x".repeat(4 * 13_000)), "t1"));
    messages.push(of_turn(user("And now?"), "t2"));
    let case = Case::of(numbered(messages));
    assert!(case.plan(Strategy::Truncation).is_none_or(|plan| plan.to < Seq(30)), "the strategies leave it alone");
    for way in [
        CompactionMethod::Excerpt,
        CompactionMethod::SummariseUnanswered(Strategy::ReactiveOverflow),
        CompactionMethod::Omit,
    ] {
        let plan = case.unanswered(way).unwrap();
        let left = case.carried_out(&plan);
        assert_eq!(left, case.messages[3..], "{way:?}");
        assert_eq!(plan.to, Seq(30), "{way:?}");
    }
    let plan = case.unanswered(CompactionMethod::Excerpt).unwrap();
    let excerpt = plan.excerpt(&case.situation()).unwrap();
    let tokens = estimate::text(&excerpt);
    assert!((3_000..5_000).contains(&tokens), "{tokens}");
    assert!(excerpt.contains("Do it.") && excerpt.contains("xxx"));
    let only = Case::of(numbered(vec![of_turn(user(&"x".repeat(4 * 13_000)), "t1")]));
    assert_eq!(only.unanswered(CompactionMethod::Omit), None, "the newest input stays");
}

/// Case U17
#[test]
fn results_that_no_model_has_answered_go_with_their_calls() {
    let mut messages = conversation(&[(1, 10), (1, 9_000)]);
    messages.pop();
    let case = Case::of(messages);
    let plan = case.unanswered(CompactionMethod::Excerpt).unwrap();
    let left = case.carried_out(&plan);
    assert_eq!(left.len(), 1, "the request stays: {left:?}");
    assert_eq!(left[0].role, Role::User);
    let mut open = conversation(&[(1, 9_000), (1, 10)]);
    open.truncate(6); // the last call has no result yet
    let case = Case::of(open);
    let left = case.unanswered(CompactionMethod::Omit).map(|plan| case.carried_out(&plan));
    assert!(left.is_none_or(|left| left.len() == 2), "an open call stays");
    let answered = Case::of(conversation(&[(1, 9_000)]));
    assert_eq!(answered.unanswered(CompactionMethod::Excerpt), None, "all of it is answered");
}

/// Case U18
#[test]
fn pinned_messages_go_last_and_the_largest_first() {
    let pin = |text: &str| Message { pinned: true, ..user(text) };
    let of_turn = |message: Message, turn: &str| Message { turn: Some(TurnId::new(turn)), ..message };
    let messages = numbered(vec![
        of_turn(pin("In Latin."), "t0"),
        of_turn(assistant("Bene."), "t0"),
        of_turn(pin(&"x".repeat(4 * 13_000)), "t1"),
        of_turn(user("And now?"), "t2"),
    ]);
    let case = Case::of(messages.clone());
    for way in [CompactionMethod::Excerpt, CompactionMethod::Omit] {
        let plan = case.unanswered(way);
        let left = plan.map(|plan| total(&case.carried_out(&plan)));
        assert!(left.is_none_or(|left| left > case.window), "{way:?}: {left:?}");
    }
    for way in [CompactionMethod::ExcerptPinned, CompactionMethod::OmitPinned] {
        let plan = case.unanswered(way).unwrap();
        assert_eq!(
            case.carried_out(&plan),
            [messages[0].clone(), messages[3].clone()],
            "{way:?}: the small one and the newest input stay"
        );
        assert!(plan.hides_pinned);
    }
    let summary = Message { is_summary: true, seq: Seq(999), ..user("In short.") };
    let later = vec![
        messages[0].clone(),
        summary,
        of_turn(user(&"x".repeat(4 * 9_000)), "t2"),
        of_turn(assistant("Done."), "t2"),
        of_turn(user("And now?"), "t3"),
    ];
    let mut later = numbered(later);
    later[1].seq = Seq(15);
    let case = Case {
        in_force: Some(ActiveCompaction {
            id: CompactionId::new("k"),
            from: Seq(5),
            to: Seq(20),
            messages: 2,
            summary: Some("In short.".to_owned()),
            hides_pinned: true,
        }),
        ..Case::of(later)
    };
    let next = case.plan(Strategy::ReactiveOverflow).unwrap();
    assert!(next.hides_pinned, "messages that were hidden stay hidden");
    assert_eq!(next.kept, [Seq(10)], "pinned messages that stay are named");
}

#[test]
fn a_summary_that_does_not_fit_is_shortened_although_nothing_else_can_be_hidden() {
    let written = "word ".repeat(12_000);
    let summary = Message { is_summary: true, ..user(&written) };
    let case = Case {
        in_force: Some(ActiveCompaction {
            id: CompactionId::new("k"),
            from: Seq(1),
            to: Seq(9),
            messages: 4,
            summary: Some(written),
            hides_pinned: false,
        }),
        ..Case::of(numbered(vec![summary, user("And now?")]))
    };
    for way in [
        CompactionMethod::KeepUnanswered(Strategy::ReactiveOverflow),
        CompactionMethod::KeepUnanswered(Strategy::Truncation),
        CompactionMethod::SummariseUnanswered(Strategy::ReactiveOverflow),
    ] {
        assert_eq!(case.unanswered(way), None, "{way:?}");
    }
    for way in [CompactionMethod::Excerpt, CompactionMethod::Omit] {
        let plan = case.unanswered(way).unwrap();
        assert_eq!((plan.from, plan.to, plan.stands_for), (Seq(1), Seq(9), 4));
        assert_eq!(plan.hidden, [0], "{way:?}");
    }
    let excerpt = case.unanswered(CompactionMethod::Excerpt).unwrap();
    let excerpt = excerpt.excerpt(&case.situation()).unwrap();
    assert!(estimate::text(&excerpt) < case.window / 2);
}

#[test]
fn twenty_thousand_pinned_messages_are_not_compared_with_each_other() {
    let pin = |n: usize| Message { pinned: true, ..user(&format!("{n} {}", "x".repeat(40))) };
    let mut messages: Vec<Message> = (0..20_000).map(pin).collect();
    messages.push(user("And now?"));
    let case = Case::of(numbered(messages));
    let plan =
        assert_linear_time("a plan that lets pinned messages go", || case.unanswered(CompactionMethod::ExcerptPinned));
    let left = total(&case.carried_out(&plan.unwrap()));
    assert!(left <= case.window, "{left}");
}

/// Row S16
#[test]
fn compaction_distinguishes_tools_that_kept_messages_use() {
    let said = vec![
        user("Go."),
        testing::calls(&["grep", "read"]),
        testing::results(&[("grep", "x"), ("read", "y")]),
        user("On."),
        testing::calls(&["read"]),
        testing::results(&[("read", "y")]),
        assistant("Done."),
    ];
    let case = Case { target: Some(1), ..Case::of(numbered(said)) };
    let case = Case { policy: CompactionPolicy { keep_turns: 1, ..case.policy.clone() }, target: Some(9_000), ..case };
    let plan = case.plan(Strategy::ReactiveOverflow).unwrap();
    assert_eq!(plan.tools(&case.messages), (vec!["read".to_owned()], vec!["grep".to_owned()]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::context::testing::CASES))]

    /// Rows D15 and D16
    #[test]
    fn no_call_is_split_from_its_result_and_the_newest_message_is_kept(
        turns in proptest::collection::vec((0_usize..6, 0_u32..900), 1..12), target in proptest::option::of(1_u32..12_000),
        keep in 0_u32..4, ratio in 0.0..0.9, pins in proptest::collection::vec(any::<proptest::sample::Index>(), 0..4),
        open in any::<bool>(),
    ) {
        let mut messages = conversation(&turns);
        for pin in &pins {
            let at = pin.index(messages.len());
            messages[at].pinned = true;
        }
        if open {
            messages.pop();
        }
        let mut case = Case { target, ..Case::of(messages) };
        case.policy.keep_turns = keep;
        case.policy.keep_ratio = Ratio::clamped(ratio);
        let newest = case.messages.iter().rposition(|message| message.role == Role::User).unwrap();
        let strategies =
            [Strategy::ReactiveOverflow, Strategy::ProactiveThreshold, Strategy::MiddleRemoval, Strategy::Truncation];
        let answered = strategies.map(CompactionMethod::KeepUnanswered);
        let ways = [
            CompactionMethod::Excerpt,
            CompactionMethod::SummariseUnanswered(Strategy::ReactiveOverflow),
            CompactionMethod::Omit,
            CompactionMethod::ExcerptPinned,
            CompactionMethod::OmitPinned,
        ];
        for strategy in answered.into_iter().chain(ways) {
            let Some(plan) = case.unanswered(strategy) else { continue };
            let left = case.carried_out(&plan);
            prop_assert!(Transcript::new(left.clone()).close().is_ok(), "{strategy:?}");
            prop_assert!(left.contains(&case.messages[newest]));
            let pinned = case.messages.iter().filter(|message| message.pinned);
            prop_assert!(strategy.replaces_pinned() || pinned.clone().all(|message| left.contains(message)));
            // The hidden messages are exactly those given by the range, the pins and the exceptions, as the database
            // computes them.
            let hidden: Vec<usize> = (0..case.messages.len())
                .filter(|at| {
                    let message = &case.messages[*at];
                    let may_go = plan.hides_pinned || !message.pinned;
                    (plan.from..=plan.to).contains(&message.seq) && may_go && !plan.kept.contains(&message.seq)
                })
                .collect();
            prop_assert_eq!(&hidden, &plan.hidden, "{:?}", strategy);
            let after = plan.size_after(&case.situation(), 0);
            prop_assert!(after <= case.situation().size);
            if strategy == CompactionMethod::KeepUnanswered(Strategy::Truncation) {
                // The last step of the ladder reaches the target, or no message is left that may be hidden.
                let aim = target.unwrap_or(case.window / 2);
                let policy = case.policy.clone();
                let left = Case { messages: left, in_force: None, policy, window: case.window, target };
                prop_assert!(after <= aim || left.unanswered(strategy).is_none(), "{after} of {aim}");
            }
        }
    }
}
