//! The values that the statements take, by name: those of a turn that answers a question with a
//! text.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use contextd::{
    codec::{self, message::MessageInfo},
    context::estimate,
    model::{
        CompletionReason, Ending, FinishReason, Limits, MessageId, ModelResponse, Payload,
        RequestId, SessionConfig, TokenBasis, ToolSet, TurnResult, Usage, UsagePurpose,
        UsageTotals,
        command::TurnRequest,
        event::{Estimate, StepStarted, TurnStarted, UsageRecorded},
    },
    store::pipeline::Param,
};
use tokio_postgres::types::ToSql;

const TENANT: &str = "bench";
const MODEL: &str = "scripted/bench";
/// What the user asks, and what the model answers.
const QUESTION: &str = "Which of the tests are slow, and what would you do about them first?";
const ANSWER: &str = "Three of them take longer than a second: each starts a database of its own and waits until it answers. ";

type Value = Box<dyn ToSql + Sync + Send>;

/// The values of a transition, and the plain statements for which they are nothing.
pub(crate) struct Values {
    /// The message that is written.
    pub message: String,
    bound: BTreeMap<&'static str, Value>,
    unneeded: BTreeSet<&'static str>,
}

/// A message of one part.
struct Said {
    id: String,
    role: i16,
    category: i16,
    text: String,
    info: Vec<u8>,
    step: i32,
}

impl Values {
    /// Sets a value, in place of the one that it had.
    pub(crate) fn set(
        &mut self,
        name: &'static str,
        value: impl ToSql + Sync + Send + 'static,
    ) -> &mut Self {
        self.bound.insert(name, Box::new(value));
        self
    }

    /// The values of these parameters.
    pub(crate) fn of(&self, names: &[String]) -> Vec<Param<'_>> {
        let value = |name: &String| {
            self.bound
                .get(name.as_str())
                .unwrap_or_else(|| panic!("no value for {name}"))
        };
        names
            .iter()
            .map(|name| value(name).as_ref() as Param<'_>)
            .collect()
    }

    /// The names of all of them.
    pub(crate) fn names(&self) -> BTreeSet<&'static str> {
        self.bound.keys().copied().collect()
    }

    /// Makes a plain statement needed: there is something for it to write.
    pub(crate) fn need(&mut self, statement: &'static str) -> &mut Self {
        self.unneeded.remove(statement);
        self
    }

    /// Makes a plain statement unneeded.
    pub(crate) fn leave_out(&mut self, statement: &'static str) -> &mut Self {
        self.unneeded.insert(statement);
        self
    }

    /// Whether a plain statement has something to write.
    pub(crate) fn needs(&self, statement: &str) -> bool {
        !self.unneeded.contains(statement)
    }

    fn new(session: &str, turn: &str) -> Self {
        let mut values = Self {
            message: String::new(),
            bound: BTreeMap::new(),
            unneeded: BTreeSet::from(["store::rows::media"]),
        };
        values
            .set("tenant", TENANT)
            .set("session", session.to_owned())
            .set("turn", turn.to_owned());
        values
            .set("owner", "bench")
            .set("model", MODEL)
            .set("lease", 30.0_f64);
        values.set("estimator", "bench").set("offset", 40_i64);
        values
    }

    /// Writes these events, in which the message is committed by the one with that number.
    fn rows(&mut self, events: &[(Payload, i32)], number: i32, said: Said) -> &mut Self {
        let Said {
            id,
            role,
            category,
            text,
            info,
            step,
        } = said;
        self.message.clone_from(&id);
        let encoded: Vec<_> = events
            .iter()
            .map(|(payload, _)| codec::event::encode(payload))
            .collect();
        let reference = |refs: &Vec<String>| refs.first().cloned().unwrap_or_default();
        self.set(
            "kinds",
            encoded.iter().map(|event| event.kind).collect::<Vec<_>>(),
        );
        self.set(
            "refs",
            encoded
                .iter()
                .map(|event| reference(&event.refs))
                .collect::<Vec<_>>(),
        );
        self.set(
            "payloads",
            encoded
                .into_iter()
                .map(|event| event.payload)
                .collect::<Vec<_>>(),
        );
        self.set(
            "steps",
            events.iter().map(|(_, step)| *step).collect::<Vec<_>>(),
        );
        self.set("attempts", vec![1_i32; events.len()]);
        self.set("message_events", vec![number])
            .set("message_ids", vec![id.clone()]);
        self.set("message_roles", vec![role])
            .set("message_steps", vec![step]);
        self.set("message_tokens", vec![4_i32])
            .set("message_pinned", vec![false]);
        self.set("message_infos", vec![info])
            .set("part_messages", vec![id]);
        self.set("part_positions", vec![0_i32])
            .set("part_kinds", vec!["text"]);
        self.set("part_calls", vec![None::<String>])
            .set("part_names", vec![None::<String>]);
        self.set("part_outcomes", vec![None::<i16>])
            .set("part_bodies", vec![text]);
        self.set("part_rests", vec![None::<Vec<u8>>])
            .set("part_tokens", vec![19_i32]);
        self.set("part_categories", vec![category])
    }

    /// No events and no message.
    pub(crate) fn without_rows(&mut self) -> &mut Self {
        for name in [
            "kinds",
            "refs",
            "message_ids",
            "part_messages",
            "part_kinds",
            "part_bodies",
        ] {
            self.set(name, Vec::<String>::new());
        }
        for name in ["part_calls", "part_names"] {
            self.set(name, Vec::<Option<String>>::new());
        }
        for name in [
            "steps",
            "attempts",
            "message_events",
            "message_steps",
            "message_tokens",
            "part_positions",
            "part_tokens",
        ] {
            self.set(name, Vec::<i32>::new());
        }
        for name in ["message_roles", "part_categories"] {
            self.set(name, Vec::<i16>::new());
        }
        for name in ["payloads", "message_infos"] {
            self.set(name, Vec::<Vec<u8>>::new());
        }
        self.set("message_pinned", Vec::<bool>::new())
            .set("part_outcomes", Vec::<Option<i16>>::new());
        self.set("part_rests", Vec::<Option<Vec<u8>>>::new());
        self.leave_out("store::rows::messages")
            .leave_out("store::rows::parts")
    }
}

