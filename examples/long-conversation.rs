//! A conversation that is far longer than the model's context window. Prints each turn: estimated and reported tokens,
//! and what was compacted; at the end, the accuracy of the estimates. CountTokens counts each prompt before it is sent.
//! The ledger's own number, which decides when the context is compacted, is a sum of sizes that were counted at
//! storage.
//!
//! `cargo run --example long-conversation -- [--address URL] [--model REFERENCE] [--turns N] [--window N] [--paste N]`.
//! It needs a contextd and a model; docs/local-model.md describes the setup of both and the results.
//!
//! `--window` sets the session's context window. If it is larger than the model's window, the provider refuses a
//! prompt, and the turn continues with a context that was compacted for it. `--paste` adds this number of sentences to
//! each input.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![allow(clippy::wildcard_enum_match_arm, reason = "it prints only some kinds of events")]

use std::error::Error;

use contextd::pb::{
    self, context_service_client::ContextServiceClient, event::Payload, part::Content,
    session_service_client::SessionServiceClient, turn_service_client::TurnServiceClient,
};
use tonic::transport::Channel;

/// Tokens reserved for a response, and the maximum tokens of a response.
const ANSWER: i32 = 128;

/// Instructions for summaries. A model of 135 million parameters does not stop where it should with the default
/// instructions.
const WISHES: &str = "Summarize the conversation in at most five short sentences. Keep names and numbers.";

/// The user's questions, in order.
const QUESTIONS: [&str; 8] = [
    "What should I plant first, and why?",
    "Go on.",
    "Write that as a short list, please.",
    "Which of these need the most water in July?",
    "Thanks. And what about the north wall?",
    "My neighbour says that basil dislikes wind. Is that so, and what follows for the corner by the gate?",
    "How much compost do I need for two beds of 1.2 m by 3.5 m, 20 cm deep?",
    "Remind me of what we decided about the tomatoes.",
];

/// Notes that the user adds.
const NOTES: [&str; 8] = [
    "Bed 1 lies to the south, 1.2 m by 3.5 m, heavy clay, pH 6.4.",
    "Last year the tomatoes 'Matina' got blight on 4 August after three wet days.",
    "The rain barrel holds 310 litres and is empty after nine dry days.",
    "Seeds in the drawer: carrots (Nantaise 2), beetroot, parsley, two kinds of lettuce, chard.",
    "The gate is 90 cm wide, so the wheelbarrow passes but the trailer does not.",
    "Slugs come from the compost heap; the copper tape lasted one season only.",
    "In April the sun reaches the north wall from 15:40 on, in June from 14:05.",
    "Budget until autumn: 140 euros, of which 35 went for the fleece.",
];

/// The user pastes many notes at every turn of this number.
const LONG_EVERY: usize = 9;

struct Plan {
    address: String,
    model: String,
    turns: usize,
    window: i32,
    paste: usize,
}

/// The estimated and the reported size of a prompt.
struct Prediction {
    predicted: i32,
    reported: i32,
}

impl Prediction {
    fn error(&self) -> f64 {
        100.0 * f64::from(self.predicted - self.reported) / f64::from(self.reported.max(1))
    }
}

/// The results of the conversation.
#[derive(Default)]
struct Story {
    /// By CountTokens, for prompts that were not compacted after it.
    counted: Vec<Prediction>,
    /// By the ledger, for prompts that continue a measured one, and for others.
    ledger: [Vec<Prediction>; 2],
    /// What CountTokens returned for the next prompt.
    expected: Option<i32>,
    compacted: usize,
    summarised: usize,
    given_up: usize,
    refused: usize,
    failed: usize,
    measured: bool,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let plan = plan()?;
    let channel = Channel::from_shared(plan.address.clone())?.connect().await?;
    let session = create(&channel, &plan).await?;
    let mut story = Story::default();
    for turn in 0..plan.turns {
        run(&channel, &session, &input(turn, plan.paste), turn + 1, &mut story).await?;
    }
    println!("{}", story.told());
    if story.failed == 0 { Ok(()) } else { Err("turns failed".into()) }
}

fn plan() -> Result<Plan, Box<dyn Error>> {
    let mut plan = Plan {
        address: "http://localhost:7070".to_owned(),
        model: "local/smollm2".to_owned(),
        turns: 60,
        window: 4_096,
        paste: 0,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(option) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--address" => plan.address = value,
            "--model" => plan.model = value,
            "--turns" => plan.turns = value.parse()?,
            "--window" => plan.window = value.parse()?,
            "--paste" => plan.paste = value.parse()?,
            _ => return Err(format!("unknown option {option}").into()),
        }
    }
    Ok(plan)
}

async fn create(channel: &Channel, plan: &Plan) -> Result<String, Box<dyn Error>> {
    let compaction = pb::CompactionPolicy {
        instructions: WISHES.to_owned(),
        instructions_mode: pb::InstructionsMode::Replace.into(),
        ..pb::CompactionPolicy::default()
    };
    let policy = pb::Policy {
        compaction: Some(compaction),
        context_window: Some(plan.window),
        output_reserve: Some(ANSWER),
        ..pb::Policy::default()
    };
    let session = pb::Session {
        model: plan.model.clone(),
        system_prompt: "You advise a gardener. Answer in a few sentences.".to_owned(),
        generation: Some(pb::Generation { temperature: Some(0.7), seed: Some(7), ..pb::Generation::default() }),
        limits: Some(pb::TurnLimits { max_output_tokens: ANSWER, ..pb::TurnLimits::default() }),
        policy_overrides: Some(policy),
        ..pb::Session::default()
    };
    let request = pb::CreateSessionRequest { session: Some(session), request_id: String::new() };
    let created = SessionServiceClient::new(channel.clone()).create_session(request).await?.into_inner();
    Ok(created.session.unwrap_or_default().session_id)
}

