//! Writes the names of the fields of two oneofs: of the kinds of events, which are stored as these names with the bytes
//! of their messages, and of the content of parts, which errors name.

use heck::{ToShoutySnakeCase as _, ToUpperCamelCase as _};
use protox::prost_reflect::DescriptorPool;

/// The Rust source of the module `event_kind`, and of the methods of both oneofs.
pub(crate) fn generate(pool: &DescriptorPool) -> Result<String, String> {
    let kinds = fields(pool, "Event", "payload")?;
    let constants: String =
        kinds.iter().map(|kind| format!("pub const {}: &str = {kind:?};", kind.to_shouty_snake_case())).collect();
    let encode = arms(&kinds, |variant, _| format!("Self::{variant}(message) => message.encode_to_vec(),"));
    let decode = arms(&kinds, |variant, kind| format!("{kind:?} => Self::{variant}(prost::Message::decode(bytes)?),"));
    Ok(format!(
        "/// The kinds of events, by the names of their fields.\n\
         pub mod event_kind {{ {constants} }}\n\
         impl event::Payload {{\n\
         {}\n\
         /// Encodes the message of the field that is set.\n\
         pub fn encode_message(&self) -> Vec<u8> {{ use prost::Message as _; match self {{ {encode} }} }}\n\
         /// Decodes the message of a field. Returns `None` if there is no field of this name.\n\
         pub fn decode_message(kind: &str, bytes: &[u8]) -> Result<Option<Self>, prost::DecodeError> {{\n\
         Ok(Some(match kind {{ {decode} _ => return Ok(None) }}))\n\
         }}\n}}\n\
         impl part::Content {{\n\
         {}\n}}\n",
        kind(&kinds),
        kind(&fields(pool, "Part", "content")?)
    ))
}

/// The names of the fields of a oneof.
fn fields(pool: &DescriptorPool, message: &str, oneof: &str) -> Result<Vec<String>, String> {
    let missing = || format!("proto/ has no oneof {message}.{oneof}");
    let message = pool.get_message_by_name(&format!("contextd.v1.{message}")).ok_or_else(missing)?;
    let oneof = message.oneofs().find(|it| it.name() == oneof).ok_or_else(missing)?;
    Ok(oneof.fields().map(|field| field.name().to_owned()).collect())
}

/// The arms of a match: one for each field, of the name of its variant and its own.
fn arms(fields: &[String], arm: fn(&str, &str) -> String) -> String {
    fields.iter().map(|field| arm(&field.to_upper_camel_case(), field)).collect()
}

fn kind(fields: &[String]) -> String {
    let arms = arms(fields, |variant, field| format!("Self::{variant}(_) => {field:?},"));
    format!("/// The name of the field that is set.\npub fn kind(&self) -> &'static str {{ match self {{ {arms} }} }}")
}
