//! The layers of `src/turn/`. Methods of `Engine` and its parts are evaluated too: a module adds its own to these types,
//! and a call of one needs no import.

use std::collections::BTreeMap;

use super::{circles::imports_of_files, split, without_tests};

/// The modules of `src/turn/`, from top to bottom. A module imports only modules of the rows below its own, and calls
/// only methods of the parts of the engine that these define.
const LAYERS: &[&[&str]] = &[
    &["replica"],
    &["host", "tools"],
    &["run"],
    &["queue", "session"],
    &["opening"],
    &["context"],
    &["idempotency", "readers"],
    &["engine"],
    &["calibrations", "lease", "live"],
    &["optimistic", "settings"],
    &["error", "retry"],
];

/// The engine and its parts, with the names of the variables and fields that hold them.
const PARTS: &[(&str, &str)] = &[
    ("Engine", "engine."),
    ("Prompts", "prompts."),
    ("Live", "live."),
    ("Capacity", "capacity."),
    ("SessionCommands", "sessions."),
];

/// The calls of a method that a higher module defines: the calling module, and the method.
const CALLS_UP: &[(&str, &str)] = &[
    // The results of these calls continue the turn, so that either side has to call the other.
    ("run", "run_mcp_calls"),
];

/// The imports and calls from a module of `src/turn/` to one that is not below it. `files` are all files of `src/`.
pub(super) fn upward(files: &[(String, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for (file, imported) in imports_of_files(files) {
        if let (Some(from), Some(to)) = (module_of(&file), module_of(&imported))
            && !is_below(from, to)
        {
            found.push(format!("{file} imports {imported}"));
        }
    }
    let codes: Vec<(&str, &str, String)> = files
        .iter()
        .filter_map(|(path, text)| Some((path.as_str(), module_of(path)?, text)))
        .filter(|(path, ..)| !super::is_test(path))
        .map(|(path, module, text)| (path, module, without_tests(&split(text).code).to_owned()))
        .collect();
    let methods: BTreeMap<&str, &str> =
        codes.iter().flat_map(|(_, module, code)| methods(code).map(move |method| (method, *module))).collect();
    for (path, from, code) in &codes {
        let own = part_blocks(code).map(joined).collect::<String>();
        let code = joined(code);
        let of_parts = PARTS.iter().flat_map(|(_, receiver)| calls(&code, receiver));
        for method in of_parts.chain(calls(&own, "self.")) {
            if let Some(to) = methods.get(method)
                && !is_below(from, to)
                && !CALLS_UP.contains(&(*from, method))
            {
                found.push(format!("{path} calls {method} of {to}"));
            }
        }
    }
    found
}

/// The module of `src/turn/` that a file belongs to. Returns `None` for other files and for `src/turn/mod.rs`.
fn module_of(path: &str) -> Option<&str> {
    let below = path.strip_prefix("src/turn/")?;
    let first = below.split('/').next().unwrap_or(below);
    Some(first.trim_end_matches(".rs")).filter(|module| *module != "mod")
}

/// Whether a module may use another one. A module that no row lists may use none, and none may use it.
fn is_below(from: &str, to: &str) -> bool {
    let row = |module| LAYERS.iter().position(|row| row.contains(&module));
    from == to || row(from).zip(row(to)).is_some_and(|(from, to)| from < to)
}

/// The bodies of the blocks `impl Engine`, and of those of its parts.
fn part_blocks(code: &str) -> impl Iterator<Item = &str> {
    code.split("\nimpl ").skip(1).filter_map(|block| {
        let (name, body) = block.split_once(" {\n")?;
        let is_part = PARTS.iter().any(|(part, _)| *part == name);
        is_part.then(|| body.split("\n}").next().unwrap_or(body))
    })
}

/// The methods of the engine and its parts that code defines.
fn methods(code: &str) -> impl Iterator<Item = &str> {
    let lines = part_blocks(code).flat_map(str::lines);
    let heads = lines.filter_map(|line| line.strip_prefix("    "));
    heads.filter(|head| !head.starts_with(' ')).filter_map(|head| head.split_once("fn ")).map(|(_, name)| name_at(name))
}

/// The methods that code calls on `receiver`, which ends with a point. Each chain is on one line.
fn calls<'c>(code: &'c str, receiver: &'c str) -> impl Iterator<Item = &'c str> {
    code.match_indices(receiver).filter_map(move |(at, _)| {
        let before = code[..at].chars().next_back();
        let rest = &code[at + receiver.len()..];
        let name = name_at(rest);
        let is_whole = !before.is_some_and(|c| c.is_alphanumeric() || c == '_');
        (is_whole && rest[name.len()..].starts_with('(')).then_some(name)
    })
}

fn name_at(code: &str) -> &str {
    let end = code.find(|c: char| !c.is_alphanumeric() && c != '_');
    &code[..end.unwrap_or(code.len())]
}

/// Code on one line, without the spaces before points.
fn joined(code: &str) -> String {
    let mut line = String::new();
    for word in code.split_whitespace() {
        if !word.starts_with('.') {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::upward;

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let files: Vec<_> = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        assert_eq!(upward(&files), expected);
    }

    #[test]
    fn a_module_imports_only_modules_below_it() {
        let context = ("src/turn/context/size.rs", "pub struct Size;");
        let run = ("src/turn/run.rs", "use crate::turn::context::size::Size;");
        check(&[context, run], &[]);
        let up = ("src/turn/engine.rs", "use super::context::size::Size;");
        check(&[context, up], &["src/turn/engine.rs imports src/turn/context/size.rs"]);
        let unlisted = ("src/turn/new.rs", "use super::context::size::Size;");
        check(&[context, unlisted], &["src/turn/new.rs imports src/turn/context/size.rs"]);
    }

    #[test]
    fn a_module_calls_only_methods_of_modules_below_it() {
        let start = ("src/turn/run/start.rs", "\nimpl Engine {\n    pub async fn start(&self) {\n    }\n}\n");
        let below = (
            "src/turn/context/compact.rs",
            "\nimpl Engine {\n    fn f(&self) {\n        return self\n            .start();\n    }\n}\n",
        );
        check(&[start, below], &["src/turn/context/compact.rs calls start of run"]);
        let other = (
            "src/turn/context/compact.rs",
            "\nimpl Engine {\n    fn f(&self) {\n        self.store.start();\n    }\n}\n",
        );
        check(&[start, other], &[]);
        let above = ("src/turn/tools/submit.rs", "fn f(it: &It) {\n    it.engine.start();\n}\n");
        check(&[start, above], &[]);
        let view = ("src/turn/context/view.rs", "\nimpl Prompts {\n    async fn view(&self) {\n    }\n}\n");
        let low =
            ("src/turn/readers/poll.rs", "\nimpl Live {\n    fn f(&self) {\n        self.prompts.view();\n    }\n}\n");
        check(&[view, low], &["src/turn/readers/poll.rs calls view of context"]);
    }
}
