//! Parses a line that the user typed.

/// The text of `/help`.
pub(super) const HELP: &str = "\
/model [NAME]  switch to this model; without NAME, show the current one
/stats         show what the context contains
/history       show the newest messages
/new           start a new conversation
/quit          exit (same as Ctrl-D)
Messages typed while a turn is running are queued: the model gets them with its next step.
Ctrl-C cancels a turn and keeps its results so far; pressing it again exits.";

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// An empty line.
    Nothing,
    /// A message to the model.
    Say(String),
    /// Switch to a model. `None` to show the current one.
    Model(Option<String>),
    Stats,
    History,
    New,
    Help,
    Quit,
    /// An unknown command.
    Unknown(String),
}

impl Command {
    pub(super) fn of(line: &str) -> Self {
        let line = line.trim();
        let Some(command) = line.strip_prefix('/') else {
            return if line.is_empty() { Self::Nothing } else { Self::Say(line.to_owned()) };
        };
        let (name, argument) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
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
            ("/model openai/gpt-5 ", Command::Model(Some("openai/gpt-5".to_owned()))),
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
