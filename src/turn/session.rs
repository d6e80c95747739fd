//! Sessions: created, changed, forked, imported, deleted, alone or with their tenant; their uploads,
//! and how long they are kept.

pub mod append;
pub mod create;
pub mod delete;
pub mod erase;
pub mod fork;
pub mod purge;
pub mod sweep;
pub mod update;
pub mod upload;
