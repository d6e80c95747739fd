//! The metadata of a migration file: the oldest program that can work with the schema after it, and how it is run.

use refinery::Migration;

/// The first migration whose file must name the oldest program.
const FIRST_MARKED: i32 = 2;
/// Prefix of the line that names the oldest program, as the number of that program's newest migration.
const OLDEST_PROGRAM: &str = "-- oldest-program:";
/// The line that makes a file run without a transaction.
const NO_TRANSACTION: &str = "-- no-transaction";

/// A migration of this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) version: i32,
    /// The part of the file name between the version and `.sql`.
    pub(super) name: String,
    pub(super) checksum: String,
    pub(super) sql: String,
    /// The newest migration of the oldest program that can work with the schema after this one.
    pub(super) oldest_program: i32,
    pub(super) mode: Mode,
}

/// How a migration is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    /// In one transaction with its row in the history.
    Transaction,
    /// Without a transaction: `create index concurrently if not exists` of this index.
    CreateIndex(String),
    /// Without a transaction: `drop index concurrently if exists`.
    DropIndex,
}

impl File {
    /// Parses the file of a migration.
    pub(super) fn read(migration: &Migration) -> Result<Self, String> {
        let version = migration.version();
        let sql = migration.sql().unwrap_or_default();
        let problem = |problem: String| format!("{migration}: {problem}");
        Ok(Self {
            version,
            name: migration.name().to_owned(),
            checksum: migration.checksum().to_string(),
            sql: sql.to_owned(),
            oldest_program: oldest_program(version, sql).map_err(problem)?,
            mode: mode(sql).map_err(problem)?,
        })
    }
}

/// The oldest program, from the line that names it. The first file has no such line: every program has that migration.
fn oldest_program(version: i32, sql: &str) -> Result<i32, String> {
    let Some(line) = sql.lines().find_map(|line| line.strip_prefix(OLDEST_PROGRAM)) else {
        return match version {
            ..FIRST_MARKED => Ok(version),
            FIRST_MARKED.. => Err(format!("the line `{OLDEST_PROGRAM} <version>` is missing")),
        };
    };
    match line.trim().parse() {
        Ok(oldest) if (1..=version).contains(&oldest) => Ok(oldest),
        Ok(_) | Err(_) => Err(format!("`{OLDEST_PROGRAM}{line}` must name this migration or an earlier one")),
    }
}

/// How the file is run. A file without a transaction may be interrupted at any point and is then run again from its
/// beginning, so it must be one repeatable statement.
fn mode(sql: &str) -> Result<Mode, String> {
    if !sql.lines().any(|line| line.trim_end() == NO_TRANSACTION) {
        return Ok(Mode::Transaction);
    }
    let statement: Vec<&str> = sql.lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
    let statement = statement.join(" ").to_lowercase();
    let words: Vec<&str> = statement.trim().trim_end_matches(';').split_whitespace().collect();
    let single = !statement.trim().trim_end_matches(';').contains(';');
    match words.as_slice() {
        ["create", "index", "concurrently", "if", "not", "exists", name, "on", ..]
        | ["create", "unique", "index", "concurrently", "if", "not", "exists", name, "on", ..]
            if single =>
        {
            Ok(Mode::CreateIndex((*name).to_owned()))
        }
        ["drop", "index", "concurrently", "if", "exists", _] if single => Ok(Mode::DropIndex),
        _ => Err(
            "a file without a transaction must be one `create [unique] index concurrently if not exists` or one `drop index concurrently if exists`"
                .to_owned(),
        ),
    }
}
