//! The refusals of services as data: tests/fixtures/rules has a row for each, with the service's message, its source,
//! and the date when the source was read.

use std::{
    fmt::{self, Display},
    fs,
    path::Path,
    sync::LazyLock,
};

use serde::Deserialize;

/// The rules of Chat Completions and of the services with this protocol.
pub static CHAT: LazyLock<Rows> = LazyLock::new(|| Rows::read("chat.toml"));
/// The rules of Anthropic's Messages.
pub static ANTHROPIC: LazyLock<Rows> = LazyLock::new(|| Rows::read("anthropic.toml"));
/// The rules of OpenAI's Responses.
pub static RESPONSES: LazyLock<Rows> = LazyLock::new(|| Rows::read("responses.toml"));
/// The rules of Gemini's generateContent.
pub static GEMINI: LazyLock<Rows> = LazyLock::new(|| Rows::read("gemini.toml"));

/// The source of a row for which none was found.
#[cfg(test)]
const NO_SOURCE: &str = "none found";

/// The rules of one API.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// The API, as the documentation names it.
    api: String,
    /// The service of rows that name none.
    service: String,
    rows: Vec<Row>,
}

/// A rule of a service.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    /// The dialect of the only service with this rule; `None` if it applies to all.
    service: Option<String>,
    /// What is refused.
    refuses: String,
    /// The error message. A name in braces is replaced by a value.
    words: String,
    /// A URL, or a file of this repository.
    source: String,
    /// The date on which the source was last read.
    read: String,
}

/// A refusal with the message of its row.
#[derive(Debug)]
pub struct Refusal {
    #[cfg(test)]
    row: &'static str,
    words: String,
}

impl Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl Rows {
    fn read(file: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rules");
        let rows = fs::read_to_string(folder.join(file)).expect("the rows are there");
        toml::from_str(&rows).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    /// The refusal of a row, with these values in its message.
    pub fn refuse(&'static self, id: &str, values: &[(&str, &dyn Display)]) -> Refusal {
        let row = self.rows.iter().find(|row| row.id == id);
        let row = row.unwrap_or_else(|| panic!("{} has no row {id}", self.api));
        let mut words = row.words.clone();
        for (name, value) in values {
            let name = format!("{{{name}}}");
            assert!(row.words.contains(&name), "{id} says no {name}");
            words = words.replace(&name, &value.to_string());
        }
        Refusal {
            #[cfg(test)]
            row: &row.id,
            words,
        }
    }
}

#[cfg(test)]
pub use checks::{Case, check, covers};

#[cfg(test)]
mod checks;
