//! Integration tests, one binary.

mod postgres;
