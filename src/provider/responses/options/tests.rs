//! Settings of requests.
