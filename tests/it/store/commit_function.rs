//! The statements of the database function that writes a commit, as separate queries, so that their plans can be
//! examined.

use std::{collections::BTreeMap, sync::LazyLock};

use contextd::store::named_parameters::Named;
use regex::{Captures, Regex};

/// The statements of the function.
pub(super) static COMMIT: LazyLock<Vec<Named>> =
    LazyLock::new(|| statements(include_str!("../../../migrations/V2__commit.sql")));

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap()
}

/// The statements in the text that creates the function, with named and typed values in place of arguments and of
/// elements of arguments.
fn statements(text: &str) -> Vec<Named> {
    let within = |from: &str, to: &str| text.split_once(from).unwrap().1.split_once(to).unwrap().0;
    let comment = within("$$\n", "\nbegin\n").replace("\n--", "");
    let elements = regex("[0-9]+ ([a-z_]+)");
    let several: BTreeMap<String, Vec<String>> = regex("(_[a-z]+):((?: [0-9]+ [a-z_]+,?)+)")
        .captures_iter(&comment)
        .map(|it| (it[1].to_owned(), elements.captures_iter(&it[2]).map(|it| it[1].to_owned()).collect()))
        .collect();
    let types: BTreeMap<&str, &str> =
        within("(\n", "\n)").split(',').filter_map(|argument| argument.trim().split_once(' ')).collect();
    let typed = |value: &Captures<'_>| {
        let (name, of) = match value.get(1) {
            Some(argument) => {
                let argument = argument.as_str();
                let at: usize = value[2].parse().unwrap();
                (several[argument][at - 1].clone(), types.get(argument).map(|of| of.trim_end_matches("[]")))
            }
            None => (value[3].to_owned(), types.get(format!("_{}", &value[3]).as_str()).copied()),
        };
        of.map_or_else(|| value[0].to_owned(), |of| format!(":{name}::{of}"))
    };
    let values = regex(r"\b(_[a-z]+)\[([0-9]+)\]|\b_([a-z0-9_]+)");
    let outputs = regex(" into (tool_deadline|totals|enqueued_at)[a-z_, ]*");
    regex(r"(?s)'([a-z_]+)' = any \(_wanted\) then\n(.*?);\n")
        .captures_iter(text)
        .map(|found| {
            let text = outputs.replace(&found[2], "");
            Named::new(&format!("-- store::commit::{}\n{}", &found[1], values.replace_all(&text, typed)))
        })
        .collect()
}

#[test]
fn statements_have_named_and_typed_values() {
    let text = "\
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
    let alone: Vec<String> = statements(text).into_iter().map(|it| it.sql).collect();
    assert_eq!(
        alone,
        [
            "-- store::commit::one\n    insert into one select $1::text, $2::bigint, u.id from unnest($3::text[]) as u(id)\n    returning t.at",
            "-- store::commit::two\n    delete from two where a = $1::text and n = $2::bigint",
        ]
    );
}
