//! SQL statements with named parameters: `:epoch` is sent as `$n`. Text shared by several statements is a fragment:
//! `{live}` is replaced by the text with that name in `sql/fragments.sql`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use regex::Regex;
use tokio_postgres::Row;

use super::{
    Database, Error,
    pipeline::{Param, Query},
};

/// The beginning of a statement's first line.
const HEADER: &str = "-- store::";

/// A statement in PostgreSQL's syntax, with the names of its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The text with `$1`, `$2` and so on in place of the names.
    pub sql: String,
    /// The names of `$1`, `$2` and so on, in the order of their first use.
    pub names: Vec<String>,
}

/// The given values do not match the parameters of a statement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongNames {
    /// A parameter of the statement has no value.
    #[error("no value is given for the parameter :{0}")]
    Missing(String),
    /// The statement has no parameter with the name of a value.
    #[error("the statement has no parameter :{0}")]
    Unknown(String),
    /// Two values have the same name.
    #[error("two values are given for the parameter :{0}")]
    Twice(String),
}

/// The shared texts, by name.
static FRAGMENTS: LazyLock<BTreeMap<&'static str, &'static str>> =
    LazyLock::new(|| fragments(include_str!("sql/fragments.sql")));

/// Splits the file into fragments. The name of each fragment is on a separate line.
fn fragments(text: &str) -> BTreeMap<&str, &str> {
    let after_names = text.split("\n-- {").skip(1);
    after_names.filter_map(|rest| rest.split_once("}\n")).collect()
}

impl Named {
    /// Parses texts with several statements, each of which begins with a line that names it.
    pub(super) fn all(texts: &[&str]) -> Vec<Self> {
        let split = |text: &&str| {
            let begins = text.match_indices(HEADER).map(|(at, _)| at);
            let begins: Vec<usize> = begins.filter(|at| *at == 0 || text[..*at].ends_with('\n')).collect();
            let ends = begins.iter().skip(1).copied().chain([text.len()]);
            begins.iter().zip(ends).map(|(begin, end)| Self::new(text[*begin..end].trim_end())).collect::<Vec<_>>()
        };
        texts.iter().flat_map(split).collect()
    }

    /// Parses a statement: expands its fragments and replaces its named parameters.
    pub fn new(text: &str) -> Self {
        Self::resolve(&expand(text))
    }

    /// Replaces the named parameters. A name is a colon, a lowercase letter or underscore, and then lowercase letters,
    /// underscores and digits. Casts (`::int`), strings, quoted names and comments are left unchanged.
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

    /// Returns the name in its first line, such as `store::commit::turn`.
    pub fn name(&self) -> &str {
        let line = self.sql.lines().next().unwrap_or_default().trim_start_matches("-- ");
        line.split_once(": ").map_or(line, |(name, _)| name)
    }

    /// Binds values to the statement.
    pub(super) fn query<'a>(&'static self, values: &[(&'static str, Param<'a>)]) -> Result<Query<'a>, WrongNames> {
        let mut queries = queries(std::slice::from_ref(self), values)?;
        queries.pop().ok_or(WrongNames::Missing(String::new()))
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

/// Binds values to statements that are sent together. Each parameter needs a value, and each value must be a parameter
/// of at least one statement.
pub(super) fn queries<'a>(
    statements: &'static [Named],
    values: &[(&'static str, Param<'a>)],
) -> Result<Vec<Query<'a>>, WrongNames> {
    let names = statements.iter().flat_map(|statement| &statement.names);
    let names: BTreeSet<&str> = names.map(String::as_str).collect();
    let place = |name: &str| names.iter().position(|known| *known == name);
    let given = by_place(values, names.len(), place)?;
    let value = |name: &String| {
        let missing = || WrongNames::Missing(name.clone());
        place(name).and_then(|at| given[at]).ok_or_else(missing)
    };
    let bound = statements.iter().map(|statement| {
        let params: Result<Vec<_>, _> = statement.names.iter().map(value).collect();
        Ok(Query::new(&statement.sql, params?))
    });
    bound.collect()
}

/// Orders values by the index of their parameters.
pub(super) fn by_place<'a>(
    values: &[(&'static str, Param<'a>)],
    places: usize,
    place: impl Fn(&str) -> Option<usize>,
) -> Result<Vec<Option<Param<'a>>>, WrongNames> {
    let mut given = vec![None; places];
    for (name, value) in values {
        let place = place(name).ok_or_else(|| WrongNames::Unknown((*name).to_owned()))?;
        if given[place].replace(*value).is_some() {
            return Err(WrongNames::Twice((*name).to_owned()));
        }
    }
    Ok(given)
}

