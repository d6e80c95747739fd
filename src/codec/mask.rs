//! Changes of a configuration field by field: the paths of an `update_mask`, read from the proto's
//! own description and applied to encoded configurations. A field that is added to the
//! configuration is known here by its being encoded.

use std::{collections::BTreeMap, iter, ops::RangeInclusive, sync::LazyLock};

use prost::{Message as _, bytes::Buf as _, decode_length_delimiter, encode_length_delimiter};
use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorSet, field_descriptor_proto::Label,
};

use crate::{
    model::{SessionConfig, command::ConfigChange},
    pb,
};

use super::{
    DecodeError,
    config::{config_into_session, decode},
    tools,
};

/// The fields of `Session` that are its configuration.
const CONFIGURATION: RangeInclusive<u32> = 10..=19;
/// A message that is one value: it is changed as a whole where no path says otherwise.
const WHOLE: &str = "tools";
/// The message that paths begin in.
const SESSION: &str = ".contextd.v1.Session";

/// Why a path is no field that can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WrongPath {
    /// There is no such field, or it lies inside of a list, a map or a plain value.
    Unknown,
    /// A field of the session, but not of its configuration.
    NotConfiguration,
}

/// Whether a path names a field of the configuration.
pub fn check(path: &str) -> Result<(), WrongPath> {
    numbers(path).map(drop)
}

/// The paths of all configuration fields that are set; of messages, those of the fields that are
/// set in them.
pub fn set_in(session: &pb::Session) -> Vec<String> {
    let mut paths = Vec::new();
    let encoded = session.encode_to_vec();
    for_each_set(&encoded, SESSION, "", &mut |path| paths.push(path));
    paths
}

/// The configuration with a change made to it.
pub fn apply(change: &ConfigChange, before: &SessionConfig) -> Result<SessionConfig, DecodeError> {
    let values = encoded(&change.values);
    let mut result = encoded(before);
    for path in &change.paths {
        result = replaced(&result, &values, &known(path)?)?;
    }
    let tools = pb::Session::decode(&*result)
        .map_err(unreadable)?
        .tools
        .unwrap_or_default();
    decode(&result, tools::from_pb(tools)?)
}

/// Those of the paths at which two configurations differ, each once.
pub fn differing(
    paths: &[String],
    before: &SessionConfig,
    after: &SessionConfig,
) -> Result<Vec<String>, DecodeError> {
    let before = encoded(before);
    let after = encoded(after);
    let mut differing: Vec<String> = Vec::new();
    for path in paths {
        let numbers = known(path)?;
        if !differing.contains(path) && found(&before, &numbers)? != found(&after, &numbers)? {
            differing.push(path.clone());
        }
    }
    Ok(differing)
}

fn encoded(config: &SessionConfig) -> Vec<u8> {
    let mut session = pb::Session::default();
    config_into_session(config, &mut session);
    session.encode_to_vec()
}

// --- Paths ---------------------------------------------------------------------------------------------------------

/// A field as the proto describes it.
struct Described {
    number: u32,
    /// The message that it holds, if it holds one of ours, and not a list of them.
    message: Option<String>,
}

/// Our messages by name, with their fields by name.
static MESSAGES: LazyLock<BTreeMap<String, BTreeMap<String, Described>>> = LazyLock::new(|| {
    let files = FileDescriptorSet::decode(pb::DESCRIPTOR_SET)
        .map(|files| files.file)
        .unwrap_or_default();
    let ours = files
        .into_iter()
        .filter(|file| file.package() == "contextd.v1")
        .flat_map(|file| file.message_type);
    ours.map(described).collect()
});

fn described(message: DescriptorProto) -> (String, BTreeMap<String, Described>) {
    let field = |field: &FieldDescriptorProto| {
        let number = u32::try_from(field.number()).unwrap_or_default();
        let ours =
            field.type_name().starts_with(".contextd.v1.") && field.label() != Label::Repeated;
        (
            field.name().to_owned(),
            Described {
                number,
                message: ours.then(|| field.type_name().to_owned()),
            },
        )
    };
    (
        format!(".contextd.v1.{}", message.name()),
        message.field.iter().map(field).collect(),
    )
}

/// The numbers of the fields along a path.
fn numbers(path: &str) -> Result<Vec<u32>, WrongPath> {
    let mut numbers = Vec::new();
    let mut message = Some(SESSION);
    for name in path.split('.') {
        let fields = message
            .and_then(|message| MESSAGES.get(message))
            .ok_or(WrongPath::Unknown)?;
        let field = fields.get(name).ok_or(WrongPath::Unknown)?;
        if numbers.is_empty() && !CONFIGURATION.contains(&field.number) {
            return Err(WrongPath::NotConfiguration);
        }
        numbers.push(field.number);
        message = field.message.as_deref();
    }
    Ok(numbers)
}

