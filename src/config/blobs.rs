//! The settings of blobs: limits of uploads, and of the media in a prompt.

use std::time::Duration;

use crate::settings::settings;

const SECOND: Duration = Duration::from_secs(1);

settings! {
    /// `[blobs]`: what clients may store with PutBlob, and how much of it one prompt may hold.
    #[derive(Copy)]
    pub struct BlobsConfig {
        /// Maximum size of a blob.
        max_bytes: u64 = 64 << 20, in 64 << 10..=4 << 30, "bytes";
        /// Maximum size of the media in one prompt. Older media are left out of it. Encoded for the model they are a
        /// third larger.
        max_prompt_bytes: u64 = 20 << 20, in 0..=1 << 30, "bytes";
        /// Maximum uploads in progress on this replica. Each holds up to 4 MiB of memory.
        max_uploads: usize = 32, in 1..=10_000, "uploads";
        /// How long an upload may receive nothing.
        upload_idle_timeout: Duration = SECOND * 30, in SECOND..=Duration::from_mins(10);
        /// How long an upload may take in total.
        upload_timeout: Duration = Duration::from_hours(1), in SECOND..=Duration::from_hours(12);
    }
}
