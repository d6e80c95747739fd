//! Imports between files, and circular imports. Only names are evaluated: a method that another file adds to a type
//! requires no import, so it is not an edge.

use std::collections::{BTreeMap, BTreeSet};

use super::{in_sources, split, without_tests};

/// Files that import each other in a circle, each circle once. `files` are paths relative to the root of the tree, each
/// with its text.
pub(super) fn circles(files: &[(String, String)]) -> Vec<Vec<String>> {
    let tree = Tree::of(files);
    let mut reached: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in tree.files.keys() {
        let mut seen = BTreeSet::new();
        let mut ahead = vec![*file];
        while let Some(next) = ahead.pop() {
            ahead.extend(tree.imports(next).into_iter().filter(|import| seen.insert(*import)));
        }
        reached.insert(*file, seen);
    }
    let mut found = BTreeSet::new();
    for (file, reaches) in &reached {
        if reaches.contains(file) {
            let together = reaches.iter().filter(|other| reached[**other].contains(file));
            found.insert(together.map(|other| (*other).to_owned()).collect());
        }
    }
    found.into_iter().collect()
}

/// Each file with a file that it imports from.
pub(super) fn imports_of_files(files: &[(String, String)]) -> Vec<(String, String)> {
    let tree = Tree::of(files);
    let mut found = Vec::new();
    for file in tree.files.keys() {
        let imported = tree.imports(file).into_iter();
        found.extend(imported.map(|imported| ((*file).to_owned(), imported.to_owned())));
    }
    found
}

/// The segments of a path, such as `super`, `rows`, `Key`.
type Names = Vec<String>;

/// The names that a file uses.
#[derive(Default)]
struct Named {
    /// Names that `use` declarations bring into scope, and their paths. Modules below can use them through this module,
    /// and others too if they are public.
    used: BTreeMap<String, Names>,
    /// Every path that is used from another module. Re-exports are not included.
    paths: BTreeSet<Names>,
}

/// The modules, by path and by file.
struct Tree<'a> {
    modules: BTreeMap<Names, &'a str>,
    files: BTreeMap<&'a str, (Names, Named)>,
}

impl<'a> Tree<'a> {
    fn of(files: &'a [(String, String)]) -> Self {
        let named = |(path, text): &'a (String, String)| {
            let code = split(text).code;
            (path.as_str(), (module_of(path), named(without_tests(&code))))
        };
        let files: BTreeMap<&str, (Names, Named)> =
            files.iter().filter(|(path, _)| !of_tests(path)).map(named).collect();
        Self { modules: files.iter().map(|(path, (module, _))| (module.clone(), *path)).collect(), files }
    }

    /// The files that a file imports from.
    fn imports(&self, file: &str) -> BTreeSet<&'a str> {
        let (module, named) = &self.files[file];
        let from = |path: &Names| self.file_of(&self.absolute(module, path, &named.used)?);
        let mut found: BTreeSet<&str> = named.paths.iter().filter_map(from).collect();
        found.remove(file);
        found
    }

    /// The path relative to the root. Returns `None` if it leads out of this tree.
    fn absolute(&self, module: &[String], path: &[String], used: &BTreeMap<String, Names>) -> Option<Names> {
        let climbs = path.iter().take_while(|name| *name == "super").count();
        let (first, rest) = path[climbs..].split_first()?;
        if climbs > 0 {
            return Some([&module[..module.len().checked_sub(climbs)?], &path[climbs..]].concat());
        }
        let child = [module, std::slice::from_ref(first)].concat();
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module, rest].concat()),
            _ if self.modules.contains_key(&child) => Some([child.as_slice(), rest].concat()),
            name => {
                let stands_for = used.get(name).filter(|names| names.first() != Some(first))?;
                self.absolute(module, &[stands_for.as_slice(), rest].concat(), used)
            }
        }
    }

    /// The file that defines the item at a path, following re-exports. Returns `None` for a module.
    fn file_of(&self, path: &[String]) -> Option<&'a str> {
        let depth = (0..=path.len()).rev().find(|depth| self.modules.contains_key(&path[..*depth]))?;
        let (module, item) = path.split_at(depth);
        let (first, rest) = item.split_first()?;
        let file = self.modules[module];
        let Some(names) = self.files[file].1.used.get(first) else {
            return Some(file);
        };
        let whole = self.absolute(module, &[names.as_slice(), rest].concat(), &BTreeMap::new())?;
        if whole == path { Some(file) } else { self.file_of(&whole) }
    }
}

/// Test modules may import what they test.
fn of_tests(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

fn module_of(path: &str) -> Names {
    let mut names: Names = in_sources(path).trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if names.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        names.pop();
    }
    names
}

