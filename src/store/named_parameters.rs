//! Statements whose parameters have names in the text: `:epoch` is sent as `$n`. What several
//! statements have in common is a fragment: `{accepted}` stands for the text of `sql/fragments/accepted.sql`.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::Row;

use super::{
    Database, Error,
    pipeline::{Param, Query},
};

/// A statement as PostgreSQL takes it, with the names of its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The text with `$1`, `$2` and so on in place of the names.
    pub sql: String,
    /// The name of each parameter, that of `$1` first: the order in which they first appear.
    pub names: Vec<String>,
}

/// The values for a statement's parameters do not have the names of its parameters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongNames {
    /// The statement has a parameter without a value.
    #[error("no value is given for the parameter :{0}")]
    Missing(String),
    /// A value has a name that is no parameter of the statement.
    #[error("the statement has no parameter :{0}")]
    Unknown(String),
    /// Two values have the same name.
    #[error("two values are given for the parameter :{0}")]
    Twice(String),
}

/// The texts that statements share, by name.
macro_rules! fragments {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("sql/fragments/", $name, ".sql")))),+]
    };
}

const FRAGMENTS: &[(&str, &str)] = &fragments![
    "accept",
    "accepted",
    "all_after",
    "all_before",
    "anchor_before",
    "anchor_columns",
    "compacted_by",
    "compaction_columns",
    "compactions_known",
    "counter_columns",
    "event_totals",
    "holder",
    "in_force",
    "item_part",
    "live",
    "live_after",
    "live_before",
    "made_for",
    "media_part",
    "message_bytes",
    "message_columns",
    "message_parts",
    "model_dependent",
    "more_waits",
    "pruned_seq_at",
    "queued_columns",
    "reasoning_part",
    "session_columns",
    "session_page",
    "tenant_lives",
    "tokens_at",
    "turn_columns",
    "turn_spent",
    "turn_totals",
    "usage_added",
    "used_in_time",
];

impl Named {
    /// Resolves the fragments and the names in a text.
    pub fn new(text: &str) -> Self {
        Self::resolve(&expand(text))
    }

    /// Resolves the names in a text. A name is a colon, a lowercase letter or underscore, then such
    /// characters and digits. Casts (`::int`), strings, quoted names and comments are left as
    /// they are.
    fn resolve(text: &str) -> Self {
        let mut sql = String::with_capacity(text.len());
        let mut names = Vec::<String>::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (token, after) = rest.split_at(token_length(rest));
            rest = after;
            let Some(name) = parameter(token) else {
                sql.push_str(token);
                continue;
            };
            let known = names.iter().position(|known| known == name);
            let position = known.unwrap_or(names.len());
            if known.is_none() {
                names.push(name.to_owned());
            }
            sql.push_str(&format!("${}", position + 1));
        }
        Self { sql, names }
    }

    /// What its first line calls it: `store::commit::turn`.
    pub fn name(&self) -> &str {
        let line = self
            .sql
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("-- ");
        line.split_once(": ").map_or(line, |(name, _)| name)
    }

    /// The statement by itself with its values.
    pub(super) fn query<'a>(
        &'static self,
        values: &[(&'static str, Param<'a>)],
    ) -> Result<Query<'a>, WrongNames> {
        let mut queries = queries(std::slice::from_ref(self), values, |_| true)?;
        queries.pop().ok_or(WrongNames::Missing(String::new()))
    }

    fn bind<'a>(&self, values: &BTreeMap<&str, Param<'a>>) -> Result<Vec<Param<'a>>, WrongNames> {
        let value = |name: &String| {
            values
                .get(name.as_str())
                .copied()
                .ok_or_else(|| WrongNames::Missing(name.clone()))
        };
        self.names.iter().map(value).collect()
    }
}

impl Database {
    /// Runs one statement outside of a transaction.
    pub(super) async fn read_named(
        &self,
        statement: &'static Named,
        values: &[(&'static str, Param<'_>)],
    ) -> Result<Vec<Row>, Error> {
        let query = statement.query(values)?;
        self.read(query.sql, &query.params).await
    }
}

