//! The context of a session: what is counted, cleared, compacted, prepared for hosts and shown.

pub mod compact;
pub mod count;
pub mod estimators;
pub(in crate::turn) mod learn;
pub(in crate::turn) mod media;
mod prepare;
pub(in crate::turn) mod prune;
pub(in crate::turn) mod reasoning;
mod record;
pub mod render;
pub(in crate::turn) mod session_view;
pub(in crate::turn) mod size;
pub mod stats;
mod take_queue;
