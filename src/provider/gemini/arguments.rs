//! Assembles the arguments of a call that are streamed in pieces, each a value with its JSON path.

use serde_json::{Map, Value};

use super::wire::PartialArg;
use crate::provider::http::lenient::{self, Piece};

/// Limit on the segments of a path.
const MAX_STEPS: usize = 64;

/// Arguments that are still streaming.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    object: Map<String, Value>,
    /// Bytes of the pieces received so far.
    bytes: usize,
    /// A piece could not be inserted at its path.
    broken: bool,
}

/// A segment of a path. `$.list[2].name` has three.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

impl Arguments {
    /// Adds a piece: appends it to the text at its path, or inserts it as a new value.
    pub(super) fn add(&mut self, piece: &PartialArg) {
        self.bytes = self.bytes.saturating_add(size(piece));
        let Some(value) = value(piece) else { return };
        let steps = steps(&piece.json_path.0);
        let place = steps.and_then(|steps| {
            let (Step::Key(first), rest) = steps.split_first()? else {
                return None;
            };
            let begin = self.object.entry(first.as_str()).or_insert(Value::Null);
            rest.iter().try_fold(begin, inside)
        });
        match (place, value) {
            (Some(Value::String(text)), Value::String(more)) => text.push_str(&more),
            (Some(place), value) => *place = value,
            (None, _) => self.broken = true,
        }
    }

    /// Bytes of the pieces received so far, their paths included.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The arguments as JSON. If they are not `complete`, the text is not a valid object, so that
    /// the call is never run.
    pub(super) fn json(self, complete: bool) -> String {
        let mut json = Value::Object(self.object).to_string();
        if !complete || self.broken {
            json.pop();
        }
        json
    }
}

fn size(piece: &PartialArg) -> usize {
    let text = piece.string_value.as_ref().map_or(0, Piece::len);
    let others = [&piece.number_value, &piece.bool_value, &piece.null_value];
    let others = others.into_iter().flatten().map(|raw| raw.get().len());
    piece.json_path.0.len() + text + others.sum::<usize>()
}

/// The value of a piece. Returns `None` if it has none.
fn value(piece: &PartialArg) -> Option<Value> {
    let text = piece.string_value.as_ref();
    let text = text.map(|text| Value::String(text.whole().text));
    let other = piece.number_value.as_ref().or(piece.bool_value.as_ref());
    let null = piece.null_value.as_ref().map(|_| Value::Null);
    text.or_else(|| lenient::value(other?.get())).or(null)
}

/// Descends one segment. Creates the value if there is none yet. Returns `None` if the existing
/// value has another type.
fn inside<'a>(value: &'a mut Value, step: &Step) -> Option<&'a mut Value> {
    if value.is_null() {
        *value = match step {
            Step::Key(_) => Value::Object(Map::new()),
            Step::Index(_) => Value::Array(Vec::new()),
        };
    }
    match (value, step) {
        (Value::Object(object), Step::Key(key)) => Some(object.entry(key.as_str()).or_insert(Value::Null)),
        (Value::Array(list), Step::Index(index)) => {
            if *index == list.len() {
                list.push(Value::Null);
            }
            list.get_mut(*index)
        }
        (_, _) => None,
    }
}

/// The segments of a path such as `$.a.b[0]['c d']`. Returns `None` if the path is invalid or too
/// long.
fn steps(path: &str) -> Option<Vec<Step>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, after) = step(rest)?;
        rest = after;
        steps.push(step);
        if steps.len() > MAX_STEPS {
            return None;
        }
    }
    Some(steps)
}

fn step(rest: &str) -> Option<(Step, &str)> {
    if let Some(name) = rest.strip_prefix('.') {
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (name, after) = name.split_at(end);
        return Some((Step::Key(name.to_owned()), after));
    }
    let inner = rest.strip_prefix('[')?;
    for quote in ['\'', '"'] {
        if let Some(quoted) = inner.strip_prefix(quote) {
            let (name, after) = quoted.split_once(&format!("{quote}]"))?;
            return Some((Step::Key(name.to_owned()), after));
        }
    }
    let (index, after) = inner.split_once(']')?;
    Some((Step::Index(index.parse().ok()?), after))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(pieces: Value, complete: bool, expected: &str) {
        let pieces: Vec<PartialArg> = serde_json::from_str(&pieces.to_string()).expect("pieces");
        let mut arguments = Arguments::default();
        pieces.iter().for_each(|piece| arguments.add(piece));
        assert_eq!(arguments.json(complete), expected);
    }

    #[test]
    fn pieces_are_put_where_their_paths_say() {
        check(json!([]), true, "{}");
        check(
            json!([
                {"jsonPath": "$.id", "stringValue": "A", "willContinue": true},
                {"jsonPath": "$.id", "stringValue": "bc"},
                {"jsonPath": "$.list[0].on", "boolValue": true},
                {"jsonPath": "$.list[1]['a b']", "numberValue": 1.5},
                {"jsonPath": "$.none", "nullValue": "NULL_VALUE"},
            ]),
            true,
            r#"{"id":"Abc","list":[{"on":true},{"a b":1.5}],"none":null}"#,
        );
    }

    #[test]
    fn arguments_that_are_cut_off_or_cannot_be_placed_are_no_object() {
        let one = json!([{"jsonPath": "$.id", "stringValue": "A"}]);
        check(one, false, r#"{"id":"A""#);
        for path in ["id", "$[0]", "$", "$.a[7]", "$.a[99999999999999999999]", "$.a['b"] {
            let pieces = json!([{"jsonPath": path, "numberValue": 1}]);
            let pieces: Vec<PartialArg> = serde_json::from_str(&pieces.to_string()).expect("pieces");
            let mut arguments = Arguments::default();
            pieces.iter().for_each(|piece| arguments.add(piece));
            let json = arguments.json(true);
            assert!(serde_json::from_str::<Value>(&json).is_err(), "{path}");
        }
    }
}
