//! The database function that writes a commit. It is parsed from the migration that creates it, for its statements and
//! for the mapping of commit values to its arguments.

use std::{collections::HashMap, error::Error};

use regex::{Captures, Regex};
use tokio_postgres::types::{IsNull, Kind, ToSql, Type, private::BytesMut, to_sql_checked};

use crate::store::{
    named_parameters::{WrongNames, by_place},
    pipeline::{Param, Query},
};

/// The argument with the names of the wanted statements.
const WANTED: &str = "_wanted";
/// A statement, from its name to its end.
const STATEMENT: &str = r"(?s)'([a-z_]+)' = any \(_wanted\) then\n(.*?);\n";
/// A value: an element of an array argument, or an argument.
const VALUE: &str = r"\b(_[a-z]+)\[([0-9]+)\]|\b_([a-z0-9_]+)";
/// The elements of an array argument: number and name of each.
const HOLDS: &str = r"(_[a-z]+):((?: [0-9]+ [a-z_]+,?)+)";
const ELEMENT: &str = r"[0-9]+ ([a-z_]+)";

/// The parsed commit function.
#[derive(Debug)]
pub(super) struct Function {
    /// The query that calls it.
    sql: String,
    /// The index of each value: in the order of the arguments, and within an array argument in the order of its
    /// elements.
    places: HashMap<String, usize>,
    /// Its arguments after the first.
    arguments: Vec<Taken>,
    statements: Vec<Statement>,
}

#[derive(Debug)]
struct Statement {
    name: String,
    /// The indexes of the values it uses.
    places: Vec<usize>,
}

/// The value or values of an argument.
#[derive(Debug)]
enum Taken {
    /// A single named value.
    One(String),
    /// An array of several named values of the same type.
    Several(Type, Vec<String>),
}

impl Taken {
    fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(_, names) => names,
        }
    }
}

/// The arguments of one call of the function.
#[derive(Debug)]
pub(super) struct Arguments<'a> {
    wanted: Vec<&'a str>,
    values: Vec<Argument<'a>>,
}

#[derive(Debug)]
enum Argument<'a> {
    Null,
    One(Param<'a>),
    Several(Packed<'a>),
}

impl Function {
    /// Parses the text that creates the function.
    pub(super) fn read(text: &str) -> Self {
        let within = |from: &str, to: &str| {
            let after = text.split_once(from).map_or("", |(_, after)| after);
            after.split_once(to).map_or("", |(within, _)| within)
        };
        let comment = within("$$\n", "\nbegin\n").replace("\n--", "");
        let holds = |found: Captures<'_>| {
            let names = captures(ELEMENT, &found[2]).map(|it| it[1].to_owned());
            (found[1].to_owned(), names.collect::<Vec<_>>())
        };
        let several: HashMap<String, Vec<String>> = captures(HOLDS, &comment).map(holds).collect();
        let mut arguments = Vec::new();
        let function = within("create function ", "(");
        for argument in within("(\n", "\n)").split(',') {
            let Some((name, of)) = argument.trim().split_once(' ') else {
                continue;
            };
            if name == WANTED || name == "out" {
                continue;
            }
            let taken = if let Some(names) = several.get(name).cloned() {
                Taken::Several(element_type(of.trim_end_matches("[]")), names)
            } else {
                Taken::One(name.trim_start_matches('_').to_owned())
            };
            arguments.push(taken);
        }
        let names = arguments.iter().flat_map(Taken::names).cloned();
        let places: HashMap<String, usize> = names.zip(0..).collect();
        let place = |value: Captures<'_>| places.get(value_name(&value, &several)?).copied();
        let statement = |found: Captures<'_>| {
            let places = captures(VALUE, &found[2]).filter_map(place).collect();
            Statement { name: found[1].to_owned(), places }
        };
        let statements = captures(STATEMENT, text).map(statement).collect();
        let all: Vec<String> = (1..=arguments.len() + 1).map(|n| format!("${n}")).collect();
        Self {
            sql: format!("-- store::commit::commit\nselect * from {function}({})", all.join(", ")),
            places,
            arguments,
            statements,
        }
    }

    /// The names of the wanted statements and the values they use, each of which must be given. Values of other
    /// statements are null.
    pub(super) fn arguments<'a>(
        &'a self,
        values: &[(&'static str, Param<'a>)],
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Arguments<'a>, WrongNames> {
        let place = |name: &str| self.places.get(name).copied();
        let given = by_place(values, self.places.len(), place)?;
        let wanted = self.statements.iter().filter(|it| is_wanted(&it.name));
        let mut needed = vec![false; given.len()];
        for place in wanted.clone().flat_map(|it| &it.places) {
            needed[*place] = true;
        }
        let mut all = given.into_iter().zip(needed);
        let mut value = |name: &String| match all.next() {
            Some((Some(value), true)) => Ok(Some(value)),
            Some((_, false)) => Ok(None),
            Some((None, true)) | None => Err(WrongNames::Missing(name.clone())),
        };
        let argument = |argument: &Taken| {
            Ok(match argument {
                Taken::One(name) => value(name)?.map_or(Argument::Null, Argument::One),
                Taken::Several(element, names) => {
                    let values: Vec<_> = names.iter().map(&mut value).collect::<Result<_, _>>()?;
                    match values.iter().any(Option::is_some) {
                        true => Argument::Several(Packed { element: element.clone(), values }),
                        false => Argument::Null,
                    }
                }
            })
        };
        Ok(Arguments {
            values: self.arguments.iter().map(argument).collect::<Result<_, _>>()?,
            wanted: wanted.map(|it| it.name.as_str()).collect(),
        })
    }

    /// The query that calls the function.
    pub(super) fn call<'q>(&'static self, arguments: &'q Arguments<'q>) -> Query<'q> {
        let value = |argument: &'q Argument<'q>| match argument {
            Argument::Null => &Null as Param<'q>,
            Argument::One(value) => *value,
            Argument::Several(packed) => packed as Param<'q>,
        };
        let first = &arguments.wanted as Param<'q>;
        let all = [first].into_iter().chain(arguments.values.iter().map(value));
        Query::new(&self.sql, all.collect::<Vec<_>>())
    }
}

