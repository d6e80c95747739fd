//! Sessions: create, update, fork, import and delete, one at a time or with their tenant; also
//! uploads and retention.

pub mod append;
pub mod create;
pub mod delete;
pub mod erase;
pub mod fork;
pub mod purge;
pub mod sweep;
pub mod update;
pub mod upload;
