//! The build profiles of programs.

use std::fs;

use super::root;

#[test]
fn release_builds_check_for_overflow() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let release = &manifest["profile"]["release"];
    let checks = release.get("overflow-checks").and_then(toml::Value::as_bool);
    assert_eq!(checks, Some(true));
}
