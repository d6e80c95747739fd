//! A provider that replays scripts.
