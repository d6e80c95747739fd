//! The context of a session: sizes, prompts, pruning, compaction and statistics.

mod call_settings;
pub mod compact;
pub mod estimators;
pub(in crate::turn) mod learn;
pub(in crate::turn) mod measured;
pub(in crate::turn) mod media;
pub(in crate::turn) mod memory;
pub(in crate::turn) mod prompt_call;
pub(in crate::turn) mod prune;
pub(in crate::turn) mod reasoning;
pub(in crate::turn) mod result_texts;
pub(in crate::turn) mod session_view;
pub(in crate::turn) mod size;
pub mod stats;
pub(in crate::turn) mod tool_output;
pub(in crate::turn) mod window;