/// The name of a value: of an argument, or of an element of one.
fn value_name<'n>(value: &'n Captures<'_>, several: &'n HashMap<String, Vec<String>>) -> Option<&'n str> {
    match (value.get(1), value.get(2), value.get(3)) {
        (Some(argument), Some(number), _) => {
            let at = number.as_str().parse::<usize>().ok()?.checked_sub(1)?;
            several.get(argument.as_str())?.get(at).map(String::as_str)
        }
        (_, _, name) => name.map(|name| name.as_str()),
    }
}

/// The PostgreSQL type with this name.
fn element_type(name: &str) -> Type {
    match name {
        "smallint" => Type::INT2,
        "int" => Type::INT4,
        "bigint" => Type::INT8,
        "boolean" => Type::BOOL,
        "float8" => Type::FLOAT8,
        "timestamptz" => Type::TIMESTAMPTZ,
        "bytea" => Type::BYTEA,
        _ => Type::TEXT,
    }
}

fn captures<'t>(pattern: &str, text: &'t str) -> impl Iterator<Item = Captures<'t>> {
    let all: Vec<Captures<'t>> = match Regex::new(pattern) {
        Ok(pattern) => pattern.captures_iter(text).collect(),
        Err(_) => Vec::new(), // cannot happen: the patterns above are valid
    };
    all.into_iter()
}

/// A null of any type.
#[derive(Debug)]
struct Null;

impl ToSql for Null {
    fn to_sql(&self, _: &Type, _: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        Ok(IsNull::Yes)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// Values of one type as an array.
#[derive(Debug)]
struct Packed<'a> {
    element: Type,
    values: Vec<Option<Param<'a>>>,
}

impl ToSql for Packed<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        // Header: one dimension; may contain nulls; element type; number of elements; lower bound.
        out.extend_from_slice(&1_i32.to_be_bytes());
        out.extend_from_slice(&1_i32.to_be_bytes());
        out.extend_from_slice(&self.element.oid().to_be_bytes());
        out.extend_from_slice(&i32::try_from(self.values.len())?.to_be_bytes());
        out.extend_from_slice(&1_i32.to_be_bytes());
        for value in &self.values {
            let begin = out.len();
            out.extend_from_slice(&(-1_i32).to_be_bytes()); // the length of a null
            let Some(value) = value else { continue };
            if matches!(value.to_sql_checked(&self.element, out)?, IsNull::No) {
                let length = i32::try_from(out.len() - begin - size_of::<i32>())?;
                out[begin..begin + size_of::<i32>()].copy_from_slice(&length.to_be_bytes());
            }
        }
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        matches!(of.kind(), Kind::Array(_))
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::statement::only_reads;

