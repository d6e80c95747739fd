//! Tests for the choice of pending migrations, the header lines of a file, and statements that migrations must not
//! contain.

use super::*;

/// A migration of this program.
fn file(version: i32) -> File {
    File {
        version,
        name: format!("m{version}"),
        checksum: version.to_string(),
        sql: String::new(),
        oldest_program: version,
        mode: Mode::Transaction,
    }
}

/// The same migration as recorded in a database.
fn row(version: i32, oldest_program: impl Into<Option<i32>>) -> Applied {
    Applied { version, checksum: version.to_string(), oldest_program: oldest_program.into() }
}

fn versions(known: &[i32], found: &[Applied]) -> Result<Vec<i32>, String> {
    let files = known.iter().copied().map(file).collect();
    pending(files, found).map(|files| files.iter().map(|file| file.version).collect())
}

#[test]
fn migrations_that_a_database_lacks_are_pending() {
    assert_eq!(versions(&[1, 3, 7], &[]), Ok(vec![1, 3, 7]));
    assert_eq!(versions(&[1, 3, 7], &[row(1, None), row(3, 1)]), Ok(vec![7]));
    assert_eq!(versions(&[1, 3], &[row(1, None), row(3, 1)]), Ok(vec![]));
}

#[test]
fn a_newer_schema_is_served_by_programs_down_to_its_oldest_supported_version() {
    let newer = [row(1, None), row(3, 1), row(7, 3), row(8, 1)];
    assert_eq!(versions(&[1, 3], &newer), Ok(vec![]));
    let refused = versions(&[1], &newer).unwrap_err();
    assert!(refused.contains("migration 7, which requires a contextd with migration 3 or later"), "{refused}");
}

#[test]
fn an_unknown_migration_that_names_no_oldest_program_is_refused() {
    let refused = versions(&[1], &[row(1, None), row(3, None)]).unwrap_err();
    assert!(refused.contains("migration 3, which this version of contextd does not know"), "{refused}");
}

#[test]
fn a_schema_whose_migration_has_other_content_is_refused() {
    let other = Applied { checksum: "else".to_owned(), ..row(1, 1) };
    let refused = versions(&[1], &[other]).unwrap_err();
    assert!(
        refused.contains("an older contextd: migration 1 has a different checksum. Move its sessions"),
        "{refused}"
    );
}

#[test]
fn a_gap_in_the_history_is_refused() {
    let refused = versions(&[1, 3, 7], &[row(1, None), row(7, 1)]).unwrap_err();
    assert!(refused.contains("lacks migration 3 although it has migration 7"), "{refused}");
}

// --- Metadata of migration files
// ------------------------------------------------------------------------------------------------

fn read(version: i32, sql: &str) -> Result<File, String> {
    File::read(&Migration::unapplied(&format!("V{version}__test"), sql).unwrap())
}

#[test]
fn the_oldest_program_is_read_from_the_file() {
    let check = |version, sql: &str, expected: Option<i32>| {
        assert_eq!(read(version, sql).map(|file| file.oldest_program).ok(), expected, "{version}: {sql}");
    };
    check(1, "select 1;", Some(1));
    check(3, "-- oldest-program: 1\nselect 1;", Some(1));
    check(3, "-- Why.\n-- oldest-program: 3\nselect 1;", Some(3));
    check(2, "select 1;", None);
    check(2, "-- oldest-program:\nselect 1;", None);
    check(2, "-- oldest-program: 3\nselect 1;", None);
    check(2, "-- oldest-program: 0\nselect 1;", None);
}

#[test]
fn a_file_without_a_transaction_is_one_statement_that_can_be_repeated() {
    let check = |sql: &str, expected: Option<Mode>| {
        let sql = format!("-- oldest-program: 1\n-- no-transaction\n{sql}");
        assert_eq!(read(2, &sql).map(|file| file.mode).ok(), expected, "{sql}");
    };
    let index = |name: &str| Some(Mode::CreateIndex(name.to_owned()));
    check("create index concurrently if not exists by_time on queue (tenant_id, at);", index("by_time"));
    check(
        "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS\n  by_time -- why; and how\n  on queue (at);\n",
        index("by_time"),
    );
    check("drop index concurrently if exists by_time;", Some(Mode::DropIndex));
    check("create index concurrently by_time on queue (at);", None);
    check("create index concurrently if not exists a on queue (at); select 1;", None);
    check("drop index concurrently if exists a, b; ", None);
    check("update queue set at = now();", None);
    check("", None);
    assert_eq!(read(2, "-- oldest-program: 1\nselect 1;").map(|file| file.mode), Ok(Mode::Transaction));
}

