//! Loads script files and reports all invalid ones.

use std::{collections::BTreeMap, ffi::OsStr, fmt, fs, path::Path, sync::Arc};

use super::script::Script;

/// Limit on the bytes of a script file.
const MAX_BYTES: u64 = 1024 * 1024;

/// The built-in script.
const DEMO: &str = include_str!("demo.json");

/// The scripts that could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
pub struct LoadError {
    /// One problem for each invalid file. Never empty.
    pub problems: Vec<Problem>,
}

/// A problem with one script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file or directory, or the name of a script without a file.
    pub file: String,
    /// The field, e.g. `steps[1].say[0]`, or the line and column of a syntax error. Empty if the
    /// problem concerns the whole file.
    pub field: String,
    /// A human-readable description.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, field, message } = self;
        if field.is_empty() { write!(f, "{file}: {message}") } else { write!(f, "{file}: {field}: {message}") }
    }
}

impl LoadError {
    /// An error with a single problem.
    pub(super) fn one(problem: Problem) -> Self {
        Self { problems: vec![problem] }
    }
}

/// The built-in scripts.
pub(super) fn built_in() -> Result<BTreeMap<String, Arc<Script>>, LoadError> {
    let demo = script("demo", DEMO).map_err(LoadError::one)?;
    Ok(BTreeMap::from([("demo".to_owned(), Arc::new(demo))]))
}

/// Loads every `NAME.json` in a directory. Returns the scripts by name.
pub(super) fn directory(dir: &Path) -> Result<BTreeMap<String, Arc<Script>>, LoadError> {
    let unreadable = |error: std::io::Error| LoadError::one(problem(dir, format!("cannot be read: {error}")));
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        paths.push(entry.map_err(unreadable)?.path());
    }
    paths.retain(|path| path.extension() == Some(OsStr::new("json")));
    paths.sort();

    let mut scripts = BTreeMap::new();
    let mut problems = Vec::new();
    for path in paths {
        match file(&path) {
            Ok(script) => drop(scripts.insert(script.info.name.clone(), Arc::new(script))),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(scripts) } else { Err(LoadError { problems }) }
}

/// Loads a script from a file.
fn file(path: &Path) -> Result<Script, Problem> {
    let unreadable = |error: std::io::Error| problem(path, format!("cannot be read: {error}"));
    let name = path.file_stem().and_then(|stem| stem.to_str());
    let name = name.ok_or_else(|| problem(path, "the file name is not UTF-8"))?;
    if fs::metadata(path).map_err(unreadable)?.len() > MAX_BYTES {
        return Err(problem(path, format!("is larger than {MAX_BYTES} bytes")));
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    script(name, &text).map_err(|problem| Problem { file: path.display().to_string(), ..problem })
}

/// Parses and validates a script.
pub(super) fn script(name: &str, json: &str) -> Result<Script, Problem> {
    let bad = |field: String, message: String| Problem { file: name.to_owned(), field, message };
    let allowed = |char: char| char.is_ascii_alphanumeric() || "._-".contains(char);
    if name.is_empty() || !name.chars().all(allowed) {
        return Err(bad(String::new(), "a script name may contain only letters, digits and . _ -".to_owned()));
    }
    let file = serde_json::from_str(json).map_err(|error| {
        let place = format!("line {} column {}", error.line(), error.column());
        bad(place, without_position(&error))
    })?;
    Script::check(name, file).map_err(|flaw| bad(flaw.field, flaw.message))
}

/// The message of a JSON error without the position.
fn without_position(error: &serde_json::Error) -> String {
    let words = error.to_string();
    words.rsplit_once(" at line ").map_or(words.clone(), |(words, _)| words.to_owned())
}

/// A problem with a file or directory as a whole.
fn problem(path: &Path, message: impl Into<String>) -> Problem {
    Problem { file: path.display().to_string(), field: String::new(), message: message.into() }
}
