//! The mouth of contextd: the only place that speaks gRPC.
