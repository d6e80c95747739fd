//! Statements begin with a name, such as `store::commit::turn`, which errors and the database's own
//! views show: it leads to a file of the store.

use super::{assert_clean, files, root, sources};

/// What stands before a statement's name.
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