// --- Rule 4 of migrations/README.md
// ----------------------------------------------------------------------------------

/// The statements of a migration that would hold a lock on a possibly large table for a long time.
fn long_locks(sql: &str) -> Vec<String> {
    let code: Vec<&str> = sql.lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
    let code = code.join("\n").to_lowercase();
    // Function bodies are statements of the service, not of the migration.
    let code: String = code.split("$$").step_by(2).collect();
    let words = |statement: &str| statement.split_whitespace().collect::<Vec<_>>().join(" ");
    let statements: Vec<String> = code.split(';').map(words).filter(|statement| !statement.is_empty()).collect();
    let made: Vec<&str> =
        statements.iter().filter_map(|it| it.strip_prefix("create table ")?.split([' ', '(']).next()).collect();
    let mut found = Vec::new();
    for statement in &statements {
        let on = |before: &str| statement.split(before).nth(1).and_then(|rest| rest.split([' ', '(']).next());
        if statement.contains(" index ") && !statement.contains(" concurrently ") {
            let is_new = statement.starts_with("create") && on(" on ").is_some_and(|table| made.contains(&table));
            if !is_new {
                found.push(format!("an index without `concurrently`: {statement}"));
            }
        }
        let Some(table) = statement.strip_prefix("alter table ").and_then(|rest| rest.split(' ').next()) else {
            continue;
        };
        if made.contains(&table) {
            continue;
        }
        let checks =
            [" check ", " check(", " references ", " foreign key "].iter().any(|word| statement.contains(word));
        if checks && !statement.contains(" not valid") {
            found.push(format!("a constraint that is validated at once: {statement}"));
        }
        if [" set not null", " set data type", " type ", " add primary key", " add unique"]
            .iter()
            .any(|it| statement.contains(it))
        {
            found.push(format!("a scan or a rewrite: {statement}"));
        }
        if statement.contains(" validate constraint ") && statements.len() > 1 {
            found.push(format!("a validation that is not alone in its file: {statement}"));
        }
    }
    found
}

#[test]
fn statements_that_would_hold_long_locks_are_found() {
    let check = |sql: &str, count: usize| assert_eq!(long_locks(sql).len(), count, "{sql}: {:?}", long_locks(sql));
    check("alter table queue add column at timestamptz;", 0);
    check("alter table queue add column at timestamptz not null default now();", 0);
    check("create table t (at int check (at > 0)); create index t_at on t (at); alter table t add check (at > 1);", 0);
    check("create index by_time on queue (at);", 1);
    check("create index concurrently if not exists by_time on queue (at);", 0);
    check("drop index by_time;", 1);
    check("alter table queue add column at int check (at > 0);", 1);
    check("alter table queue add constraint positive check (at > 0);", 1);
    check("alter table queue add constraint positive check (at > 0) not valid;", 0);
    check("alter table queue validate constraint positive;", 0);
    check("alter table queue add constraint p check (at > 0) not valid; alter table queue validate constraint p;", 1);
    check("alter table queue add constraint s foreign key (id) references sessions (id);", 1);
    check("alter table queue alter column at set not null;", 1);
    check("alter table queue alter column at type bigint;", 1);
    check("-- create index by_time on queue (at);\nselect 1;", 0);
    check("create function f() returns void as $$ begin create index i on queue (at); end $$ language plpgsql;", 0);
}

#[test]
fn the_migrations_of_this_program_can_be_read_and_hold_no_long_locks() {
    for file in known(&[]).unwrap() {
        let found = long_locks(&file.sql);
        assert_eq!(found, Vec::<String>::new(), "migration {}", file.version);
    }
}
