//! Asks the user whether a tool call may run.

use serde_json::Value;

use super::terminal::Keyboard;
use super::typing::Typed;
use contextd_proto::{self as pb, ApprovalDecision};

/// The result for the model if there is no terminal.
const NO_TERMINAL: &str = "There is no terminal at which this call could be approved.";
/// The result for the model if the user gives no reason.
const NO_REASON: &str = "The user does not want this call to run.";

/// The user's decision about a tool call.
#[derive(Debug)]
pub(super) enum Decision {
    /// To be submitted.
    Approval(pb::Approval),
    /// The user interrupted the turn instead.
    Interrupted,
}

/// Asks until the user decides.
pub(super) async fn decide(keyboard: Option<&Keyboard>, call: &pb::ToolCall) -> Decision {
    let Some(keyboard) = keyboard else {
        return Decision::Approval(deny(call, NO_TERMINAL));
    };
    loop {
        let choice = match keyboard.ask("   run it? [y]es, [n]o, [e]dit its arguments: ", "").await {
            Typed::Line(line) => choice(&line),
            Typed::Interrupted => return Decision::Interrupted,
            Typed::End => return Decision::Approval(deny(call, NO_TERMINAL)),
        };
        let made = match choice {
            Some(Choice::Yes) => Some(approve(call, String::new())),
            Some(Choice::No) => refuse(keyboard, call).await,
            Some(Choice::Edit) => edit(keyboard, call).await,
            None => None,
        };
        if let Some(made) = made {
            return Decision::Approval(made);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Yes,
    No,
    Edit,
}

/// Parses a prefix of a choice. There is no default, so running a tool always requires explicit input.
fn choice(line: &str) -> Option<Choice> {
    let word = line.trim().to_lowercase();
    let means = |whole: &str| !word.is_empty() && whole.starts_with(&word);
    [("yes", Choice::Yes), ("no", Choice::No), ("edit", Choice::Edit)]
        .into_iter()
        .find_map(|(whole, choice)| means(whole).then_some(choice))
}

async fn refuse(keyboard: &Keyboard, call: &pb::ToolCall) -> Option<pb::Approval> {
    match keyboard.ask("   reason (sent to the model): ", "").await {
        Typed::Line(reason) if reason.trim().is_empty() => Some(deny(call, NO_REASON)),
        Typed::Line(reason) => Some(deny(call, reason.trim())),
        Typed::Interrupted | Typed::End => None,
    }
}

async fn edit(keyboard: &Keyboard, call: &pb::ToolCall) -> Option<pb::Approval> {
    let mut arguments = call.arguments_json.clone();
    loop {
        match keyboard.ask("   arguments: ", &arguments).await {
            Typed::Line(line) if line == call.arguments_json => {
                return Some(approve(call, String::new()));
            }
            Typed::Line(line) if is_object(&line) => return Some(approve(call, line)),
            Typed::Line(line) => arguments = line,
            Typed::Interrupted | Typed::End => return None,
        }
    }
}

fn is_object(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object())
}

fn approve(call: &pb::ToolCall, edited_arguments_json: String) -> pb::Approval {
    let decision = ApprovalDecision::Approve.into();
    pb::Approval { call_id: call.call_id.clone(), decision, edited_arguments_json, reason: String::new() }
}

fn deny(call: &pb::ToolCall, reason: &str) -> pb::Approval {
    let decision = ApprovalDecision::Deny.into();
    pb::Approval {
        call_id: call.call_id.clone(),
        decision,
        edited_arguments_json: String::new(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_approval_choice_is_read_from_its_word_or_a_prefix() {
        for (line, expected) in [
            ("y", Some(Choice::Yes)),
            (" YES ", Some(Choice::Yes)),
            ("n", Some(Choice::No)),
            ("edit", Some(Choice::Edit)),
            ("", None),
            ("yesterday", None),
            ("run it", None),
        ] {
            assert_eq!(choice(line), expected, "{line}");
        }
    }

    #[tokio::test]
    async fn without_a_terminal_a_call_is_denied_with_the_reason() {
        let call = pb::ToolCall { call_id: "c".to_owned(), ..pb::ToolCall::default() };
        let Decision::Approval(approval) = decide(None, &call).await else { panic!("not interrupted") };
        assert_eq!((approval.call_id.as_str(), approval.decision()), ("c", ApprovalDecision::Deny));
        assert_eq!(approval.reason, NO_TERMINAL);
    }
}
