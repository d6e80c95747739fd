//! What a migration file says about itself: the oldest program that can work on the schema after
//! it, and how it is run.

use refinery::Migration;

/// The first migration whose file names the oldest program.
const FIRST_MARKED: i32 = 2;
/// Begins the line that names the oldest program, by the newest migration which that program has.
const OLDEST_PROGRAM: &str = "-- oldest-program:";
/// The line that takes a file out of its transaction.
const NO_TRANSACTION: &str = "-- no-transaction";

/// A migration that this program has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) version: i32,
    /// The file's name between the version and `.sql`.
    pub(super) name: String,
    pub(super) checksum: String,
    pub(super) sql: String,
    /// The newest migration of the oldest program that can work on the schema after this one.
    pub(super) oldest_program: i32,
    pub(super) mode: Mode,
}

/// How a migration is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    /// In one transaction with its row in the history.
    Transaction,
    /// On its own: `create index concurrently if not exists` of this index.
    CreateIndex(String),
    /// On its own: `drop index concurrently if exists`.
    DropIndex,
}

impl File {
    /// Reads what the file of a migration says.
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

/// By the line that names it. The first file has none: every program has it.
fn oldest_program(version: i32, sql: &str) -> Result<i32, String> {
    let Some(line) = sql
        .lines()
        .find_map(|line| line.strip_prefix(OLDEST_PROGRAM))
    else {
        return match version {
            ..FIRST_MARKED => Ok(version),
            FIRST_MARKED.. => Err(format!("the line `{OLDEST_PROGRAM} <version>` is missing")),
        };
    };
    match line.trim().parse() {
        Ok(oldest) if (1..=version).contains(&oldest) => Ok(oldest),
        Ok(_) | Err(_) => Err(format!(
            "`{OLDEST_PROGRAM}{line}` does not name a migration up to this one"
        )),
    }
}

/// A file without a transaction may be stopped at any point and is then run again from its
/// beginning, so it is one statement that can be repeated.
fn mode(sql: &str) -> Result<Mode, String> {
    if !sql.lines().any(|line| line.trim_end() == NO_TRANSACTION) {
        return Ok(Mode::Transaction);
    }
    let statement: Vec<&str> = sql
        .lines()
        .map(|line| line.split("--").next().unwrap_or_default())
        .collect();
    let statement = statement.join(" ").to_lowercase();
    let words: Vec<&str> = statement
        .trim()
        .trim_end_matches(';')
        .split_whitespace()
        .collect();
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
            "a file without a transaction is one `create [unique] index concurrently if not exists` or one `drop index concurrently if exists`"
                .to_owned(),
        ),
    }
}
