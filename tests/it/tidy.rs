//! Checks of the source tree: the direction of imports, the place of names, file sizes, and the tests of features.
//!
//! Each rule is a function over (path, text), so that the end of this file can check it with a bad sample.

mod circles;
mod imports;
mod layers;
mod profiles;
mod prose;
mod reach;
mod statements;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use imports::MAY_IMPORT;
use tree::{CORE, files, product, root, server, sources};

/// Names that `model/`, `context/` and `session/` must not use: they are pure and get all data as arguments. Libraries for
/// IO and wire formats are no dependencies of their crate.
const IMPURE: &[&str] = &["async", "await", "SystemTime", "Instant", "Clock", "tokio"];

/// Names that `context` must not use either. `model` may, because it has policy settings in the format of the
/// configuration.
const FORMATS: &[&str] = &["Serialize", "Deserialize"];

/// Names that only these modules may use.
const CONFINED: &[(&str, &[&str])] = &[
    ("tokio_postgres", &["store", "postgres"]),
    ("deadpool_postgres", &["store", "postgres"]),
    ("refinery", &["store"]),
    ("reqwest", &["auth", "mcp", "provider", "telemetry"]),
    ("tonic", &["grpc", "cli"]),
    ("tonic_types", &["grpc"]),
    ("tonic_health", &["grpc", "cli"]),
    ("tonic_reflection", &["grpc"]),
    ("prost", &["grpc", "codec"]),
    ("prost_types", &["grpc", "codec"]),
    ("opentelemetry", &["telemetry"]),
    ("opentelemetry_sdk", &["telemetry"]),
    ("prometheus", &["telemetry"]),
];

/// Where paths on the map begin: at the root, or in a source folder.
const BASES: &[&str] = &["", "src/", "crates/core/src/"];

const MOST_LINES: usize = 1_000;

/// A table in docs/ whose rows name the tests for them.
struct Table {
    /// First letters of its ids.
    letters: &'static [char],
    /// Number of cells of a row.
    cells: usize,
    /// Index of the cell with the tests.
    tests: usize,
}

const FEATURES: Table = Table { letters: &['D', 'S', 'A', 'L', 'I'], cells: 3, tests: 2 };
const FAULTS: Table = Table { letters: &['F'], cells: 6, tests: 3 };

// --- The tree
// ------------------------------------------------------------------------------------------------------

#[test]
fn imports_point_down_and_right() {
    assert_clean(&server(), wrong_imports);
}

#[test]
fn model_and_context_and_session_are_pure() {
    assert_clean(&sources(CORE), impurities);
}

#[test]
fn sql_is_only_in_store_and_postgres() {
    assert_clean(&server(), stray_sql);
}

#[test]
fn libraries_are_used_only_in_their_folders() {
    assert_clean(&sources("src"), stray_libraries);
}

#[test]
fn only_config_reads_the_environment() {
    assert_clean(&server(), stray_environment);
}

#[test]
fn files_import_each_other_in_one_direction() {
    for tree in ["src", CORE] {
        assert_eq!(circles::circles(&sources(tree)), Vec::<Vec<String>>::new());
    }
}

#[test]
fn modules_of_the_turn_engine_are_layers() {
    assert_eq!(layers::upward(&sources("src")), Vec::<String>::new());
}

#[test]
fn every_file_has_a_doc_comment() {
    let mut files = product();
    files.extend(sources("tests"));
    files.extend(sources("benches"));
    assert_clean(&files, silent_opening);
}

#[test]
fn no_file_is_too_long() {
    let mut files = product();
    files.extend(sources("tests"));
    let mut sizes: Vec<(usize, &str)> =
        files.iter().map(|(path, text)| (text.lines().count(), path.as_str())).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    println!("{} files, {} lines; the largest:", sizes.len(), sizes.iter().map(|(lines, _)| lines).sum::<usize>());
    for (lines, path) in sizes.iter().take(10) {
        println!("{lines:>6}  {path}");
    }
    assert_clean(&files, too_long);
}