/// A turn of a session that is created with it.
pub(crate) fn admission(session: &str, turn: &str) -> Values {
    let request = format!("request-of-{turn}");
    let input = format!("{turn}-input");
    let limits = Limits {
        max_steps: 50,
        max_output_tokens: None,
        max_total_tokens: None,
        turn_timeout: Duration::from_mins(60),
        tool_timeout: Duration::from_mins(5),
        grace: Duration::ZERO,
    };
    let started = Payload::TurnStarted(TurnStarted {
        request: Some(RequestId::new(request.as_str())),
        model: MODEL.to_owned(),
        limits,
        tool_names: Vec::new(),
        input: Some(MessageId::new(input.as_str())),
    });
    let step = Payload::StepStarted(StepStarted {
        model: MODEL.to_owned(),
        revision: 1,
        context: estimate::count(60),
        window: 200_000,
        reserve: 20_000,
    });
    let committed = Payload::MessageCommitted {
        message: MessageId::new(input.as_str()),
    };
    let mut values = Values::new(session, turn);
    let info = codec::message::encode_info(&MessageInfo::default());
    let said = Said {
        id: input,
        role: 2,
        category: 1,
        text: QUESTION.to_owned(),
        info,
        step: 0,
    };
    values.rows(&[(started, 0), (committed, 0), (step, 1)], 2, said);
    values
        .set("timeout", 3600.0_f64)
        .set("revision", 1_i64)
        .set("request_id", Some(request));
    values.set(
        "request_hash",
        "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
    );
    values.set(
        "request",
        codec::turn::encode_request(&TurnRequest::default()),
    );
    let config = SessionConfig {
        model: MODEL.to_owned(),
        ..SessionConfig::default()
    };
    let tools = codec::tools::encode(&ToolSet::default());
    values
        .set("toolset", codec::tools::content_id(&tools))
        .set("tools", tools)
        .set("tools_tokens", 0_i32);
    values
        .set("config", codec::config::encode(&config))
        .set("ttl", None::<f64>);
    values
}

/// The end of that turn, with the model's answer.
pub(crate) fn ending(session: &str, turn: &str) -> Values {
    let message = MessageId::new(format!("{turn}-answer"));
    let usage = Usage {
        input: 62,
        output: 240,
        reasoning: 0,
        cache_read: 0,
        cache_write: 0,
        provider_tool_calls: 0,
        provider_json: String::new(),
    };
    let estimate = Estimate {
        estimated: 60,
        actual: 62,
        basis: TokenBasis::Heuristic,
    };
    let recorded = Payload::UsageRecorded(UsageRecorded {
        purpose: UsagePurpose::Turn,
        model: MODEL.to_owned(),
        usage: Some(usage.clone()),
        estimate: Some(estimate),
        ratio: 1.0,
        message: Some(message.clone()),
        compaction: None,
    });
    let info = codec::message::encode_info(&MessageInfo {
        response: Some(response(&usage)),
        ..MessageInfo::default()
    });
    let text = ANSWER.repeat(8);
    let mut values = Values::new(session, turn);
    let said = Said {
        id: message.to_string(),
        role: 3,
        category: 2,
        text,
        info,
        step: 1,
    };
    values.rows(
        &[
            (
                Payload::MessageCommitted {
                    message: message.clone(),
                },
                1,
            ),
            (recorded, 1),
        ],
        1,
        said,
    );
    let ended = Ending::Completed(CompletionReason::Stop);
    let result = TurnResult {
        step_count: 1,
        final_message: Some(message.clone()),
        finish: Some(FinishReason::Stop),
        last_step_usage: Some(usage.clone()),
        total_usage: UsageTotals::default().plus(Some(&usage)),
        elapsed: Duration::from_millis(2345),
    };
    values.set("outcome", codec::turn::encode_outcome(&ended, &result));
    values.set(
        "payload",
        codec::event::encode(&Payload::TurnEnded {
            ending: ended,
            result,
        })
        .payload,
    );
    values
        .set("epoch", 1_i64)
        .set("op", 0_i64)
        .set("calls", 1_i64)
        .set("step_count", 1_i32);
    values
        .set("input_tokens", 62_i64)
        .set("output_tokens", 240_i64)
        .set("reasoning_tokens", 0_i64);
    values
        .set("cache_read_tokens", 0_i64)
        .set("cache_write_tokens", 0_i64);
    values.set("final_message", Some(message.to_string()));
    values.set("measured", Some(vec![0_i64, 62, 240, 300, 0, 60, 4]));
    values
}

fn response(usage: &Usage) -> ModelResponse {
    ModelResponse {
        provider: "scripted".to_owned(),
        model: MODEL.to_owned(),
        provider_model: "bench-2026-11-01".to_owned(),
        provider_response_id: "chatcmpl-8f14e45fceea167a5a36dedd4bea2543".to_owned(),
        finish: FinishReason::Stop,
        provider_finish: "stop".to_owned(),
        usage: Some(usage.clone()),
        failure: None,
        time_to_first_token: Some(Duration::from_millis(345)),
        elapsed: Duration::from_millis(2345),
        provider_metadata: None,
        prompt_fingerprint: None,
    }
}
