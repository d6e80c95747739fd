//! The context of a session: counting, pruning, compaction, and prompts for hosts.

pub mod compact;
pub mod count;
pub mod estimators;
pub mod export;
pub(in crate::turn) mod learn;
pub(in crate::turn) mod media;
pub(in crate::turn) mod memory;
mod prepare;
pub(in crate::turn) mod prune;
pub(in crate::turn) mod reasoning;
mod record;
pub mod render;
pub(in crate::turn) mod session_view;
pub(in crate::turn) mod size;
pub mod stats;
mod take_queue;