#[test]
fn features_and_faults_and_their_tests_name_each_other() {
    let mut files = sources("tests");
    files.extend(product());
    for (table, document) in [(&FEATURES, "docs/features.md"), (&FAULTS, "docs/reliability.md")] {
        let text = fs::read_to_string(root().join(document)).expect("the document is there");
        assert_eq!(table_complaints(table, &text, &files), Vec::<String>::new(), "{document}");
    }
}

#[test]
fn every_test_named_in_guarding_exists() {
    let mut files = sources("tests");
    files.extend(product());
    let tests: Vec<TestFn> = files.iter().flat_map(|(path, text)| test_functions(path, text)).collect();
    let text = fs::read_to_string(root().join("docs/guarding.md")).expect("the document is there");
    let named: Vec<&str> = text.split('`').skip(1).step_by(2).filter(|name| name.contains("::")).collect();
    let missing: Vec<&&str> = named.iter().filter(|name| !tests.iter().any(|test| test.is(name))).collect();
    assert!(!named.is_empty());
    assert_eq!(missing, Vec::<&&str>::new());
}

#[test]
fn every_path_named_in_the_map_exists() {
    for page in ["ARCHITECTURE.md", "docs/where-to-change.md"] {
        let text = fs::read_to_string(root().join(page)).expect("the page is there");
        let exists = |path: &str| root().join(path).exists();
        assert_eq!(missing_paths(&text, exists), Vec::<String>::new(), "{page}");
        let says = |path: &str, name: &str| {
            let whole = |text: String| {
                let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
                words.any(|word| word == name)
            };
            BASES.iter().any(|base| fs::read_to_string(root().join(base).join(path)).is_ok_and(whole))
        };
        assert_eq!(misplaced_names(&text, says), Vec::<String>::new(), "{page}");
    }
}

#[test]
fn a_name_that_is_not_in_the_file_before_it_is_found() {
    let check = |text: &str, expected: &[&str]| {
        let says = |path: &str, name: &str| path == "a/b.rs" && name == "here";
        assert_eq!(misplaced_names(text, says), expected, "{text}");
    };
    check("in `a/b.rs` (`here`) and `a/b.rs` alone", &[]);
    check("`a/b.rs` (`here`, `gone`)", &["a/b.rs: gone"]);
    check("`a/c.rs` (`here`); `a/b.rs` (by `gone`)", &["a/c.rs: here"]);
}

// --- The rules
// -----------------------------------------------------------------------------------------------------

/// Imports against the direction of [`MAY_IMPORT`]. Imports of a module's own tests are not checked.
fn wrong_imports(path: &str, text: &str) -> Vec<String> {
    let module = module_of(path);
    if matches!(module.as_str(), "main" | "lib") || is_test(path) {
        return Vec::new();
    }
    let Some((_, allowed)) = MAY_IMPORT.iter().find(|(name, _)| *name == module) else {
        return vec![format!("module `{module}` has no line in MAY_IMPORT")];
    };
    let known = |name: &String| MAY_IMPORT.iter().any(|(module, _)| module == name);
    let imported = imports(path, without_tests(&split(text).code));
    let wrong = imported.into_iter().filter(known).filter(|name| *name != module && !allowed.contains(&name.as_str()));
    wrong.map(|name| format!("`{module}` must not import `{name}`")).collect()
}

fn impurities(path: &str, text: &str) -> Vec<String> {
    if !in_modules(path, &["model", "context", "session"]) {
        return Vec::new();
    }
    let code = split(text).code;
    let formats: &[&str] = match in_modules(path, &["context"]) {
        true => FORMATS,
        false => &[],
    };
    let mut found: Vec<String> = IMPURE
        .iter()
        .chain(formats)
        .filter(|word| has_word(&code, word))
        .map(|word| format!("says `{word}`"))
        .collect();
    if code.contains("now()") {
        found.push("reads the clock".to_owned());
    }
    found
}

fn stray_sql(path: &str, text: &str) -> Vec<String> {
    if in_modules(path, &["store", "postgres"]) || is_test(path) {
        return Vec::new();
    }
    let Pieces { code, strings } = split(text);
    let product = without_tests(&code).lines().count();
    let sql = strings.iter().filter(|(line, string)| *line <= product && looks_like_sql(string));
    sql.map(|(line, _)| format!("line {line}: SQL belongs to store/")).collect()
}

