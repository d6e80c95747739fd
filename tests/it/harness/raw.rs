//! Calls below the generated stubs: any RPC by its name, with any bytes.

use http::uri::PathAndQuery;
use prost::bytes::{Buf, BufMut};
use tonic::{
    Request, Status,
    body::Body,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    transport::Channel,
};
use tower::{Service, ServiceExt};

/// A codec that passes bytes through.
#[derive(Debug, Clone, Copy)]
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining()).to_vec()))
    }
}

/// Calls an RPC, for example `contextd.v1.TurnService/GetTurn`, with one message, and waits for the first response.
/// Unary calls and streams are the same on the wire.
pub async fn call(channel: Channel, rpc: &str, message: Vec<u8>) -> Result<Vec<u8>, Status> {
    call_as(channel, None, rpc, message).await
}

/// The same with an `authorization` header.
pub async fn call_as(
    channel: Channel,
    authorization: Option<&str>,
    rpc: &str,
    message: Vec<u8>,
) -> Result<Vec<u8>, Status> {
    let mut client = Grpc::new(channel);
    client.ready().await.unwrap();
    let mut messages = Request::new(tokio_stream::once(message));
    if let Some(authorization) = authorization {
        let value = authorization.parse().unwrap();
        messages.metadata_mut().insert("authorization", value);
    }
    client.streaming(messages, path(rpc), Bytes).await?.into_inner().message().await.map(Option::unwrap_or_default)
}

/// Posts a body that need not have gRPC framing. Returns the status of the response.
pub async fn post(mut channel: Channel, rpc: &str, body: &str) -> Result<(), Status> {
    let request = http::Request::post(path(rpc).as_str())
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(body.to_owned()))
        .unwrap();
    let response = channel.ready().await.unwrap().call(request).await.unwrap();
    Err(Status::from_header_map(response.headers()).expect("a refusal comes without a body"))
}

/// Posts a body with a content encoding. Returns the status of the response, if it has no body.
pub async fn post_encoded(mut channel: Channel, rpc: &str, encoding: &str, body: Vec<u8>) -> Result<(), Status> {
    let body = http_body_util::Full::new(bytes::Bytes::from(body));
    let request = http::Request::post(path(rpc).as_str())
        .header("content-type", "application/grpc")
        .header("grpc-encoding", encoding)
        .header("te", "trailers")
        .body(Body::new(body))
        .unwrap();
    let response = channel.ready().await.unwrap().call(request).await.unwrap();
    Err(Status::from_header_map(response.headers()).expect("a refusal comes without a body"))
}

fn path(rpc: &str) -> PathAndQuery {
    PathAndQuery::try_from(format!("/{rpc}")).unwrap()
}
