//! What the handlers of all unary RPCs have in common: they identify the caller, decode the request to a command, and
//! call the method of the service that has the name of the RPC.

use tonic::{Request, Status};

use super::{
    caller::caller,
    decode::{self, Decode},
};
use crate::{model::Principal, turn::Engine};

/// Implements a service of the proto for a type with the field `engine`. Each listed RPC is handled by the method of
/// that name, which gets the caller and the command. The other items of the service follow the list.
macro_rules! service {
    ($service:ident for $type:ident { $($rpc:ident: $request:ident,)+ } $($other:tt)*) => {
        #[tonic::async_trait]
        impl $service for $type {
            $(async fn $rpc(
                &self,
                request: tonic::Request<$crate::pb::$request>,
            ) -> Result<tonic::Response<<$crate::pb::$request as $crate::pb::Rpc>::Response>, tonic::Status> {
                let (caller, command) = $crate::grpc::handler::accept(&self.engine, request).await?;
                $type::$rpc(self, caller, command).await.map(tonic::Response::new)
            })+

            $($other)*
        }
    };
}

pub(super) use service;

/// The caller of an RPC, and the command that its request decodes to.
pub(super) async fn accept<R: Decode>(engine: &Engine, request: Request<R>) -> Result<(Principal, R::Command), Status> {
    let caller = caller(&request)?;
    let request = request.into_inner();
    let named = request.blobs();
    let stored =
        if named.is_empty() { Default::default() } else { engine.prompts.stored(&caller.tenant, &named).await? };
    Ok((caller, decode::decode(request, stored)?))
}