fn stray_libraries(path: &str, text: &str) -> Vec<String> {
    if is_test(path) {
        return Vec::new();
    }
    let pieces = split(text);
    let code = without_tests(&pieces.code);
    let stray = CONFINED.iter().filter(|(name, rooms)| !in_modules(path, rooms) && has_word(code, name));
    stray.map(|(name, rooms)| format!("`{name}` belongs to {}", rooms.join(", "))).collect()
}

fn stray_environment(path: &str, text: &str) -> Vec<String> {
    let pieces = split(text);
    let code = without_tests(&pieces.code);
    let reads = ["env::var", "env::vars", "env::args", "env::set_var", "env::home_dir"];
    if in_modules(path, &["config", "cli", "main"]) || is_test(path) || !reads.iter().any(|read| code.contains(read)) {
        return Vec::new();
    }
    vec!["only config/, cli/ and main.rs read the environment".to_owned()]
}

fn silent_opening(_: &str, text: &str) -> Vec<String> {
    let opening = text.strip_prefix("//! ").and_then(|rest| rest.lines().next()).unwrap_or_default();
    let sentence = opening.len() > 10 || opening.ends_with('.');
    if sentence { Vec::new() } else { vec!["does not begin with a `//!` sentence".to_owned()] }
}

/// Paths in backticks, relative to one of [`BASES`], and entries of the source map, that do not exist.
fn missing_paths(text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let file = |word: &str| [".rs", ".sql", ".md", ".toml"].iter().any(|end| word.ends_with(end));
    let plain = |word: &str| !word.contains(|c: char| c.is_whitespace() || "*{}<>:(".contains(c));
    let prose = text.split("```").step_by(2).collect::<String>();
    let quoted = prose.split('`').skip(1).step_by(2);
    let mut paths: Vec<String> =
        quoted.filter(|word| plain(word) && (word.contains('/') || file(word))).map(str::to_owned).collect();
    let mut folder = String::new();
    for line in text.split("```").skip(1).step_by(2).flat_map(str::lines) {
        let Some((branch, entry)) = line.split_once("── ") else {
            continue;
        };
        for name in entry.split("  ").next().unwrap_or_default().split(", ") {
            // The columns of a narrow entry may be separated by one space.
            let name = name.split(' ').next().unwrap_or_default();
            if !name.ends_with('/') && !file(name) {
                continue;
            }
            if branch.starts_with('│') {
                paths.push(format!("{folder}{name}"));
            } else {
                name.clone_into(&mut folder);
                paths.push(name.to_owned());
            }
        }
    }
    paths.retain(|path| !BASES.iter().any(|base| exists(&format!("{base}{path}"))));
    paths
}

/// Names in parentheses after a path, as in `a/b.rs` (`name`, `other`), that the file does not contain.
fn misplaced_names(text: &str, says: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let quoted: Vec<&str> = text.split('`').collect();
    let mut path = None;
    for pair in quoted[1..].chunks(2) {
        let [word, after] = pair else { break };
        match path {
            Some(path) if !says(path, word) => wrong.push(format!("{path}: {word}")),
            Some(_) | None => {}
        }
        path = match (path, *after) {
            (None, " (") if word.contains('/') => Some(*word),
            (Some(path), ", ") => Some(path),
            (Some(_) | None, _) => None,
        };
    }
    wrong
}

fn too_long(_: &str, text: &str) -> Vec<String> {
    let lines = text.lines().count();
    if lines > MOST_LINES { vec![format!("{lines} lines, at most {MOST_LINES}")] } else { Vec::new() }
}

