//! Checks test cases against the rules: each row refuses at least one case, has a source and a date, and agrees with
//! the documentation.

use std::{collections::BTreeSet, fs, path::Path};

use jiff::{Zoned, civil::Date};
use serde_json::Value;

use super::{ANTHROPIC, CHAT, GEMINI, NO_SOURCE, RESPONSES, Refusal, Row, Rows};

/// A description of the request, the fields in which it differs from a valid one, and the row that refuses it (empty if
/// it is accepted). A colon and a part of the message may follow the row.
pub type Case<'a> = (&'a str, Vec<(&'a str, Value)>, &'a str);

/// Checks the cases against a validator. Returns the rows that refused one.
#[track_caller]
pub fn check(refusal: impl Fn(&Value) -> Option<Refusal>, base: &Value, cases: &[Case<'_>]) -> BTreeSet<&'static str> {
    let mut refused = BTreeSet::new();
    for (what, changes, expected) in cases {
        let mut body = base.clone();
        for (pointer, value) in changes {
            set(&mut body, pointer, value.clone());
        }
        let (row, words) = expected.split_once(": ").unwrap_or((expected, ""));
        match refusal(&body) {
            None => assert!(row.is_empty(), "{what} is taken"),
            Some(said) => {
                assert_eq!(said.row, row, "{what}: {said}");
                assert!(said.words.contains(words), "{what}: {said}");
                refused.insert(said.row);
            }
        }
    }
    refused
}

/// Checks that each row refuses one of the cases.
#[track_caller]
pub fn covers(rows: &'static Rows, refused: &[BTreeSet<&str>]) {
    let is_refused = |row: &&Row| refused.iter().any(|rows| rows.contains(row.id.as_str()));
    let without: Vec<&str> = rows.rows.iter().filter(|row| !is_refused(row)).map(|row| row.id.as_str()).collect();
    assert!(without.is_empty(), "{}: no case is refused by {without:?}", rows.api);
}

/// Sets a field of an object; null removes it.
fn set(body: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    let parent = body.pointer_mut(parent).expect("the parent is there");
    match (parent, value) {
        (Value::Object(object), Value::Null) => drop(object.remove(key)),
        (Value::Object(object), value) => drop(object.insert(key.to_owned(), value)),
        (parent, value) => parent[key.parse::<usize>().expect("an index")] = value,
    }
}

/// The rows of one service.
struct Service {
    api: &'static str,
    name: &'static str,
    rows: Vec<&'static Row>,
}

impl Service {
    fn without_source(&self) -> usize {
        let is_missing = |row: &&&Row| row.source == NO_SOURCE;
        self.rows.iter().filter(is_missing).count()
    }

    fn oldest(&self) -> Date {
        let dates = self.rows.iter().map(|row| date(row));
        dates.min().expect("a service has a row")
    }

    /// The locations of the sources: hosts, and the repository itself.
    fn places(&self) -> String {
        let place = |row: &&Row| match row.source.strip_prefix("https://") {
            Some(address) => address.split('/').next().unwrap_or_default().to_owned(),
            None => "recorded answers".to_owned(),
        };
        let known = self.rows.iter().filter(|row| row.source != NO_SOURCE);
        let places: BTreeSet<String> = known.map(place).collect();
        places.into_iter().collect::<Vec<_>>().join(", ")
    }
}

fn date(row: &Row) -> Date {
    let read = row.read.parse();
    read.unwrap_or_else(|error| panic!("{}: {}: {error}", row.id, row.read))
}

fn apis() -> [&'static Rows; 4] {
    [&CHAT, &RESPONSES, &ANTHROPIC, &GEMINI]
}

/// The services, in the order of the files.
fn services() -> Vec<Service> {
    let mut services: Vec<Service> = Vec::new();
    for api in apis() {
        for row in &api.rows {
            let name = row.service.as_deref().unwrap_or(&api.service);
            let known = services.iter_mut().find(|it| it.api == api.api && it.name == name);
            match known {
                Some(service) => service.rows.push(row),
                None => services.push(Service { api: &api.api, name, rows: vec![row] }),
            }
        }
    }
    services
}

fn root(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn every_row_has_an_id_of_its_own_a_source_and_a_date() {
    for api in apis() {
        let mut ids = BTreeSet::new();
        for row in &api.rows {
            let Row { id, refuses, words, source, .. } = row;
            assert!(ids.insert(id), "{}: {id} is there twice", api.api);
            assert!(!refuses.is_empty() && !words.is_empty(), "{id}");
            let is_file = source.starts_with("tests/") && root(source).is_file();
            let is_known = source.starts_with("https://") || source == NO_SOURCE || is_file;
            assert!(is_known, "{id}: {source} is no source");
            date(row);
        }
    }
}

#[test]
fn the_documentation_says_when_each_service_was_last_read() {
    let docs = fs::read_to_string(root("docs/providers.md")).expect("the page is there");
    for service in services() {
        let line = format!(
            "| {} | {} | {} | {} | {} | {} |",
            service.api,
            service.name,
            service.rows.len(),
            service.without_source(),
            service.oldest(),
            service.places(),
        );
        assert!(docs.contains(&line), "docs/providers.md lacks\n{line}");
    }
}

/// Run by `script/rules-check` only. No other test depends on the current date.
#[test]
#[ignore = "depends on the day; script/rules-check runs it"]
fn the_sources_were_read_within_the_days_that_are_asked_for() {
    let days = std::env::var_os("CONTEXTD_RULES_DAYS").and_then(|days| days.into_string().ok());
    let days = days.expect("script/rules-check sets the number of days");
    let days: i32 = days.parse().expect("a number of days");
    let today = Zoned::now().date();
    eprintln!("{:<18} {:<12} {:>5} {:>15}  oldest", "api", "service", "rows", "without source");
    let mut old = Vec::new();
    for service in services() {
        let oldest = service.oldest();
        eprintln!(
            "{:<18} {:<12} {:>5} {:>15}  {oldest}",
            service.api,
            service.name,
            service.rows.len(),
            service.without_source(),
        );
        let is_old = |row: &&&Row| (today - date(row)).get_days() > days;
        old.extend(service.rows.iter().filter(is_old).map(|row| format!("{} {}: {}", service.api, row.id, row.source)));
    }
    assert!(old.is_empty(), "last read more than {days} days ago: read them again\n{}", old.join("\n"));
}
