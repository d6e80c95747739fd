//! The contextd command.
fn main() {}
