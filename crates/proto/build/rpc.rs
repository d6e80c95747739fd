//! Writes the names of the RPCs, what their requests and responses are, and which ids the requests contain.

use heck::ToShoutySnakeCase as _;
use protox::prost_reflect::{DescriptorPool, MessageDescriptor, MethodDescriptor};

const PACKAGE: &str = "contextd.v1";

/// A constant for the full name of each RPC, and an implementation of `Rpc` for its request.
pub(crate) fn names(pool: &DescriptorPool) -> String {
    let source = |method: MethodDescriptor| {
        let name = method.name().to_shouty_snake_case();
        let service = method.parent_service().full_name().to_owned();
        let (request, response) = (method.input(), method.output());
        let has_id = request.get_field_by_name("request_id").is_some();
        format!(
            "pub const {name}: &str = \"{service}/{}\";\n\
             impl crate::Rpc for crate::{} {{\n\
             type Response = crate::{};\n\
             const NAME: &'static str = {name};\n\
             const HAS_REQUEST_ID: bool = {has_id};\n}}\n",
            method.name(),
            request.name(),
            response.name()
        )
    };
    methods(pool).into_iter().map(source).collect()
}

/// An implementation of `RequestIds` for each request.
pub(crate) fn ids(pool: &DescriptorPool) -> String {
    let mut requests: Vec<_> = methods(pool).iter().map(MethodDescriptor::input).collect();
    requests.sort_by(|a, b| a.name().cmp(b.name()));
    requests.dedup();
    requests.iter().map(implementation).collect()
}

fn methods(pool: &DescriptorPool) -> Vec<MethodDescriptor> {
    pool.services()
        .filter(|service| service.package_name() == PACKAGE)
        .flat_map(|service| service.methods().collect::<Vec<_>>())
        .collect()
}

fn implementation(request: &MessageDescriptor) -> String {
    let has = |field: &str| request.get_field_by_name(field).is_some();
    let session = if has("session_id") {
        "fn session(&self) -> &str { &self.session_id }"
    } else if has("session") {
        "fn session(&self) -> &str { self.session.as_ref().map_or(\"\", |session| &session.session_id) }"
    } else {
        ""
    };
    let others = [
        ("turn_id", "fn turn(&self) -> &str { &self.turn_id }"),
        ("tenant_id", "fn managed_tenant(&self) -> Option<&str> { Some(&self.tenant_id) }"),
        ("key_id", "fn managed_key(&self) -> &str { &self.key_id }"),
    ];
    let others: String = others.iter().filter_map(|(field, method)| has(field).then_some(*method)).collect();
    let name = request.name();
    format!("impl RequestIds for crate::{name} {{ {session} {others} }}\n")
}