/// The user's input in a turn: a question, sometimes with some notes, rarely with many.
fn input(turn: usize, paste: usize) -> String {
    let notes = if turn % LONG_EVERY == LONG_EVERY - 1 { 24 } else { turn * 5 % 7 };
    let notes = (0..notes + paste).map(|n| NOTES[(turn * 3 + n) % NOTES.len()]);
    let question = QUESTIONS[turn % QUESTIONS.len()];
    notes.chain([question]).collect::<Vec<_>>().join(" ")
}

/// Runs one turn and prints one line about it.
async fn run(
    channel: &Channel,
    session: &str,
    words: &str,
    number: usize,
    story: &mut Story,
) -> Result<(), Box<dyn Error>> {
    let part = pb::Part { content: Some(Content::Text(words.to_owned())), ..pb::Part::default() };
    let input = pb::InputMessage { parts: vec![part], ..pb::InputMessage::default() };
    let count = pb::CountTokensRequest {
        session_id: session.to_owned(),
        messages: vec![input.clone()],
        ..pb::CountTokensRequest::default()
    };
    let counted = ContextServiceClient::new(channel.clone()).count_tokens(count).await?.into_inner();
    story.expected = counted.total.map(|total| total.tokens);
    let request = pb::ExecuteTurnRequest {
        session_id: session.to_owned(),
        request_id: format!("{session}-{number}"),
        input: Some(input),
        ..pb::ExecuteTurnRequest::default()
    };
    let mut events = TurnServiceClient::new(channel.clone()).execute_turn(request).await?.into_inner();
    let mut line = Vec::new();
    while let Some(answer) = events.message().await? {
        let payload = answer.event.and_then(|event| event.payload);
        line.extend(payload.and_then(|payload| story.take_in(payload)));
    }
    println!("{number:>3}  {}", line.join("; "));
    Ok(())
}

impl Story {
    /// Records an event, and returns a text if the event is worth printing.
    fn take_in(&mut self, payload: Payload) -> Option<String> {
        match payload {
            Payload::UsageRecorded(told) if told.purpose() == pb::UsagePurpose::Turn => {
                let estimate = told.estimate?;
                let reported = estimate.actual_tokens;
                let ledger = Prediction { predicted: estimate.estimated_tokens, reported };
                let counted = self.expected.take().map(|predicted| Prediction { predicted, reported });
                let before = counted.as_ref().map_or_else(String::new, |counted| {
                    format!(", counted {:>4} ({:+.1}%)", counted.predicted, counted.error())
                });
                let answer = told.usage.map_or(0, |usage| usage.output_tokens);
                let said = format!(
                    "prompt {reported:>4}{before}, by the ledger {:>4} ({:+.1}%), answer {answer}",
                    ledger.predicted,
                    ledger.error()
                );
                self.counted.extend(counted);
                let first = !std::mem::replace(&mut self.measured, true);
                self.ledger[usize::from(first)].push(ledger);
                Some(said)
            }
            Payload::CompactionCompleted(told) => {
                let made = told.compaction?;
                (self.compacted, self.measured, self.expected) = (self.compacted + 1, false, None);
                self.summarised += usize::from(made.was_summarized);
                let size = |count: Option<pb::TokenCount>| count.map_or(0, |count| count.tokens);
                let how = if made.was_summarized { "a summary" } else { "nothing" };
                let (before, after, messages) =
                    (size(made.tokens_before), size(made.tokens_after), made.messages_compacted);
                Some(format!("{before} -> {after} tokens with {how} for {messages} messages"))
            }
            Payload::CompactionFailed(told) => {
                self.given_up += 1;
                Some(format!("compaction given up: {}", told.compaction?.failure?.message))
            }
            Payload::TurnRetrying(told) => {
                let failure = told.failure?;
                let too_long = failure.reason() == pb::FailureReason::ContextOverflow;
                self.refused += usize::from(too_long);
                Some(format!("tried again: {}", failure.message))
            }
            Payload::TurnFailed(told) => {
                self.failed += 1;
                Some(format!("FAILED: {}", told.failure?.message))
            }
            _ => None,
        }
    }

    /// The results, as text.
    fn told(&self) -> String {
        let Self { compacted, summarised, given_up, refused, failed, counted, ledger: [continued, anew], .. } = self;
        let errors = |predictions: &[Prediction]| {
            let mut errors: Vec<f64> = predictions.iter().map(|prediction| prediction.error().abs()).collect();
            errors.sort_by(f64::total_cmp);
            let at = |percent: usize| errors.get(errors.len() * percent / 100).copied().unwrap_or_default();
            format!("{} prompts, median {:.2}%, p90 {:.2}%", errors.len(), at(50), at(90))
        };
        format!(
            "counted before they were sent: {}\n\
             by the ledger, after a measured prompt: {}; otherwise: {}\n\
             compactions: {compacted}, {summarised} of them with a summary; given up: {given_up}\n\
             prompts that were refused as too long: {refused}; turns that failed: {failed}",
            errors(counted),
            errors(continued),
            errors(anew),
        )
    }
}
