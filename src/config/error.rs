//! What can be wrong with the settings, each naming its place.

use std::fmt;
use std::path::PathBuf;

/// The settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML. The line itself is not shown: it may hold a secret.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in characters.
        column: usize,
        /// What TOML says.
        message: String,
    },
    /// Keys or values are wrong; all of them are here.
    #[error("the configuration has {}:{}", count(.0.len()), list(.0))]
    Problems(Vec<Problem>),
}

/// One thing that is wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// No setting has this key.
    UnknownKey {
        /// The key as written.
        key: String,
        /// The key that was probably meant.
        suggestion: Option<String>,
        /// Where it was written.
        origin: Option<Origin>,
    },
    /// No setting has this environment variable.
    UnknownVariable {
        /// The variable.
        name: String,
        /// The variable that was probably meant.
        suggestion: Option<String>,
    },
    /// The value cannot be used.
    Value {
        /// The key of the setting.
        key: String,
        /// Where the value came from; absent for a default.
        origin: Option<Origin>,
        /// What is wrong with it.
        message: String,
    },
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The file.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
    /// A flag of the command line.
    Flag(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey {
                key,
                suggestion,
                origin,
            } => {
                write!(
                    formatter,
                    "unknown key `{key}`{}{}",
                    from(origin.as_ref()),
                    did_you_mean(suggestion.as_deref())
                )
            }
            Self::UnknownVariable { name, suggestion } => {
                write!(
                    formatter,
                    "unknown environment variable `{name}`{}",
                    did_you_mean(suggestion.as_deref())
                )
            }
            Self::Value {
                key,
                origin,
                message,
            } => {
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
    origin
        .map(|origin| format!(" (from {origin})"))
        .unwrap_or_default()
}

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion
        .map(|name| format!("; did you mean `{name}`?"))
        .unwrap_or_default()
}

fn count(problems: usize) -> String {
    if problems == 1 {
        "a problem".to_owned()
    } else {
        format!("{problems} problems")
    }
}

fn list(problems: &[Problem]) -> String {
    problems
        .iter()
        .map(|problem| format!("\n  {problem}"))
        .collect()
}
