//! Current behavior of services and hosts: each case is named after its id. The responses of services are in
//! `tests/fixtures/cases` and were written by hand.

mod answers;
mod bricked;
mod loops;
mod transfer;

use std::{fs, path::Path};

use crate::harness::upstream::Reply;

/// The response of the service in a case.
fn answer(file: &str) -> Reply {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cases").join(file);
    Reply::events(fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}
