//! Every way a request can be invalid, as tables.
