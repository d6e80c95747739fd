//! The RPCs of the API and the access that each requires, read from the option `contextd.v1.access` of the
//! protos. An RPC without the option is denied to every caller.

use std::{collections::HashMap, sync::LazyLock};

use crate::{
    codec::{
        description::DESCRIPTOR_POOL,
        field::{Field as _, choices},
    },
    model::{Access, Principal},
};

/// Path prefix of the RPCs that operators may call for other tenants, and also while their own tenant is
/// being deleted.
const ADMIN_SERVICE_PREFIX: &str = "/contextd.v1.AdminService/";

/// Path prefix of the reflection services.
const REFLECTION: &str = "/grpc.reflection.";

/// The access that a path requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredAccess {
    Access(Access),
    /// The proto declares no access, so every caller is denied.
    Undeclared,
    /// Not an RPC of this API.
    UnknownRpc,
}

/// An RPC of this API.
#[derive(Debug)]
pub struct Method {
    name: String,
    access: Option<Access>,
    streams: bool,
    reads_stream: bool,
}

impl Method {
    /// The full name, such as `contextd.v1.TurnService/ExecuteTurn`.
    pub fn name(&'static self) -> &'static str {
        &self.name
    }

    /// The access that the RPC requires. Returns `None` if the proto declares none.
    pub fn access(&self) -> Option<Access> {
        self.access
    }

    /// Whether the client streams requests.
    pub fn is_client_streaming(&self) -> bool {
        self.reads_stream
    }
}

/// All RPCs by path, such as `/contextd.v1.TurnService/ExecuteTurn`.
static METHODS: LazyLock<HashMap<String, Method>> = LazyLock::new(|| {
    let option = DESCRIPTOR_POOL.get_extension_by_name("contextd.v1.access").expect("the proto has the option");
    let methods = DESCRIPTOR_POOL.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    methods
        .map(|method| {
            let name = format!("{}/{}", method.parent_service().full_name(), method.name());
            let options = method.options();
            let number = options.get_extension(&option).as_enum_number();
            let path = format!("/{name}");
            let method = Method {
                name,
                access: number.and_then(from_number),
                streams: method.is_server_streaming(),
                reads_stream: method.is_client_streaming(),
            };
            (path, method)
        })
        .collect()
});

/// The RPC at a path. Returns `None` if the path is not an RPC of this API.
pub fn method(path: &str) -> Option<&'static Method> {
    METHODS.get(path)
}

/// Whether the RPC at a path has a streaming response. The reflection RPCs do.
pub fn is_server_streaming(path: &str) -> bool {
    path.starts_with(REFLECTION) || method(path).is_some_and(|method| method.streams)
}

/// The access that the RPC at a path requires.
pub fn required_access(path: &str) -> RequiredAccess {
    match method(path).map(Method::access) {
        Some(Some(access)) => RequiredAccess::Access(access),
        Some(None) => RequiredAccess::Undeclared,
        None => RequiredAccess::UnknownRpc,
    }
}

/// Whether an operator calls the admin API, which acts on other tenants.
pub fn is_operator_call(caller: &Principal, path: &str) -> bool {
    caller.access == Access::Operator && path.starts_with(ADMIN_SERVICE_PREFIX)
}

choices! {
    Access = Access { Read, Write, Admin, Operator }
}

/// Decodes an access from the wire. Returns `None` for the unspecified value and for values of a newer proto.
pub fn from_number(number: i32) -> Option<Access> {
    Access::from_field("access", number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rpc_declares_the_access_it_takes() {
        assert!(METHODS.len() > 30);
        for (path, method) in &*METHODS {
            let access = method.access;
            assert!(access.is_some(), "{path} has no option contextd.v1.access");
        }
        let check = |path: &str, expected: RequiredAccess| assert_eq!(required_access(path), expected, "{path}");
        check("/contextd.v1.TurnService/GetTurn", RequiredAccess::Access(Access::Read));
        check("/contextd.v1.TurnService/ExecuteTurn", RequiredAccess::Access(Access::Write));
        check("/contextd.v1.AdminService/CreateKey", RequiredAccess::Access(Access::Admin));
        check("/contextd.v1.TurnService/Absent", RequiredAccess::UnknownRpc);
    }

    #[test]
    fn reflection_answers_with_streams_as_our_streaming_rpcs_do() {
        for (path, expected) in [
            ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", true),
            ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", true),
            ("/contextd.v1.TurnService/WatchEvents", true),
            ("/contextd.v1.TurnService/GetTurn", false),
            ("/grpc.health.v1.Health/Check", false),
        ] {
            assert_eq!(is_server_streaming(path), expected, "{path}");
        }
    }

    #[test]
    fn rpcs_without_side_effects_take_read_access_and_no_other_does() {
        use prost_reflect::prost_types::method_options::IdempotencyLevel;
        for service in DESCRIPTOR_POOL.services() {
            for method in service.methods() {
                let path = format!("/{}/{}", service.full_name(), method.name());
                let options = method.method_descriptor_proto().options.clone();
                let reads =
                    options.is_some_and(|options| options.idempotency_level() == IdempotencyLevel::NoSideEffects);
                let access = required_access(&path);
                assert!(
                    reads == (access == RequiredAccess::Access(Access::Read))
                        || (reads && access == RequiredAccess::Access(Access::Admin)),
                    "{path} takes {access:?}"
                );
            }
        }
    }
}
