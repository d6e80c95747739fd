//! The settings of event streams.

use crate::settings::settings;

settings! {
    /// `[stream]`: how many events are buffered for a reader.
    #[derive(Copy)]
    pub struct StreamConfig {
        /// Maximum events that are buffered for one reader, in addition to the buffer of its connection. A slower
        /// reader reads from the database.
        reader_events: usize = 64, in 1..=65_536, "events";
        /// Maximum bytes of those events. A larger event is buffered alone.
        reader_bytes: u32 = 32 << 10, in 1 << 10..=16 << 20, "bytes";
    }
}
