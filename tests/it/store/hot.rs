//! The statements whose plans are looked at: those that stand alone, and those of transitions,
//! which run after the ones before them.

use contextd::store::{hot_statements, hot_transitions, named::Named};

use super::plans::{MEASURED, arguments, tail};

/// The statement that writes which media a message has.
const MEDIA: &str = "store::rows::media";

/// The names of the arguments of the shared tail.
const TAIL: [&str; 26] = [
    "tenant",
    "session",
    "kinds",
    "payloads",
    "refs",
    "steps",
    "attempts",
    "message_events",
    "message_ids",
    "message_roles",
    "message_steps",
    "message_tokens",
    "message_pinned",
    "message_infos",
    "part_messages",
    "part_positions",
    "part_kinds",
    "part_calls",
    "part_names",
    "part_outcomes",
    "part_bodies",
    "part_rests",
    "part_tokens",
    "part_categories",
    "estimator",
    "offset",
];

/// The arguments of a plain statement of a transition, for a session with that id and its turn.
fn named_arguments(statement: &Named, session: &str, turn: &str) -> String {
    let argument = |name: &str| match name {
        "session" => format!("'{session}'"),
        "turn" => format!("'{turn}'"),
        "owner" => "'one'".to_owned(),
        "epoch" | "calls" | "step_count" | "revision" => "1".to_owned(),
        "op" | "reasoning_tokens" | "cache_read_tokens" | "cache_write_tokens" | "tools_tokens" => {
            "0".to_owned()
        }
        "model" => "'scripted/demo'".to_owned(),
        "input_tokens" => "100".to_owned(),
        "output_tokens" => "10".to_owned(),
        "final_message" => "'new-message'".to_owned(),
        "payload" | "outcome" | "request" | "config" | "tools" => "''".to_owned(),
        "lease" => "30".to_owned(),
        "timeout" => "600".to_owned(),
        "ttl" => "60".to_owned(),
        "measured" => MEASURED.to_owned(),
        "request_id" => "'r'".to_owned(),
        "request_hash" => "'hash'".to_owned(),
        "toolset" => "'new-toolset'".to_owned(),
        other => {
            let at = TAIL.iter().position(|known| *known == other);
            tail("")[at.unwrap_or_else(|| panic!("no argument for {other}"))].to_owned()
        }
    };
    statement
        .names
        .iter()
        .map(|name| argument(name))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The statement of a finish that compares the fence and decides, with arguments for the first turn
/// of a session.
pub(super) fn finish_fence(session: &str) -> (&'static str, String) {
    let (_, finish) = hot_transitions()
        .into_iter()
        .find(|(name, _)| *name == "finish")
        .unwrap();
    let fence = finish
        .iter()
        .find(|statement| statement.name() == "store::turn::finish")
        .unwrap();
    (
        &fence.sql,
        named_arguments(fence, session, &format!("{session}-t1")),
    )
}

/// What is looked at: a statement by itself, or one of a transition, which runs after those before
/// it.
#[derive(Clone, Copy)]
pub(super) enum Hot {
    /// Its name and its text.
    Alone(&'static str, &'static str),
    /// The transition, its statements, and which of them.
    Nth(&'static str, &'static [Named], usize),
}

impl Hot {
    /// All of them.
    pub(super) fn all() -> Vec<Self> {
        let alone = hot_statements()
            .into_iter()
            .map(|(name, sql)| Self::Alone(name, sql));
        let nth = hot_transitions()
            .into_iter()
            .flat_map(|(name, statements)| {
                (0..statements.len()).map(move |at| Self::Nth(name, statements, at))
            });
        alone.chain(nth).filter(|hot| hot.is_needed()).collect()
    }

    /// Messages here have no media.
    fn is_needed(self) -> bool {
        !self.name().ends_with(MEDIA)
    }

    /// What complaints call it.
    pub(super) fn name(self) -> String {
        match self {
            Self::Alone(name, _) => name.to_owned(),
            Self::Nth(transition, statements, at) => {
                format!("{transition}: {}", statements[at].name())
            }
        }
    }

    /// Its text.
    pub(super) fn sql(self) -> &'static str {
        match self {
            Self::Alone(_, sql) => sql,
            Self::Nth(_, statements, at) => &statements[at].sql,
        }
    }

    /// Runs it as it was prepared, and before it what comes before it.
    pub(super) fn executions(self) -> Vec<String> {
        match self {
            Self::Alone(name, _) => {
                vec![format!("execute {name} ({})", arguments(name).join(", "))]
            }
            Self::Nth(transition, statements, at) => {
                let (session, turn) = if transition == "finish" {
                    ("run", "run-t1")
                } else {
                    ("new", "new-turn")
                };
                let execution = |(at, statement): (usize, &Named)| {
                    format!(
                        "execute {transition}_{at} ({})",
                        named_arguments(statement, session, turn)
                    )
                };
                let needed = statements[..=at]
                    .iter()
                    .enumerate()
                    .filter(|(_, statement)| statement.name() != MEDIA);
                needed.map(execution).collect()
            }
        }
    }

    /// The name under which it is prepared.
    pub(super) fn prepared_name(self) -> String {
        match self {
            Self::Alone(name, _) => name.to_owned(),
            Self::Nth(transition, _, at) => format!("{transition}_{at}"),
        }
    }
}