/// The statements of a transition that are needed, with their values. Each parameter needs a value,
/// and each value a parameter in one of the statements, needed or not.
pub(super) fn queries<'a>(
    statements: &'static [Named],
    values: &[(&'static str, Param<'a>)],
    is_needed: impl Fn(&str) -> bool,
) -> Result<Vec<Query<'a>>, WrongNames> {
    let known: BTreeSet<&str> = statements
        .iter()
        .flat_map(|statement| &statement.names)
        .map(String::as_str)
        .collect();
    let mut given = BTreeMap::new();
    for (name, value) in values {
        if !known.contains(name) {
            return Err(WrongNames::Unknown((*name).to_owned()));
        }
        if given.insert(*name, *value).is_some() {
            return Err(WrongNames::Twice((*name).to_owned()));
        }
    }
    let needed = statements
        .iter()
        .filter(|statement| is_needed(statement.name()));
    needed
        .map(|statement| Ok(Query::new(&statement.sql, statement.bind(&given)?)))
        .collect()
}

impl From<WrongNames> for Error {
    fn from(error: WrongNames) -> Self {
        Self::Corrupt(error.to_string())
    }
}

/// The text with each fragment in place of its name. A name that is not known is left as it is.
fn expand(text: &str) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (token, after) = rest.split_at(token_length(rest));
        rest = after;
        match fragment(token) {
            Some(text) => expanded.push_str(&expand(text.trim_end())),
            None => expanded.push_str(token),
        }
    }
    expanded
}

/// The text of a token that is the name of a fragment.
fn fragment(token: &str) -> Option<&'static str> {
    let name = token.strip_prefix('{')?.strip_suffix('}')?;
    let known = FRAGMENTS.iter().find(|(known, _)| *known == name);
    known.map(|(_, text)| *text)
}

/// The name of a token that is a parameter.
fn parameter(token: &str) -> Option<&str> {
    token
        .strip_prefix(':')
        .filter(|name| name.starts_with(is_name_start))
}

fn is_name_start(character: char) -> bool {
    character.is_ascii_lowercase() || character == '_'
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_' || character == '$'
}

/// How many bytes the first token of a text has; the text is not empty.
fn token_length(text: &str) -> usize {
    let word = |from: usize| from + length_while(&text[from..], is_word);
    let first = text.chars().next().unwrap_or_default();
    match first {
        '-' if text.starts_with("--") => text.find('\n').unwrap_or(text.len()),
        '/' if text.starts_with("/*") => block_comment_length(text),
        'e' | 'E' if text[1..].starts_with('\'') => 1 + quoted_length(&text[1..], true),
        '\'' | '"' => quoted_length(text, false),
        '$' => dollar_quoted_length(text).unwrap_or(1),
        ':' if text.starts_with("::") => 2,
        ':' if text[1..].starts_with(is_name_start) => {
            1 + length_while(&text[1..], |it| is_name_start(it) || it.is_ascii_digit())
        }
        '{' => text.find('}').map_or(1, |end| end + 1),
        _ if is_word(first) => word(0),
        _ => first.len_utf8(),
    }
}

fn length_while(text: &str, holds: impl Fn(char) -> bool) -> usize {
    text.find(|character| !holds(character))
        .unwrap_or(text.len())
}

/// Of a string or a quoted name, both quotes included. A doubled quote begins the next one, which
/// reads the same.
fn quoted_length(text: &str, backslash_escapes: bool) -> usize {
    let quote = text.chars().next();
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if backslash_escapes && character == '\\' {
            escaped = true;
        } else if Some(character) == quote {
            return at + 1;
        }
    }
    text.len()
}

/// Of `$tag$ .. $tag$`; `None` for any other dollar sign.
fn dollar_quoted_length(text: &str) -> Option<usize> {
    let name = length_while(&text[1..], |character| {
        is_word(character) && character != '$'
    });
    let tag = text.get(..name + 2).filter(|tag| {
        tag.ends_with('$') && !tag[1..].starts_with(|it: char| it.is_ascii_digit())
    })?;
    Some(
        text[tag.len()..]
            .find(tag)
            .map_or(text.len(), |at| at + 2 * tag.len()),
    )
}

