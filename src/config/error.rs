//! Errors of the configuration, with the key and the origin of each problem.

use std::fmt;
use std::path::PathBuf;

/// The settings cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// The file is not valid TOML. The message does not quote the line, which may contain a secret.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Syntax {
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in characters.
        column: usize,
        /// The message of the TOML parser.
        message: String,
    },
    /// Keys or values are invalid. Contains all problems.
    #[error("the configuration has {}:{}", count(.0.len()), list(.0))]
    Problems(Vec<Problem>),
}

/// One problem with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// No setting has this key.
    UnknownKey {
        /// The key as written.
        key: String,
        /// The most similar known key.
        suggestion: Option<String>,
        /// Where the key was set.
        origin: Option<Origin>,
    },
    /// No setting has this environment variable.
    UnknownVariable {
        name: String,
        /// The most similar known variable.
        suggestion: Option<String>,
    },
    /// A value is invalid.
    Value {
        /// The dotted key of the setting.
        key: String,
        /// Where the value was set. `None` for a default.
        origin: Option<Origin>,
        message: String,
    },
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The configuration file.
    File(PathBuf),
    /// The environment variable with this name.
    Variable(String),
    /// The command-line flag with this name, without the dashes.
    Flag(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey { key, suggestion, origin } => {
                write!(formatter, "unknown key `{key}`{}{}", from(origin.as_ref()), did_you_mean(suggestion.as_deref()))
            }
            Self::UnknownVariable { name, suggestion } => {
                write!(formatter, "unknown environment variable `{name}`{}", did_you_mean(suggestion.as_deref()))
            }
            Self::Value { key, origin, message } => {
                write!(formatter, "`{key}`{}: {message}", from(origin.as_ref()))
            }
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(formatter),
            Self::Variable(name) => formatter.write_str(name),
            Self::Flag(name) => write!(formatter, "--{name}"),
        }
    }
}

fn from(origin: Option<&Origin>) -> String {
    origin.map(|origin| format!(" (from {origin})")).unwrap_or_default()
}

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

fn count(problems: usize) -> String {
    if problems == 1 { "1 problem".to_owned() } else { format!("{problems} problems") }
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}
