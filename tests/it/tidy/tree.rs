//! The files of the source tree.

use std::fs;
use std::path::Path;

/// The root of the repository.
pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The sources of the pure core, a separate crate.
pub(super) const CORE: &str = "crates/core/src";

/// All Rust files of the server and of its core.
pub(super) fn server() -> Vec<(String, String)> {
    let mut files = sources("src");
    files.extend(sources(CORE));
    files
}

/// All Rust files of the program and of its other crates.
pub(super) fn product() -> Vec<(String, String)> {
    let mut files = sources("src");
    files.extend(sources("crates"));
    files
}

/// All Rust files below a folder.
pub(super) fn sources(folder: &str) -> Vec<(String, String)> {
    files(folder, "rs")
}

/// All files with this extension below a folder, sorted. Empty if the folder does not exist.
pub(super) fn files(folder: &str, kind: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("the tree can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == kind) {
                let name = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
                found.push((name, fs::read_to_string(&path).expect("sources are UTF-8")));
            }
        }
    }
    found.sort();
    found
}
