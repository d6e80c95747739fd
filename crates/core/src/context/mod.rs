//! The context logic of contextd: pure functions on domain types, without IO, clock or async.

pub mod budget;
pub mod calls;
pub mod coalesce;
pub mod compact;
pub mod count;
pub mod estimate;
pub mod estimator;
pub mod fit_settings;
pub mod media;
pub mod notes;
pub mod picture_size;
pub mod predict;
pub mod prompt;
pub mod prune;
pub mod room;
pub mod sanitize;
pub mod sent_prompt;
pub mod size;
pub mod stats;
pub mod template;
pub mod tokens;
pub mod truncate;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