impl From<WrongNames> for Error {
    fn from(error: WrongNames) -> Self {
        Self::Corrupt(error.to_string())
    }
}

/// Expands fragments recursively. An unknown name is left unchanged.
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

/// The text of the fragment, if the token is the name of one.
fn fragment(token: &str) -> Option<&'static str> {
    let name = token.strip_prefix('{')?.strip_suffix('}')?;
    FRAGMENTS.get(name).copied()
}

/// The name of the parameter, if the token is one.
fn parameter(token: &str) -> Option<&str> {
    token.strip_prefix(':').filter(|name| name.starts_with(|character: char| character != ':'))
}

/// Tokens that a regular expression describes: a comment to the end of its line, a string with backslash escapes, a
/// string, a quoted name, a cast, a parameter, a fragment, and a word. A doubled quote is read as the start of another
/// string, which has the same result.
const TOKEN: &str =
    r#"(?s)^(?:--[^\n]*|[eE]'(?:\\.|[^'\\])*'?|'[^']*'?|"[^"]*"?|::|:[a-z_][a-z0-9_]*|\{[^}]*\}|[\w$]+)"#;
/// The tag before and after a dollar-quoted text.
const TAG: &str = r"^\$(?:[^\W\d]\w*)?\$";

/// Length of the first token of a text in bytes. The text must not be empty.
fn token_length(text: &str) -> usize {
    static TOKENS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(TOKEN).ok());
    let token = match text.chars().next() {
        Some('/') if text.starts_with("/*") => Some(block_comment_length(text)),
        Some('$') => dollar_quoted_length(text),
        _ => TOKENS.as_ref().and_then(|tokens| tokens.find(text)).map(|token| token.end()),
    };
    token.or_else(|| text.chars().next().map(char::len_utf8)).unwrap_or_default()
}

/// Length of `$tag$ .. $tag$`. Returns `None` for any other dollar sign.
fn dollar_quoted_length(text: &str) -> Option<usize> {
    static TAGS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(TAG).ok());
    let tag = TAGS.as_ref()?.find(text)?.as_str();
    Some(text[tag.len()..].find(tag).map_or(text.len(), |at| at + 2 * tag.len()))
}

/// Length of a comment that may contain nested comments.
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
        assert_eq!((named.sql.as_str(), named.names), (sql, names.iter().map(|it| (*it).to_owned()).collect()));
    }

    #[test]
    fn a_name_becomes_the_same_number_wherever_it_appears() {
        check("select :a, :b_2, :a + :c", "select $1, $2, $1 + $3", &["a", "b_2", "c"]);
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
        let text =
            "case when p.pruned_at_seq <= $1 then p.tokens else coalesce(h.tokens, p.original_tokens, p.tokens) end";
        assert_eq!(holder.sql, format!("select {text} or $2"));
        for text in ["'{accepted}'", "-- {accepted}", "{unknown}", "{", "{}"] {
            assert_eq!(Named::new(text).sql, text);
        }
    }

    #[test]
    fn values_are_put_in_the_order_of_the_parameters_and_wrong_names_are_refused() {
        let text = ["-- one: it says\nselect :b, :a, :b", "-- two\nselect :a"];
        let statements: &'static [Named] = text.map(Named::new).to_vec().leak();
        let bind = |values: &[(&'static str, Param<'_>)]| {
            let bound = queries(statements, values)?;
            Ok(bound.iter().map(|query| format!("{:?}", query.params)).collect::<Vec<_>>())
        };
        let one = 1_i32;
        let two = 2_i32;
        assert_eq!(bind(&[("a", &one), ("b", &two)]), Ok(vec!["[2, 1]".to_owned(), "[1]".to_owned()]));
        assert_eq!(bind(&[("a", &one)]), Err(WrongNames::Missing("b".to_owned())));
        assert_eq!(bind(&[("a", &one), ("b", &two), ("d", &one)]), Err(WrongNames::Unknown("d".to_owned())));
        assert_eq!(bind(&[("a", &one), ("b", &two), ("a", &one)]), Err(WrongNames::Twice("a".to_owned())));
        assert_eq!(statements.iter().map(Named::name).collect::<Vec<_>>(), ["one", "two"]);
    }
}