/// A table has one line per row, such as `| id | behaviour | tests |`, where the tests are names such as
/// `turn::a_turn_ends_on_text`, or `not yet`. A test names its rows in its doc comment: `/// Row D6` or `/// Rows D6,
/// D21`. Both sides must agree.
fn table_complaints(table: &Table, text: &str, files: &[(String, String)]) -> Vec<String> {
    let mut complaints = Vec::new();
    let rows = table_rows(table, text, &mut complaints);
    let tests: Vec<TestFn> = files.iter().flat_map(|(path, text)| test_functions(path, text)).collect();
    for (id, named) in &rows {
        for name in named {
            let matching: Vec<&TestFn> = tests.iter().filter(|test| test.is(name)).collect();
            if matching.is_empty() {
                complaints.push(format!("row {id}: there is no test `{name}`"));
            } else if !matching.iter().any(|test| test.shows(id)) {
                complaints.push(format!("row {id}: the test `{name}` does not say `/// Row {id}`"));
            }
        }
    }
    for test in &tests {
        for id in test.rows.iter().filter(|id| id.starts_with(table.letters)) {
            match rows.get(id) {
                None => complaints.push(format!("{}: row {id} is not in its table", test.path)),
                Some(named) if !named.iter().any(|name| test.is(name)) => {
                    complaints.push(format!("row {id} does not name the test `{}`, which shows it", test.path));
                }
                Some(_) => {}
            }
        }
    }
    complaints
}

/// The rows of the table by id, with the tests that they name.
fn table_rows(table: &Table, text: &str, complaints: &mut Vec<String>) -> BTreeMap<String, Vec<String>> {
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if cells.len() != table.cells {
            complaints.push(format!("not {} cells: {line}", table.cells));
            continue;
        }
        let id = cells[0];
        let status = cells[table.tests];
        if id == "id" || id.starts_with("--") {
            continue;
        }
        if !is_row_id(id) || !id.starts_with(table.letters) {
            complaints.push(format!("`{id}` is no row id"));
        }
        let named: Vec<String> = status.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        if named.is_empty() && status != "not yet" {
            complaints.push(format!("row {id}: name `tests` or write: not yet"));
        }
        if rows.insert(id.to_owned(), named).is_some() {
            complaints.push(format!("row {id} stands there twice"));
        }
    }
    rows
}

// --- Reading Rust
// --------------------------------------------------------------------------------------------------

/// A file without its comments and strings, with the same lines, and the strings separately.
struct Pieces {
    code: String,
    strings: Vec<(usize, String)>,
}

fn split(text: &str) -> Pieces {
    let mut pieces = Pieces { code: String::new(), strings: Vec::new() };
    let mut rest = text;
    let mut line = 1;
    while let Some(next) = rest.chars().next() {
        let word_before = pieces.code.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
        let taken = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some((length, string)) = string_literal(rest, word_before) {
            pieces.strings.push((line, string.to_owned()));
            length
        } else {
            let length = char_literal(rest).unwrap_or(next.len_utf8());
            if length == next.len_utf8() {
                pieces.code.push(next);
                line += usize::from(next == '\n');
            }
            rest = &rest[length..];
            continue;
        };
        let lines = rest[..taken].matches('\n').count();
        pieces.code.push(' ');
        pieces.code.push_str(&"\n".repeat(lines));
        line += lines;
        rest = &rest[taken..];
    }
    pieces
}

/// The string literal at the start of `rest`: its length in the source, and its content.
fn string_literal(rest: &str, word_before: bool) -> Option<(usize, &str)> {
    let prefix = if word_before { 0 } else { rest.find(|c| !matches!(c, 'b' | 'c' | 'r'))? };
    let raw = prefix > 0 && rest[..prefix].ends_with('r');
    let hashes = if raw { rest[prefix..].chars().take_while(|c| *c == '#').count() } else { 0 };
    let start = prefix + hashes + 1;
    if rest[prefix + hashes..].chars().next()? != '"' {
        return None;
    }
    if raw {
        let close = format!("\"{}", "#".repeat(hashes));
        let end = start + rest[start..].find(&close)?;
        return Some((end + close.len(), &rest[start..end]));
    }
    let mut escaped = false;
    let end = start
        + rest[start..].find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        })?;
    Some((end + 1, &rest[start..end]))
}

/// The length of the character literal at the start of `rest`, such as `'"'`. Returns `None` for a lifetime.
fn char_literal(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('\'')?;
    if let Some(escape) = inner.strip_prefix('\\') {
        return Some(2 + 1 + escape[1..].find('\'')? + 1);
    }
    let length = inner.chars().next()?.len_utf8();
    inner[length..].starts_with('\'').then_some(1 + length + 1)
}

