//! Recorded answers, answers in pieces, and requests.

mod answers;
mod requests;
mod simulated_cache;