/// The names that code uses, without comments, strings and tests.
fn named(code: &str) -> Named {
    let mut named = Named::default();
    let mut rest = String::new();
    let mut body = String::new();
    for piece in code.split_inclusive([';', '{', '}']) {
        body.push_str(piece);
        if !piece.ends_with(';') {
            continue;
        }
        let statement = std::mem::take(&mut body);
        let Some((before, tree)) = split_use(&statement) else {
            rest.push_str(&statement);
            continue;
        };
        rest.push_str(before);
        let public = before.trim_end().ends_with("pub") || before.trim_end().ends_with(')');
        for (path, name) in leaves(tree.trim_end_matches(';')) {
            if !public {
                named.paths.insert(path.clone());
            }
            named.used.insert(name, path);
        }
    }
    rest.push_str(&body);
    named.paths.extend(paths(&rest));
    named
}

/// The text before the last `use` declaration, and its use tree.
fn split_use(text: &str) -> Option<(&str, &str)> {
    let (at, word) = text
        .rmatch_indices("use ")
        .find(|(at, _)| !text[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))?;
    Some((&text[..at], &text[at + word.len()..]))
}

/// The paths of a use tree such as `a::{b, c::{self, d as e}}`, each with the name that it brings into scope.
fn leaves(tree: &str) -> Vec<(Names, String)> {
    let Some((before, inner)) = tree.split_once('{') else {
        let (path, name) = tree.split_once(" as ").unwrap_or((tree, ""));
        let mut names: Names = path.split("::").map(|name| name.trim().to_owned()).collect();
        if names.len() > 1 && names.last().is_some_and(|last| last == "self") {
            names.pop();
        }
        let last = names.last().cloned().unwrap_or_default();
        return vec![(names, if name.is_empty() { last } else { name.trim().to_owned() })];
    };
    let inner = inner.trim_end().trim_end_matches('}');
    let mut depth = 0_usize;
    let mut found = Vec::new();
    let mut start = 0;
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let leaf = inner[start..at].trim();
                if !leaf.is_empty() {
                    found.extend(leaves(&format!("{}{leaf}", before.trim())));
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// Every path such as `a::b` in code.
fn paths(code: &str) -> BTreeSet<Names> {
    let of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = code.split(|c| !of_path(c)).map(|word| word.trim_matches(':'));
    words.filter(|word| word.contains("::")).map(|word| word.split("::").map(str::to_owned).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::circles;

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &[&[&str]]) {
        let files: Vec<_> = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        assert_eq!(circles(&files), expected);
    }

    #[test]
    fn files_that_import_each_other_are_a_circle() {
        let a = "use super::b::{self, B};\nfn f() { b::g() }";
        let b = "use crate::a::A;";
        check(&[("src/a.rs", a), ("src/b.rs", b)], &[&["src/a.rs", "src/b.rs"]]);
        check(&[("src/a.rs", a), ("src/b.rs", "")], &[]);
    }

    #[test]
    fn a_path_in_the_code_is_an_import() {
        check(
            &[("src/a.rs", "type T = crate::b::B;"), ("src/b.rs", "fn f(a: super::a::A) {}")],
            &[&["src/a.rs", "src/b.rs"]],
        );
    }

    #[test]
    fn what_a_module_re_exports_comes_from_the_file_that_defines_it() {
        let face = ("src/a/mod.rs", "mod b;\nmod c;\npub use b::B;\npub use c::C;");
        check(&[face, ("src/a/b.rs", "pub struct B;"), ("src/a/c.rs", "use super::B;")], &[]);
        check(
            &[face, ("src/a/b.rs", "use super::C;"), ("src/a/c.rs", "use super::B;")],
            &[&["src/a/b.rs", "src/a/c.rs"]],
        );
    }

    #[test]
    fn a_module_that_only_hands_on_imports_nothing() {
        let face = "mod b;\npub use b::B;\nconst KIND: u8 = 1;";
        let taken = "mod b;\nuse b::B;\nconst KIND: u8 = 1;";
        let b = ("src/a/b.rs", "use super::KIND;");
        check(&[("src/a/mod.rs", face), b], &[]);
        check(&[("src/a/mod.rs", taken), b], &[&["src/a/b.rs", "src/a/mod.rs"]]);
    }

    #[test]
    fn what_a_module_takes_is_taken_below_it_from_the_file_that_defines_it() {
        check(
            &[
                ("src/a/mod.rs", "mod b;\nmod c;\nuse b::B;\nuse c::C;"),
                ("src/a/b.rs", "pub struct B;"),
                ("src/a/c.rs", "use super::B;"),
            ],
            &[],
        );
    }

    #[test]
    fn comments_strings_and_tests_import_nothing() {
        let a = "use super::b::B;";
        let b = "//! super::a::A\nconst S: &str = \"super::a::A\";\n#[cfg(test)]\nmod tests {\n use crate::a::A;\n}";
        check(&[("src/a.rs", a), ("src/b.rs", b)], &[]);
    }
}