/// Of a comment that may hold others.
fn block_comment_length(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, sql: &str, names: &[&str]) {
        let named = Named::new(text);
        assert_eq!(
            (named.sql.as_str(), named.names),
            (sql, names.iter().map(|it| (*it).to_owned()).collect())
        );
    }

    #[test]
    fn a_name_becomes_the_same_number_wherever_it_appears() {
        check(
            "select :a, :b_2, :a + :c",
            "select $1, $2, $1 + $3",
            &["a", "b_2", "c"],
        );
        check("(:a)[1],:b::int[]", "($1)[1],$2::int[]", &["a", "b"]);
        check(":epoch and :epochs", "$1 and $2", &["epoch", "epochs"]);
        check("", "", &[]);
        check("select 1", "select 1", &[]);
    }

    #[test]
    fn casts_strings_quoted_names_and_comments_have_no_parameters() {
        for text in [
            "x::text[]",
            "a[1:2]",
            "x := 1",
            "'12:30 :a'",
            "'it''s :a'",
            r"E'it\'s :a'",
            r"'\'",
            "\":a\"",
            "-- as :a\nselect",
            "/* :a /* :b */ :c */ 1",
            "$$ :a $$",
            "$body$ :a $$ :b $body$",
            "'unfinished :a",
            "/* unfinished :a",
            "$1 :",
            ": a",
            ":1",
            "ü:Ü",
        ] {
            check(text, text, &[]);
        }
    }

    #[test]
    fn a_parameter_after_what_has_none_is_found() {
        for before in [
            "'12:30'",
            "'it''s'",
            r"E'it\'s'",
            r"'\'",
            "\"q\"",
            "-- c\n",
            "/* /* */ */",
            "$$ $$",
            "$a$ $$ $a$",
            "x::int",
            "like'x'",
        ] {
            check(&format!("{before} :a"), &format!("{before} $1"), &["a"]);
            check(&format!("{before}:a"), &format!("{before}$1"), &["a"]);
        }
    }

    #[test]
    fn a_fragment_stands_in_place_of_its_name() {
        let holder = Named::new("select {tokens_at} or :op");
        let text = "case when p.pruned_at_seq <= $1 then p.tokens else coalesce(h.tokens, p.original_tokens, p.tokens) end";
        assert_eq!(holder.sql, format!("select {text} or $2"));
        for text in ["'{accepted}'", "-- {accepted}", "{unknown}", "{", "{}"] {
            assert_eq!(Named::new(text).sql, text);
        }
    }

    #[test]
    fn values_are_put_in_the_order_of_the_parameters_and_wrong_names_are_refused() {
        let text = [
            "-- one: it says\nselect :b, :a, :b",
            "-- two\nselect :a",
            "-- unneeded\nselect :c",
        ];
        let statements: &'static [Named] = text.map(Named::new).to_vec().leak();
        let bind = |values: &[(&'static str, Param<'_>)]| {
            let bound = queries(statements, values, |name| name != "unneeded")?;
            Ok(bound
                .iter()
                .map(|query| format!("{:?}", query.params))
                .collect::<Vec<_>>())
        };
        let one = 1_i32;
        let two = 2_i32;
        assert_eq!(
            bind(&[("a", &one), ("b", &two)]),
            Ok(vec!["[2, 1]".to_owned(), "[1]".to_owned()])
        );
        assert_eq!(
            bind(&[("a", &one), ("c", &two)]),
            Err(WrongNames::Missing("b".to_owned()))
        );
        assert_eq!(
            bind(&[("a", &one), ("b", &two), ("d", &one)]),
            Err(WrongNames::Unknown("d".to_owned()))
        );
        assert_eq!(
            bind(&[("a", &one), ("b", &two), ("a", &one)]),
            Err(WrongNames::Twice("a".to_owned()))
        );
        assert_eq!(
            statements.iter().map(Named::name).collect::<Vec<_>>(),
            ["one", "two", "unneeded"]
        );
    }
}
