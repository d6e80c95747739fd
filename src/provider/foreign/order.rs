//! Moves tool results directly after the calls that they belong to. Other APIs allow messages in
//! between: the Responses API a system or a user message.

use std::collections::BTreeMap;

use super::{ForeignContent, ForeignMessage, ForeignPart};
use crate::model::Role;

/// A message without tool results, and the results that follow it.
#[derive(Default)]
struct Group {
    /// `None` before the first such message.
    begins: Option<ForeignMessage>,
    results: Vec<ForeignMessage>,
}

/// Moves each result to the most recent call before it that has its id and no result yet. Results
/// without such a call stay in place.
pub(super) fn results_follow_calls(messages: Vec<ForeignMessage>) -> Vec<ForeignMessage> {
    let mut groups = vec![Group::default()];
    // For each id, the groups of the calls without a result.
    let mut open: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for message in messages {
        if message.role == Role::Tool {
            answer(message, &mut open, &mut groups);
            continue;
        }
        for part in &message.parts {
            if let ForeignContent::Call { id, .. } = &part.content {
                open.entry(id.clone()).or_default().push(groups.len());
            }
        }
        groups.push(Group { begins: Some(message), results: Vec::new() });
    }
    let in_order = |group: Group| group.begins.into_iter().chain(group.results);
    groups.into_iter().flat_map(in_order).collect()
}

/// Adds the results of a message to the groups of their calls.
fn answer(message: ForeignMessage, open: &mut BTreeMap<String, Vec<usize>>, groups: &mut [Group]) {
    let ForeignMessage { at, role, parts } = message;
    let last = groups.len() - 1;
    let mut pieces: Vec<(usize, Vec<ForeignPart>)> = Vec::new();
    for part in parts {
        let group = called_in(&part, open).unwrap_or(last);
        match pieces.last_mut() {
            Some((before, parts)) if *before == group => parts.push(part),
            Some(_) | None => pieces.push((group, vec![part])),
        }
    }
    for (group, parts) in pieces {
        let at = at.clone();
        groups[group].results.push(ForeignMessage { at, role, parts });
    }
}

/// The group of the call that a result belongs to.
fn called_in(part: &ForeignPart, open: &mut BTreeMap<String, Vec<usize>>) -> Option<usize> {
    let ForeignContent::Result { call, .. } = &part.content else {
        return None;
    };
    open.get_mut(call)?.pop()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ToolOutcome;

    /// Messages in a compact form: `u` a user message, `s` a system message, `a:1,2` an assistant
    /// message with the calls 1 and 2, `t:1` a tool message.
    fn messages(short: &str) -> Vec<ForeignMessage> {
        short.split_whitespace().map(message).collect()
    }

    fn message(short: &str) -> ForeignMessage {
        let (role, calls) = short.split_once(':').unwrap_or((short, ""));
        let content = |id: &str| match role {
            "t" => ForeignContent::Result { call: id.to_owned(), parts: Vec::new(), outcome: ToolOutcome::Success },
            _ => ForeignContent::Call { id: id.to_owned(), name: "look".to_owned(), arguments: String::new() },
        };
        let calls = calls.split(',').filter(|id| !id.is_empty());
        ForeignMessage {
            at: role.to_owned(),
            role: match role {
                "u" => Role::User,
                "s" => Role::System,
                "a" => Role::Assistant,
                _ => Role::Tool,
            },
            parts: calls.map(|id| ForeignPart::new(role, content(id))).collect(),
        }
    }

    fn short(messages: &[ForeignMessage]) -> String {
        let one = |message: &ForeignMessage| {
            let ids: Vec<&str> = message
                .parts
                .iter()
                .filter_map(|part| match &part.content {
                    ForeignContent::Call { id, .. } => Some(id.as_str()),
                    ForeignContent::Result { call, .. } => Some(call.as_str()),
                    ForeignContent::Text(_)
                    | ForeignContent::Reasoning { .. }
                    | ForeignContent::Refusal(_)
                    | ForeignContent::Media(_)
                    | ForeignContent::Item { .. } => None,
                })
                .collect();
            if ids.is_empty() { message.at.clone() } else { format!("{}:{}", message.at, ids.join(",")) }
        };
        messages.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn results_move_to_their_calls_and_everything_else_keeps_its_order() {
        let table = [
            ("u a:1 t:1 u", "u a:1 t:1 u"),
            ("u a:1 s t:1 u", "u a:1 t:1 s u"),
            ("a:1,2 t:1 s u t:2 u", "a:1,2 t:1 t:2 s u u"),
            ("a:1 a:2 t:1,2", "a:1 t:1 a:2 t:2"),
            ("a:1 t:1 a:1 s t:1", "a:1 t:1 a:1 t:1 s"),
            ("a:1 s", "a:1 s"),
            ("t:1 a:1 u t:2", "t:1 a:1 u t:2"),
            ("a:1 t:1 s t:1", "a:1 t:1 s t:1"),
        ];
        for (given, expected) in table {
            assert_eq!(short(&results_follow_calls(messages(given))), expected);
        }
    }
}
