//! The descriptor of the protos, which the build generates.

use std::sync::LazyLock;

use prost_reflect::DescriptorPool;

use crate::pb;

/// All messages of the API by name.
pub static DESCRIPTOR_POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(pb::DESCRIPTOR_SET).expect("the build made the description"));
