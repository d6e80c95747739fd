//! Authentication and authorization: who can call, and what each caller can access.

mod access;
mod audit;
mod canary;
mod erasure;
mod keys;
pub(crate) mod limits;
mod mcp;
mod row_security;
mod series;
mod tenants;
mod tls;
mod tokens;

use std::io::Write as _;

use contextd::{
    auth::secret,
    codec::description::DESCRIPTOR_POOL,
    config::AuthConfig,
    model::{Access, derive::hex},
};
use prost::Message as _;
use prost_reflect::DynamicMessage;
use serde_json::Value;
use tempfile::NamedTempFile;
use tonic::{
    Request, Status,
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};

use crate::harness::{Options, Replica, raw};

/// A channel that sends a key with each call.
pub(crate) type Keyed = InterceptedService<Channel, Key>;

/// An API key of a keys file.
#[derive(Debug, Clone)]
pub(crate) struct Key(String);

impl Key {
    fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl Interceptor for Key {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let value = self.header().parse().unwrap();
        request.metadata_mut().insert("authorization", value);
        Ok(request)
    }
}

/// A keys file that a test writes.
pub(crate) struct KeysFile(NamedTempFile);

impl KeysFile {
    pub(crate) fn new() -> Self {
        Self(NamedTempFile::new().unwrap())
    }

    /// Adds a key.
    pub(crate) fn add(&mut self, tenant: &str, access: Access) -> Key {
        let (key, hash) = secret::generate().unwrap();
        let entry = format!(
            "[[keys]]\nname = '{tenant}-{access}'\ntenant = '{tenant}'\naccess = '{access}'\nsha256 = '{}'\n",
            hex(&hash.0)
        );
        self.0.write_all(entry.as_bytes()).unwrap();
        self.0.flush().unwrap();
        Key(key)
    }

    /// Options that require a key of this file.
    fn required(&self) -> Options {
        Options {
            auth: AuthConfig { required: true, keys_file: Some(self.0.path().to_owned()), ..AuthConfig::default() },
            ..Options::default()
        }
    }
}

/// Connects with a key.
async fn connect(replica: &Replica, key: &Key) -> Keyed {
    InterceptedService::new(replica.channel().await, key.clone())
}

/// All RPCs: the path without the leading slash, and the name of the request type.
fn rpcs() -> Vec<(String, String)> {
    let services = DESCRIPTOR_POOL.services();
    let methods = services.flat_map(|service| {
        let name = service.full_name().to_owned();
        let methods: Vec<_> = service
            .methods()
            .map(|method| {
                let input = method.input().full_name().to_owned();
                (format!("{name}/{}", method.name()), input)
            })
            .collect();
        methods
    });
    methods.collect()
}

/// Encodes a request of the given type from JSON.
fn request(message: &str, json: Value) -> Vec<u8> {
    let descriptor = DESCRIPTOR_POOL.get_message_by_name(message).unwrap();
    DynamicMessage::deserialize(descriptor, json).unwrap_or_else(|error| panic!("{message}: {error}")).encode_to_vec()
}

/// Calls an RPC with JSON and a key.
async fn call(channel: &Channel, key: Option<&Key>, rpc: &str, json: Value) -> Result<Vec<u8>, Status> {
    let (_, message) = rpcs().into_iter().find(|(path, _)| path == rpc).unwrap();
    let header = key.map(Key::header);
    raw::call_as(channel.clone(), header.as_deref(), rpc, request(&message, json)).await
}
