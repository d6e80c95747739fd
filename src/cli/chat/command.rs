//! What a line of the person's means.

/// The commands, for `/help`.
pub(super) const HELP: &str = "\
/model [NAME]  answer with this model from now on; without a name, say which one answers
/stats         what the context holds
/history       the newest messages
/new           begin another conversation
/quit          leave (as Ctrl-D does)
What you type while a turn runs is queued: the model gets it with its next step.
Ctrl-C cancels a turn and keeps what it did; pressed again, it leaves.";

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Nothing.
    Nothing,
    /// Something to say to the model.
    Say(String),
    /// Another model, or the question which it is.
    Model(Option<String>),
    Stats,
    History,
    New,
    Help,
    Quit,
    /// There is no such command.
    Unknown(String),
}

impl Command {
    pub(super) fn of(line: &str) -> Self {
        let line = line.trim();
        let Some(command) = line.strip_prefix('/') else {
            return if line.is_empty() {
                Self::Nothing
            } else {
                Self::Say(line.to_owned())
            };
        };
        let (name, argument) = command
            .split_once(char::is_whitespace)
            .unwrap_or((command, ""));
        match (name, argument.trim()) {
            ("model", "") => Self::Model(None),
            ("model", model) => Self::Model(Some(model.to_owned())),
            ("stats", "") => Self::Stats,
            ("history", "") => Self::History,
            ("new", "") => Self::New,
            ("help", "") => Self::Help,
            ("quit", "") => Self::Quit,
            _ => Self::Unknown(line.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_message_unless_it_begins_with_a_slash() {
        for (line, expected) in [
            ("  ", Command::Nothing),
            (" Hello / there ", Command::Say("Hello / there".to_owned())),
            ("/model", Command::Model(None)),
            (
                "/model openai/gpt-5 ",
                Command::Model(Some("openai/gpt-5".to_owned())),
            ),
            ("/stats", Command::Stats),
            ("/history", Command::History),
            ("/new", Command::New),
            ("/help", Command::Help),
            ("/quit", Command::Quit),
            ("/quit now", Command::Unknown("/quit now".to_owned())),
            ("/etc/hosts", Command::Unknown("/etc/hosts".to_owned())),
        ] {
            assert_eq!(Command::of(line), expected, "{line}");
        }
    }
}
