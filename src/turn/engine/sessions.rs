//! [`SessionCommands`]: changes sessions, in the name of a client or of retention, without running a turn.

use std::sync::Arc;

use super::{capacity::Capacity, live::Live, prompts::Prompts};
use crate::{fair::FairSemaphore, store::Store, telemetry::Metrics};

/// Commands on sessions that run no turn, and the upkeep of what is stored.
#[derive(Debug)]
pub struct SessionCommands {
    pub(in crate::turn) store: Store,
    pub(in crate::turn) prompts: Arc<Prompts>,
    pub(in crate::turn) live: Arc<Live>,
    pub(in crate::turn) capacity: Arc<Capacity>,
    pub(in crate::turn) metrics: Metrics,
    pub(in crate::turn) uploads: Arc<FairSemaphore>,
}