fn known(path: &str) -> Result<Vec<u32>, DecodeError> {
    numbers(path).map_err(|_| {
        DecodeError::new(
            "change",
            format_args!("{path} is no field of a configuration"),
        )
    })
}

/// Names the fields that are set in an encoded message.
fn for_each_set(encoded: &[u8], message: &str, prefix: &str, name: &mut impl FnMut(String)) {
    let Some(known) = MESSAGES.get(message) else {
        return;
    };
    let set: Vec<Field<'_>> = fields(encoded).map_while(Result::ok).collect();
    for (field, Described { number, message }) in known {
        let Some(set) = set.iter().find(|set| set.number == *number) else {
            continue;
        };
        if prefix.is_empty() && !CONFIGURATION.contains(number) {
            continue;
        }
        let path = format!("{prefix}{field}");
        match message {
            Some(message)
                if MESSAGES.contains_key(message) && !set.content.is_empty() && path != WHOLE =>
            {
                for_each_set(set.content, message, &format!("{path}."), name);
            }
            Some(_) | None => name(path),
        }
    }
}

// --- Encoded messages
// ----------------------------------------------------------------------------------------------

/// A field of an encoded message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field<'a> {
    number: u32,
    /// Key and value as they are encoded.
    raw: &'a [u8],
    /// What a message or text holds; nothing for a number.
    content: &'a [u8],
}

/// The message with the field at the end of a path as it is in another message, or without it when
/// it is not set there. A message on the way that has nothing left in it goes too.
fn replaced(into: &[u8], from: &[u8], path: &[u32]) -> Result<Vec<u8>, DecodeError> {
    let [number, rest @ ..] = path else {
        return Ok(from.to_vec());
    };
    let mut result = Vec::with_capacity(into.len() + from.len());
    for field in fields(into) {
        let field = field?;
        if field.number != *number {
            result.extend_from_slice(field.raw);
        }
    }
    if rest.is_empty() {
        result.extend(found(from, path)?);
        return Ok(result);
    }
    let inner = replaced(content(into, *number)?, content(from, *number)?, rest)?;
    if !inner.is_empty() {
        let key = usize::try_from(*number << 3 | LENGTH).unwrap_or_default();
        for varint in [key, inner.len()] {
            encode_length_delimiter(varint, &mut result).map_err(unreadable)?;
        }
        result.extend(inner);
    }
    Ok(result)
}

/// Everything that is encoded for the field at the end of a path.
fn found(encoded: &[u8], path: &[u32]) -> Result<Vec<u8>, DecodeError> {
    let [number, rest @ ..] = path else {
        return Ok(Vec::new());
    };
    if !rest.is_empty() {
        return found(content(encoded, *number)?, rest);
    }
    let mut raw = Vec::new();
    for field in fields(encoded) {
        raw.extend_from_slice(
            Some(field?)
                .filter(|field| field.number == *number)
                .map_or(&[], |field| field.raw),
        );
    }
    Ok(raw)
}

/// What the message in a field holds; nothing when it is not set.
fn content(encoded: &[u8], number: u32) -> Result<&[u8], DecodeError> {
    for field in fields(encoded) {
        let field = field?;
        if field.number == number {
            return Ok(field.content);
        }
    }
    Ok(&[])
}

const VARINT: u32 = 0;
const EIGHT_BYTES: u32 = 1;
const LENGTH: u32 = 2;
const FOUR_BYTES: u32 = 5;

/// The fields of an encoded message, in order.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = Result<Field<'_>, DecodeError>> {
    iter::from_fn(move || {
        let field = (!rest.is_empty()).then(|| field(&mut rest));
        if matches!(field, Some(Err(_))) {
            rest = &[];
        }
        field
    })
}

/// Takes the first field off.
fn field<'a>(rest: &mut &'a [u8]) -> Result<Field<'a>, DecodeError> {
    let all = *rest;
    let key = u32::try_from(varint(rest)?).map_err(unreadable)?;
    let mut content: &[u8] = &[];
    match key & 7 {
        VARINT => drop(varint(rest)?),
        EIGHT_BYTES => drop(take(rest, 8)?),
        LENGTH => {
            let length = varint(rest)?;
            content = take(rest, length)?;
        }
        FOUR_BYTES => drop(take(rest, 4)?),
        other => {
            return Err(unreadable(format_args!(
                "it has a field of wire type {other}"
            )));
        }
    }
    Ok(Field {
        number: key >> 3,
        raw: &all[..all.len() - rest.len()],
        content,
    })
}

