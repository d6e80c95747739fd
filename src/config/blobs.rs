//! The settings of large content: what is taken in, and what models are given of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::check::Checks;
use super::duration;

/// `[blobs]`: what clients may store with PutBlob, and how much of it one prompt may hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BlobsConfig {
    /// Largest content, in bytes.
    pub max_bytes: u64,
    /// Most bytes of media in one prompt: what is older is left out of it. They are a third longer
    /// on the way to the model.
    pub max_prompt_bytes: u64,
    /// Most uploads that this process takes at once; each holds up to 4 MiB in memory.
    pub max_uploads: usize,
    /// How long an upload may stand still.
    #[serde(with = "duration")]
    pub upload_idle_timeout: Duration,
    /// How long an upload may take in all.
    #[serde(with = "duration")]
    pub upload_timeout: Duration,
}

impl Default for BlobsConfig {
    fn default() -> Self {
        Self {
            max_bytes: 64 << 20,
            max_prompt_bytes: 20 << 20,
            max_uploads: 32,
            upload_idle_timeout: Duration::from_secs(30),
            upload_timeout: Duration::from_hours(1),
        }
    }
}

impl BlobsConfig {
    pub(super) fn check(&self, checks: &mut Checks) {
        let Self {
            max_bytes,
            max_prompt_bytes,
            max_uploads,
            upload_idle_timeout,
            upload_timeout,
        } = self;
        let second = Duration::from_secs(1);
        checks.number("blobs.max_bytes", *max_bytes, 64 << 10..=4 << 30, "bytes");
        checks.number(
            "blobs.max_prompt_bytes",
            *max_prompt_bytes,
            0..=1 << 30,
            "bytes",
        );
        checks.number("blobs.max_uploads", *max_uploads, 1..=10_000, "uploads");
        checks.duration(
            "blobs.upload_idle_timeout",
            *upload_idle_timeout,
            second..=Duration::from_mins(10),
        );
        checks.duration(
            "blobs.upload_timeout",
            *upload_timeout,
            second..=Duration::from_hours(12),
        );
    }
}
