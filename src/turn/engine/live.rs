//! [`Live`]: the readers of sessions on this replica, and the wake-ups exchanged with others.

use std::{sync::Arc, time::Duration};

use crate::{
    store::Store,
    telemetry::Metrics,
    turn::{
        lease::leases::Leases,
        live::{hub::Hub, sharing::Sharing, wakeups::Wakeups},
    },
};

/// The readers of sessions on this replica, and the wake-ups exchanged with others.
#[derive(Debug)]
pub struct Live {
    pub(in crate::turn) store: Store,
    /// The live channels of sessions.
    pub hub: Hub,
    pub(in crate::turn) sharing: Sharing,
    pub(in crate::turn) wakeups: Wakeups,
    pub(in crate::turn) leases: Arc<Leases>,
    pub(in crate::turn) metrics: Metrics,
    pub(in crate::turn) poll_interval: Duration,
    pub(in crate::turn) has_other_replicas: bool,
}
