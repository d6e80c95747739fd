//! The mouth of contextd: the only place that speaks gRPC.

pub mod decode;
pub mod page;
pub mod status;
pub mod violations;