    const TEXT: &str = "\
create function take_1(
  _wanted text[], _texts text[], _bigs bigint[], _ids text[],
  out at timestamptz
) language plpgsql as $$
-- _texts: 1 a,
-- 2 b
-- _bigs: 1 n
begin
  -- one: it says
  if 'one' = any (_wanted) then
    insert into one select _texts[1], _bigs[1], u.id from unnest(_ids) as u(id)
    returning t.at into enqueued_at, expires_at;

  -- two
  elsif 'two' = any (_wanted) then
    delete from two where a = _texts[2] and n = _bigs[1];
  end if;
end $$;
";

    #[test]
    fn the_text_says_what_it_is_called_with_and_which_values_its_statements_use() {
        let function = Function::read(TEXT);
        assert_eq!(function.sql, "-- store::commit::commit\nselect * from take_1($1, $2, $3, $4)");
        let places = |name: &str| function.places[name];
        let statements: Vec<_> = function.statements.iter().map(|it| (it.name.as_str(), it.places.clone())).collect();
        let expected =
            [("one", vec![places("a"), places("n"), places("ids")]), ("two", vec![places("b"), places("n")])];
        assert_eq!(statements, expected);
    }

    #[test]
    fn values_of_one_type_are_sent_together_and_wrong_names_are_refused() {
        let function = Box::leak(Box::new(Function::read(TEXT)));
        let (n, ids) = (7_i64, vec!["x"]);
        let all = [("b", &None::<&str> as Param<'_>), ("n", &n), ("ids", &ids), ("a", &"A")];
        let arguments = function.arguments(&all, |name| name == "two").unwrap();
        let sent = function.call(&arguments).params;
        let bytes = |at: usize, of: &Type| {
            let mut out = BytesMut::new();
            sent[at].to_sql_checked(of, &mut out).unwrap();
            out.to_vec()
        };
        let array = |of: &Type, length: u8, elements: &[u8]| {
            let head = [1_u32, 1, of.oid(), length.into(), 1].map(u32::to_be_bytes);
            [head.concat(), elements.to_vec()].concat()
        };
        // No wanted statement uses `a`, and `b` is null.
        let texts = [255; 8];
        assert_eq!(bytes(1, &Type::TEXT_ARRAY), array(&Type::TEXT, 2, &texts));
        let numbers = [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7];
        assert_eq!(bytes(2, &Type::INT8_ARRAY), array(&Type::INT8, 1, &numbers));
        let none = sent[3].to_sql_checked(&Type::TEXT_ARRAY, &mut BytesMut::new());
        assert!(matches!(none.unwrap(), IsNull::Yes), "nobody asks for `ids`");
        assert_eq!(sent.len(), 4);

        let check = |values: &[(&'static str, Param<'_>)], expected: WrongNames| {
            let refused = function.arguments(values, |_| true).unwrap_err();
            assert_eq!(refused, expected);
        };
        check(&all[1..], WrongNames::Missing("b".to_owned()));
        check(&[("c", &n)], WrongNames::Unknown("c".to_owned()));
        check(&[("n", &n), ("n", &n)], WrongNames::Twice("n".to_owned()));
    }

    #[test]
    fn each_statement_within_a_group_is_named_by_the_group() {
        let text = include_str!("../../../migrations/V2__commit.sql");
        let mut grouped = 0;
        for group in text.split("  if _wanted && array[").skip(1) {
            let (names, rest) = group.split_once("] then\n").unwrap();
            let (within, _) = rest.split_once("\n  end if;").unwrap();
            let statements = captures(STATEMENT, within);
            let statements: Vec<String> = statements.map(|it| format!("'{}'", &it[1])).collect();
            let names: Vec<&str> = names.split(',').map(str::trim).collect();
            assert_eq!(names, statements);
            grouped += statements.len();
        }
        let all = Function::read(text).statements.len();
        assert!(grouped > 30 && grouped < all, "{grouped} of {all}");
    }

    #[test]
    fn a_call_is_a_write_which_is_never_cancelled() {
        let text = include_str!("../../../migrations/V2__commit.sql");
        assert!(!only_reads(&Function::read(text).sql));
    }
}
