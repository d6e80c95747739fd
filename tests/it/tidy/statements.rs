//! Statements start with a name, such as `store::commit::turn`, which errors and the database's views show. The name
//! must refer to a file of the store.

use super::{assert_clean, files, root, sources};

/// The prefix of a statement's name.
const HEADER: &str = "-- store::";

#[test]
fn statements_are_named_after_files_of_the_store() {
    let mut statements = files("src/store", "sql");
    statements.extend(sources("src/store"));
    assert_clean(&statements, lost_names);
}

fn lost_names(_: &str, text: &str) -> Vec<String> {
    let modules = text.split(HEADER).skip(1).filter_map(|rest| {
        let (module, _) = rest.split_once("::")?;
        let is_name = module.chars().all(|c| c == '_' || c.is_alphanumeric());
        is_name.then_some(module)
    });
    modules
        .filter(|module| !root().join(format!("src/store/{module}.rs")).exists())
        .map(|module| format!("a statement is named after store/{module}.rs, which does not exist"))
        .collect()
}

#[test]
fn a_statement_named_after_a_file_that_is_gone_is_caught() {
    let caught = |text| lost_names("src/store/sql/a.sql", text).len();
    assert_eq!(caught("-- store::gone::find: a session\nselect 1"), 1);
    assert_eq!(caught("-- store::commit::turn\nselect 1"), 0);
    assert_eq!(caught("select 1"), 0);
}

/// Decisions are made in Rust: a statement changes rows of one table and only reads the others.
#[test]
fn no_statement_changes_rows_on_the_way_to_others() {
    let mut statements = files("src/store", "sql");
    statements.extend(sources("src/store"));
    // The tests of this file contain such a statement.
    statements.retain(|(path, _)| path != "src/store/statement.rs");
    assert_clean(&statements, changes_on_the_way);
}

fn changes_on_the_way(_: &str, text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ").replace("( ", "(");
    let changes = ["insert into", "update", "delete from"];
    let openings = ["as", "materialized"].map(|opening| changes.map(|change| format!("{opening} ({change} ")));
    openings
        .into_iter()
        .flatten()
        .filter(|opening| text.contains(opening))
        .map(|opening| format!("`{opening}...)` changes rows on the way to others"))
        .collect()
}

#[test]
fn a_statement_that_changes_rows_on_the_way_to_others_is_caught() {
    let caught = |text| changes_on_the_way("src/store/sql/a.sql", text).len();
    assert_eq!(caught("with gone as (\n  delete from a returning 1)\nselect count(*) from gone"), 1);
    assert_eq!(caught("with n as not materialized (update a set b = 1 returning b) select b from n"), 1);
    assert_eq!(caught("delete from a using (select b from c for update) d where a.b = d.b"), 0);
}