fn varint(rest: &mut &[u8]) -> Result<usize, DecodeError> {
    decode_length_delimiter(rest).map_err(unreadable)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], DecodeError> {
    let taken = rest
        .get(..length)
        .ok_or_else(|| unreadable("it is cut off"))?;
    rest.advance(length);
    Ok(taken)
}

fn unreadable(why: impl std::fmt::Display) -> DecodeError {
    DecodeError::new("session configuration", why)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        codec::arbitrary,
        model::{LimitsOverride, OutputLimits, ToolSet, generation::ResponseFormat},
    };

    fn change(paths: &[&str], values: SessionConfig) -> ConfigChange {
        ConfigChange {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            values,
        }
    }

    /// Every field of the configuration by itself.
    fn top() -> Vec<&'static str> {
        vec![
            "model",
            "system_prompt",
            "pinned_blocks",
            "tools",
            "limits",
            "generation",
            "policy",
            "policy_overrides",
            "metadata",
            "ttl",
        ]
    }

    /// Every path down to the last field of the configuration.
    fn leaves(message: &str, prefix: &str) -> Vec<String> {
        let below = |(name, field): (&String, &Described)| {
            let path = format!("{prefix}{name}");
            match &field.message {
                Some(message) if MESSAGES.contains_key(message) => {
                    leaves(message, &format!("{path}."))
                }
                Some(_) | None => vec![path],
            }
        };
        let fields = MESSAGES[message].iter();
        fields
            .filter(|(_, field)| !prefix.is_empty() || CONFIGURATION.contains(&field.number))
            .flat_map(below)
            .collect()
    }

    proptest! {
        #[test]
        fn a_mask_of_all_fields_replaces_the_whole_configuration(before in arbitrary::config(), values in arbitrary::config()) {
            prop_assert_eq!(apply(&change(&top(), values.clone()), &before), Ok(values));
        }

        #[test]
        fn a_mask_of_all_nested_fields_replaces_the_whole_configuration(before in arbitrary::config(), values in arbitrary::config()) {
            let change = ConfigChange { paths: leaves(SESSION, ""), values };
            let after = apply(&change, &before).unwrap();
            // A message in which nothing is set is none.
            let mut values = change.values;
            values.overrides.default_output_limits.take_if(|limits| *limits == OutputLimits::default());
            values.generation.response_format.take_if(|format| *format == ResponseFormat::default());
            prop_assert_eq!(after, values);
        }

        #[test]
        fn an_empty_mask_changes_nothing(before in arbitrary::config(), values in arbitrary::config()) {
            prop_assert_eq!(apply(&change(&[], values), &before), Ok(before));
        }

        #[test]
        fn a_mask_of_one_field_leaves_the_others_unchanged(before in arbitrary::config(), values in arbitrary::config(), at in 0..9_usize) {
            let path = top()[at];
            let after = apply(&change(&[path], values.clone()), &before).unwrap();
            let all: Vec<String> = top().into_iter().map(str::to_owned).collect();
            prop_assert!(differing(&all, &before, &after).unwrap().iter().all(|changed| changed == path));
            prop_assert_eq!(differing(&[path.to_owned()], &values, &after), Ok(Vec::new()));
        }

        #[test]
        fn set_fields_are_the_mask_where_none_is_given(config in arbitrary::config()) {
            let mut session = pb::Session::default();
            config_into_session(&config, &mut session);
            let named = ConfigChange { paths: set_in(&session), values: config.clone() };
            prop_assert_eq!(apply(&named, &SessionConfig::default()), Ok(config));
        }
    }

    #[test]
    fn each_field_of_the_configuration_is_a_path() {
        let fields = MESSAGES[SESSION]
            .iter()
            .filter(|(_, field)| CONFIGURATION.contains(&field.number));
        let mut names: Vec<&str> = fields.map(|(name, _)| name.as_str()).collect();
        let mut expected = top();
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected);
        for path in leaves(SESSION, "") {
            assert_eq!(check(&path), Ok(()), "{path}");
        }
    }

    #[test]
    fn a_mask_path_names_one_field_and_no_list_element() {
        use WrongPath::{NotConfiguration, Unknown};
        let table = [
            ("model", Ok(())),
            ("limits.turn_timeout", Ok(())),
            ("tools.host_tools", Ok(())),
            (
                "policy_overrides.tools.default_output_limits.max_lines",
                Ok(()),
            ),
            ("session_id", Err(NotConfiguration)),
            ("etag", Err(NotConfiguration)),
            ("last_seq", Err(NotConfiguration)),
            ("create_time.seconds", Err(NotConfiguration)),
            ("", Err(Unknown)),
            ("Model", Err(Unknown)),
            ("models", Err(Unknown)),
            ("model.name", Err(Unknown)),
            ("limits.", Err(Unknown)),
            (".limits", Err(Unknown)),
            ("limits.steps", Err(Unknown)),
            ("limits.turn_timeout.seconds", Err(Unknown)),
            ("pinned_blocks.name", Err(Unknown)),
            ("pinned_blocks[0]", Err(Unknown)),
            ("tools.host_tools.name", Err(Unknown)),
            ("metadata.chat", Err(Unknown)),
            ("metadata.key", Err(Unknown)),
        ];
        for (path, expected) in table {
            assert_eq!(check(path), expected, "{path}");
        }
    }

    #[test]
    fn a_nested_mask_path_leaves_sibling_fields_unchanged() {
        let limits = |max_steps, seconds: Option<u64>| SessionConfig {
            limits: LimitsOverride {
                max_steps,
                turn_timeout: seconds.map(Duration::from_secs),
                ..LimitsOverride::default()
            },
            ..SessionConfig::default()
        };
        let table: [(&[&str], _, _, _); 6] = [
            (
                &["limits.max_steps"],
                limits(Some(1), Some(9)),
                limits(Some(2), None),
                limits(Some(2), Some(9)),
            ),
            (
                &["limits.max_steps"],
                limits(Some(1), Some(9)),
                limits(None, Some(5)),
                limits(None, Some(9)),
            ),
            (
                &["limits.max_steps"],
                limits(Some(1), None),
                limits(None, None),
                limits(None, None),
            ),
            (
                &["limits.max_steps"],
                limits(None, None),
                limits(Some(1), Some(9)),
                limits(Some(1), None),
            ),
            (
                &["limits"],
                limits(Some(1), Some(9)),
                limits(Some(2), None),
                limits(Some(2), None),
            ),
            (
                &["limits", "limits.max_steps"],
                limits(Some(1), Some(9)),
                limits(Some(2), None),
                limits(Some(2), None),
            ),
        ];
        for (paths, before, values, after) in table {
            assert_eq!(
                apply(&change(paths, values.clone()), &before),
                Ok(after),
                "{paths:?} {before:?} {values:?}"
            );
        }
    }

    #[test]
    fn set_fields_of_nested_messages_are_found() {
        let session = pb::Session {
            session_id: "s".to_owned(),
            etag: "1".to_owned(),
            model: "a/b".to_owned(),
            tools: Some(pb::ToolSet {
                host_tools: vec![pb::Tool::default()],
                ..Default::default()
            }),
            limits: Some(pb::TurnLimits {
                max_steps: 3,
                ..Default::default()
            }),
            metadata: [("a".to_owned(), String::new())].into(),
            last_seq: 7,
            ..pb::Session::default()
        };
        assert_eq!(
            set_in(&session),
            ["limits.max_steps", "metadata", "model", "tools"]
        );
        let empty = pb::Session {
            tools: Some(Default::default()),
            limits: Some(Default::default()),
            ..Default::default()
        };
        assert_eq!(set_in(&empty), ["limits", "tools"]);
        assert_eq!(set_in(&pb::Session::default()), Vec::<String>::new());
    }

    #[test]
    fn changed_paths_are_reported_once_and_only_where_values_differ() {
        let before = SessionConfig {
            model: "a/b".to_owned(),
            ..SessionConfig::default()
        };
        let after = SessionConfig {
            model: "a/c".to_owned(),
            ..SessionConfig::default()
        };
        let paths = ["system_prompt", "model", "tools", "model"].map(str::to_owned);
        assert_eq!(
            differing(&paths, &before, &after),
            Ok(vec!["model".to_owned()])
        );
        assert_eq!(differing(&paths, &before, &before), Ok(Vec::new()));
    }

    #[test]
    fn tools_are_replaced_as_a_list() {
        let with = |tools: ToolSet| SessionConfig {
            tools,
            ..SessionConfig::default()
        };
        let host_tools = vec![pb::Tool {
            name: "look".to_owned(),
            ..pb::Tool::default()
        }];
        let look = tools::from_pb(pb::ToolSet {
            host_tools,
            ..pb::ToolSet::default()
        })
        .unwrap();
        for path in ["tools", "tools.host_tools"] {
            let none = with(ToolSet::default());
            let some = with(look.clone());
            assert_eq!(
                apply(&change(&[path], some.clone()), &none),
                Ok(some.clone())
            );
            assert_eq!(apply(&change(&[path], none.clone()), &some), Ok(none));
        }
    }

    #[test]
    fn undecodable_configuration_bytes_are_an_error() {
        for bytes in [&[0x0b][..], &[0x0a, 5, 1], &[0xff], &[0x09, 1]] {
            assert!(replaced(bytes, &[], &[10]).is_err(), "{bytes:?}");
        }
    }
}
