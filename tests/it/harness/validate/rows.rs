//! The refusals of services as data: tests/fixtures/rules has a row for each, with the words of the service, where they
//! were read, and when.

use std::{
    fmt::{self, Display},
    fs,
    path::Path,
    sync::LazyLock,
};

use serde::Deserialize;

/// What Chat Completions and the services that speak it refuse.
pub static CHAT: LazyLock<Rows> = LazyLock::new(|| Rows::read("chat.toml"));
/// What Anthropic's Messages refuses.
pub static ANTHROPIC: LazyLock<Rows> = LazyLock::new(|| Rows::read("anthropic.toml"));
/// What OpenAI's Responses refuses.
pub static RESPONSES: LazyLock<Rows> = LazyLock::new(|| Rows::read("responses.toml"));
/// What Gemini's generateContent refuses.
pub static GEMINI: LazyLock<Rows> = LazyLock::new(|| Rows::read("gemini.toml"));

/// The source of a row for which none was found.
#[cfg(test)]
const NO_SOURCE: &str = "none found";

/// The refusals of one API.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// The API, as the documentation names it.
    api: String,
    /// The service whose rows name none.
    service: String,
    rows: Vec<Row>,
}

/// Something that a service refuses.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    /// The service, where only that one refuses it: a dialect's name.
    service: Option<String>,
    /// What is refused.
    refuses: String,
    /// The words of the refusal. A name in braces is a value.
    words: String,
    /// An address, or a file of this repository.
    source: String,
    /// The day on which the source was last read.
    read: String,
}

/// A refusal in the words of its row.
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

    /// The refusal of a row, whose words have these values.
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