/// The code before the inline test module, which is the last item of a file.
fn without_tests(code: &str) -> &str {
    let inline = |at: &usize| {
        let item = code[*at..].trim_start_matches("#[cfg(test)]").trim_start();
        item.split_once('{').is_some_and(|(before, _)| before.trim_end().ends_with("mod tests"))
    };
    let starts = code.match_indices("#[cfg(test)]").map(|(at, _)| at);
    starts.into_iter().find(inline).map_or(code, |at| &code[..at])
}

/// The top-level modules that code imports: `crate::a`, `crate::{a, b::c}`, and paths with enough `super::` to reach
/// the root.
fn imports(path: &str, code: &str) -> BTreeSet<String> {
    let climbing = "super::".repeat(depth_of(path));
    let mut found = BTreeSet::new();
    for root in ["crate::", climbing.as_str()].into_iter().filter(|root| !root.is_empty()) {
        for (at, _) in code.match_indices(root) {
            let climbs_further = code[..at].ends_with("super::");
            let part_of_word = code[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
            if !climbs_further && !part_of_word {
                found.extend(heads(&code[at + root.len()..]));
            }
        }
    }
    found
}

/// The first segments of a path, or of each path of a group in braces.
fn heads(path: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = path.strip_prefix('{') else {
        return vec![word(path)];
    };
    let mut depth = 0_usize;
    let mut heads = Vec::new();
    let mut fresh = true;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            c if fresh && !c.is_whitespace() => {
                heads.push(word(&group[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    heads
}

/// Checks only the beginning, where a statement shows its kind: prose that mentions a table is not SQL.
fn looks_like_sql(string: &str) -> bool {
    let statement = string.lines().filter(|line| !line.trim_start().starts_with("--")).collect::<Vec<_>>().join(" ");
    let words: Vec<String> = statement.split_whitespace().map(str::to_lowercase).collect();
    let has = |word: &str| words.iter().any(|candidate| candidate == word);
    match words.first().map(String::as_str) {
        Some("select") => words.len() > 1,
        Some("delete") => words.get(1).is_some_and(|word| word == "from"),
        Some("insert") => words.get(1).is_some_and(|word| word == "into"),
        Some("update") => has("set"),
        Some("with") => has("as") && (has("select") || has("(select")),
        Some("create" | "alter" | "drop" | "truncate") => {
            words.get(1).is_some_and(|word| ["table", "index", "database", "role", "schema"].contains(&word.as_str()))
        }
        _ => false,
    }
}

fn has_word(code: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        !code[..at].chars().next_back().is_some_and(is_word)
            && !code[at + word.len()..].chars().next().is_some_and(is_word)
    })
}

/// A test function, with the rows that its doc comment names.
struct TestFn {
    /// `turn::a_turn_ends_on_text`: the file and the function.
    path: String,
    rows: Vec<String>,
}

impl TestFn {
    /// Whether a name in the table, which consists of the last segments of the path, is this function.
    fn is(&self, name: &str) -> bool {
        self.path == name || self.path.ends_with(&format!("::{name}"))
    }

    fn shows(&self, id: &str) -> bool {
        self.rows.iter().any(|row| row == id)
    }
}

fn test_functions(path: &str, text: &str) -> Vec<TestFn> {
    let module =
        path.trim_end_matches(".rs").trim_end_matches("/mod").split('/').skip(1).collect::<Vec<_>>().join("::");
    let mut rows = Vec::new();
    let mut is_test = false;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("/// ") {
            rows.extend(rows_in(comment));
        } else if line.starts_with("#[") {
            is_test |= line.contains("test]") || line.contains("test(");
        } else if let Some((_, signature)) = line.split_once("fn ").filter(|_| is_test) {
            let name: String = signature.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            found.push(TestFn { path: format!("{module}::{name}"), rows: std::mem::take(&mut rows) });
            is_test = false;
        } else {
            rows.clear();
            is_test = false;
        }
    }
    found
}

/// `Row D6`, `Rows D6, D21 and A2: ...` -> the ids.
fn rows_in(comment: &str) -> Vec<String> {
    let Some(list) = comment.strip_prefix("Rows ").or_else(|| comment.strip_prefix("Row ")) else {
        return Vec::new();
    };
    let words = list.split([',', ' ', '.', ':']).filter(|word| !word.is_empty());
    words
        .take_while(|word| is_row_id(word) || *word == "and")
        .filter(|word| *word != "and")
        .map(str::to_owned)
        .collect()
}

fn is_row_id(word: &str) -> bool {
    let number = word.strip_prefix(['D', 'S', 'A', 'L', 'I', 'F']);
    number
        .is_some_and(|n| !n.is_empty() && n.len() <= 2 && n.chars().all(|c| c.is_ascii_digit()) && !n.starts_with('0'))
}

/// `src/turn/run.rs` and `src/turn.rs` -> `turn`.
fn module_of(path: &str) -> String {
    let path = in_sources(path);
    path.split('/').next().unwrap_or(path).trim_end_matches(".rs").to_owned()
}

/// The path relative to the source folder.
fn in_sources(path: &str) -> &str {
    path.rsplit_once("src/").map_or(path, |(_, path)| path)
}

fn in_modules(path: &str, modules: &[&str]) -> bool {
    modules.contains(&module_of(path).as_str())
}

/// The module depth of a file: 1 for `src/clock.rs` and `src/turn/mod.rs`, 2 for `src/turn/run.rs`.
fn depth_of(path: &str) -> usize {
    let path = in_sources(path);
    path.split('/').filter(|segment| *segment != "mod.rs").count()
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

fn assert_clean(files: &[(String, String)], rule: fn(&str, &str) -> Vec<String>) {
    let complaints: Vec<String> = files
        .iter()
        .flat_map(|(path, text)| rule(path, text).into_iter().map(move |complaint| format!("{path}: {complaint}")))
        .collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

// --- The rules can fail
// --------------------------------------------------------------------------------------------

#[test]
fn a_wrong_import_is_caught() {
    let caught = |path, text| wrong_imports(path, text).len();
    assert_eq!(caught("src/store/queue.rs", "use crate::grpc::status;"), 1);
    assert_eq!(caught("src/store/queue.rs", "use crate::{model::id, provider::{self, sse}, turn};"), 2);
    assert_eq!(caught("crates/core/src/context/prune.rs", "fn f() { super::super::store::load() }"), 1);
    assert_eq!(caught("crates/core/src/model/mod.rs", "use super::clock::Clock;"), 1);
    assert_eq!(caught("crates/core/src/model/id.rs", "pub(crate) use crate::pb;"), 1);
    assert_eq!(caught("src/surprise.rs", ""), 1);
    assert_eq!(caught("src/turn/run.rs", "use crate::{context, model::id}; use super::next;"), 0);
    assert_eq!(caught("crates/core/src/model/id.rs", "//! Not `crate::store`.\nconst S: &str = \"crate::store\";"), 0);
    assert_eq!(caught("src/store/queue.rs", "fn f() {}\n#[cfg(test)]\nmod tests {\n use crate::postgres;\n}"), 0);
}

#[test]
fn an_impurity_is_caught() {
    let caught = |text| impurities("crates/core/src/context/prune.rs", text).len();
    assert_eq!(caught("async fn f() { g().await }"), 2);
    assert_eq!(caught("let t = jiff::Timestamp::now();"), 1);
    assert_eq!(caught("#[derive(Serialize)] struct S;"), 1);
    assert_eq!(caught("// async, Instant\nfn now_or(now: Timestamp) -> bool { \"await\".is_empty() }"), 0);
    assert_eq!(impurities("src/turn/run.rs", "async fn f() {}").len(), 0);
}

#[test]
fn stray_sql_is_caught() {
    let caught = |path, text| stray_sql(path, text).len();
    assert_eq!(caught("src/turn/run.rs", "let q = \"SELECT 1\";"), 1);
    assert_eq!(caught("src/grpc/turn.rs", "let q = r#\"\n-- x\n update turns\n set state = 1\"#;"), 1);
    assert_eq!(
        caught("src/grpc/turn.rs", "// \"select 1\"\nlet s = \"select\"; let u = \"Update the session first.\";"),
        0
    );
    assert_eq!(caught("src/store/turn.rs", "let q = \"select 1 from turns\";"), 0);
}

#[test]
fn a_stray_library_is_caught() {
    assert_eq!(stray_libraries("src/turn/run.rs", "use tonic::Status;").len(), 1);
    assert_eq!(stray_libraries("src/turn/run.rs", "let c: reqwest::Client;").len(), 1);
    assert_eq!(stray_libraries("src/grpc/status.rs", "use tonic::Status;").len(), 0);
    assert_eq!(stray_environment("src/turn/run.rs", "std::env::var(\"HOME\")").len(), 1);
    assert_eq!(stray_environment("src/config/mod.rs", "std::env::var(\"HOME\")").len(), 0);
}

#[test]
fn a_file_without_doc_or_too_long_is_caught() {
    assert_eq!(silent_opening("src/a.rs", "use std::fs;\n").len(), 1);
    assert_eq!(silent_opening("src/a.rs", "//! Reads a clock.\n").len(), 0);
    assert_eq!(too_long("src/a.rs", &"\n".repeat(MOST_LINES + 1)).len(), 1);
    assert_eq!(too_long("src/a.rs", &"\n".repeat(MOST_LINES)).len(), 0);
}

#[test]
fn a_path_that_does_not_exist_is_caught() {
    let map = "```\nsrc/\n├── main.rs, gone.rs  parse\n├── turn/  engine\n│   ├── run/ steps\n│   └── old/ lost\n```\n";
    let prose = "See `turn/run/decide.rs`, `store/lost.sql`, `(epoch, op)`, `I/O now` and `lib.rs`.";
    let there = ["src/main.rs", "src/turn/", "src/turn/run/", "src/turn/run/decide.rs"];
    assert_eq!(
        missing_paths(&format!("{map}{prose}"), |path| there.contains(&path)),
        ["store/lost.sql", "lib.rs", "gone.rs", "turn/old/"]
    );
}

#[test]
fn a_feature_without_its_test_is_caught() {
    let tests = "/// Row D6, seen by the client.\n#[tokio::test]\nasync fn output_is_cut() {}\n";
    let files = vec![("tests/it/tools.rs".to_owned(), tests.to_owned())];
    let complaints = |text: &str| table_complaints(&FEATURES, text, &files);
    assert_eq!(complaints("| D6 | cut | `tools::output_is_cut` |\n| D7 | queue | not yet |"), Vec::<String>::new());
    assert_eq!(complaints("| D6 | cut | not yet |").len(), 1, "the table does not know the test");
    assert_eq!(complaints("| D7 | queue | not yet |").len(), 1, "the test shows an unknown row");
    assert_eq!(complaints("| D6 | cut | `tools::output_is_cut` `tools::gone` |").len(), 1, "no such test");
    assert_eq!(complaints("| D6 | a | `output_is_cut` |\n| D7 | b | `output_is_cut` |").len(), 1, "not its row");
    assert_eq!(complaints("| D6 | a | `output_is_cut` |\n| X1 | b | soon |").len(), 2, "no id, no status");
}

#[test]
fn a_fault_without_its_test_is_caught() {
    let tests = "/// Rows F7 and D6\n#[tokio::test]\nasync fn an_answer_is_lost() {}\n";
    let files = vec![("tests/it/faults/commits.rs".to_owned(), tests.to_owned())];
    let complaints = |text: &str| table_complaints(&FAULTS, text, &files).len();
    assert_eq!(complaints("| F7 | lost | once | `commits::an_answer_is_lost` | all | ok |"), 0, "D6 is not its affair");
    assert_eq!(complaints("| F7 | lost | once | `commits::gone` | all | ok |"), 2, "no such test, and one unnamed");
    assert_eq!(complaints("| F8 | cut | once | `commits::an_answer_is_lost` | all | ok |"), 2, "not its row");
    assert_eq!(complaints("| F7 | lost | once | `commits::an_answer_is_lost` |"), 2, "cells are missing");
}

#[test]
fn strings_comments_and_characters_are_told_apart() {
    let Pieces { code, strings } =
        split("let a = '\"'; // \"no\"\nlet b: &'static str = r#\"x\"y\"#; let c = '\\''; f(\"z\\\"\")");
    assert_eq!(strings, [(2, "x\"y".to_owned()), (2, "z\\\"".to_owned())]);
    assert!(code.contains("&'static str") && code.lines().count() == 2);
}
