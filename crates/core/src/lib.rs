//! What contextd decides, as pure functions on domain types: without IO, SQL or wire formats.
//!
//! [`session`] decides each change of a session, [`context`] what a prompt contains, how large it is and what is removed
//! when it no longer fits. Both are written in the terms of [`model`].
#![cfg_attr(
    test,
    allow(
        clippy::too_many_lines,
        reason = "a test is often one long table; the build without tests still checks the rest"
    )
)]

extern crate self as contextd_core; // the name that `settings!` uses in every crate

pub mod context;
pub mod session;

pub mod model;

pub mod clock;
pub mod fair;
pub mod settings;
