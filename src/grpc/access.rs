//! The access that each RPC takes, read from the option `contextd.v1.access` of the protos. What has
//! none is refused to everybody.

use std::{collections::BTreeMap, sync::LazyLock};

use prost_reflect::Value;

use crate::{codec::description::POOL, model::Access, pb};

/// The access by path, such as `/contextd.v1.TurnService/ExecuteTurn`.
static NEEDED: LazyLock<BTreeMap<String, Access>> = LazyLock::new(|| {
    let option = POOL
        .get_extension_by_name("contextd.v1.access")
        .expect("the proto has the option");
    let methods = POOL.services().flat_map(|service| {
        let methods: Vec<_> = service.methods().collect();
        methods
            .into_iter()
            .map(move |method| (format!("/{}/{}", service.full_name(), method.name()), method))
    });
    methods
        .filter_map(|(path, method)| {
            let options = method.options();
            let number = match options.get_extension(&option).as_ref() {
                Value::EnumNumber(number) => *number,
                _ => return None,
            };
            Some((path, of_number(number)?))
        })
        .collect()
});

/// The least access that an RPC takes; `None` if nobody may call it.
pub fn needed(path: &str) -> Option<Access> {
    NEEDED.get(path).copied()
}

/// An access as the proto has it.
pub fn to_pb(access: Access) -> pb::Access {
    match access {
        Access::Read => pb::Access::Read,
        Access::Write => pb::Access::Write,
        Access::Admin => pb::Access::Admin,
        Access::Operator => pb::Access::Operator,
    }
}

/// An access of the proto; `None` for none, and for those of a newer one.
pub fn of_number(number: i32) -> Option<Access> {
    match pb::Access::try_from(number) {
        Ok(pb::Access::Read) => Some(Access::Read),
        Ok(pb::Access::Write) => Some(Access::Write),
        Ok(pb::Access::Admin) => Some(Access::Admin),
        Ok(pb::Access::Operator) => Some(Access::Operator),
        Ok(pb::Access::Unspecified) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rpc_declares_the_access_it_takes() {
        let methods: Vec<String> = POOL
            .services()
            .flat_map(|service| {
                let name = service.full_name().to_owned();
                let paths = service.methods().map(move |method| format!("/{name}/{}", method.name()));
                paths.collect::<Vec<_>>()
            })
            .collect();
        assert!(methods.len() > 30);
        for path in methods {
            assert!(needed(&path).is_some(), "{path} has no option contextd.v1.access");
        }
        assert_eq!(needed("/contextd.v1.TurnService/GetTurn"), Some(Access::Read));
        assert_eq!(needed("/contextd.v1.TurnService/ExecuteTurn"), Some(Access::Write));
        assert_eq!(needed("/contextd.v1.AdminService/CreateKey"), Some(Access::Admin));
        assert_eq!(needed("/contextd.v1.TurnService/Absent"), None);
    }

    #[test]
    fn rpcs_without_side_effects_take_read_access_and_no_other_does() {
        use prost_reflect::prost_types::method_options::IdempotencyLevel;
        for service in POOL.services() {
            for method in service.methods() {
                let path = format!("/{}/{}", service.full_name(), method.name());
                let options = method.method_descriptor_proto().options.clone();
                let reads = options.is_some_and(|options| {
                    options.idempotency_level() == IdempotencyLevel::NoSideEffects
                });
                let access = needed(&path).unwrap();
                assert!(
                    reads == (access == Access::Read) || (reads && access == Access::Admin),
                    "{path} takes {access}"
                );
            }
        }
    }
}
