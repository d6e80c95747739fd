//! Field-by-field changes of a configuration: the paths of an `update_mask`, resolved with the proto's descriptor. A
//! new configuration field is supported here once it is encoded.

use std::{ops::RangeInclusive, sync::LazyLock};

use prost_reflect::{DynamicMessage, FieldDescriptor, MessageDescriptor, Value};

use crate::{
    model::{SessionConfig, command::ConfigChange},
    pb,
};

use super::{DecodeError, description::DESCRIPTOR_POOL, field::Field as _};

/// The field numbers of `Session` that are the configuration.
const CONFIGURATION: RangeInclusive<u32> = 10..=19;
/// A message that counts as one value: it is replaced as a whole unless a path names one of its fields.
const WHOLE: &str = "tools";

/// The message in which paths begin.
static SESSION: LazyLock<MessageDescriptor> =
    LazyLock::new(|| DESCRIPTOR_POOL.get_message_by_name("contextd.v1.Session").expect("the proto has sessions"));

/// Why a path does not name a field that can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WrongPath {
    /// No such field exists, or it is inside a list, a map or a scalar.
    Unknown,
    /// A field of the session that is not part of its configuration.
    NotConfiguration,
}

/// Checks that a path names a field of the configuration.
pub fn check(path: &str) -> Result<(), WrongPath> {
    fields(path).map(drop)
}

/// The paths of all configuration fields that are set. For a message, these are the paths of the fields that are set in
/// it.
pub fn set_paths(session: &pb::Session) -> Result<Vec<String>, DecodeError> {
    let mut paths = Vec::new();
    for (field, value) in dynamic(session)?.fields() {
        if CONFIGURATION.contains(&field.number()) {
            name_set(field.name().to_owned(), &field, value, &mut paths);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// Applies a change to a configuration.
pub fn apply(change: &ConfigChange, before: &SessionConfig) -> Result<SessionConfig, DecodeError> {
    let values = of_config(&change.values)?;
    let mut result = of_config(before)?;
    for path in &change.paths {
        replace(&mut result, &values, &known(path)?);
    }
    let session: pb::Session = result.transcode_to().map_err(unreadable)?;
    SessionConfig::from_field("session configuration", session)
}

/// The paths among `paths` at which two configurations differ, without duplicates.
pub fn differing(paths: &[String], before: &SessionConfig, after: &SessionConfig) -> Result<Vec<String>, DecodeError> {
    let before = of_config(before)?;
    let after = of_config(after)?;
    let mut differing: Vec<String> = Vec::new();
    for path in paths {
        let fields = known(path)?;
        if !differing.contains(path) && found(&before, &fields) != found(&after, &fields) {
            differing.push(path.clone());
        }
    }
    Ok(differing)
}

fn of_config(config: &SessionConfig) -> Result<DynamicMessage, DecodeError> {
    dynamic(&config.to_field())
}

fn dynamic(session: &pb::Session) -> Result<DynamicMessage, DecodeError> {
    let mut message = DynamicMessage::new(SESSION.clone());
    message.transcode_from(session).map_err(unreadable)?;
    Ok(message)
}

/// Resolves a path to its fields.
fn fields(path: &str) -> Result<Vec<FieldDescriptor>, WrongPath> {
    let mut fields = Vec::new();
    let mut message = Some(SESSION.clone());
    for name in path.split('.') {
        let field = message.and_then(|message| message.get_field_by_name(name)).ok_or(WrongPath::Unknown)?;
        if fields.is_empty() && !CONFIGURATION.contains(&field.number()) {
            return Err(WrongPath::NotConfiguration);
        }
        message = message_in(&field);
        fields.push(field);
    }
    Ok(fields)
}

/// The message type of a field, if the field holds a single message of the API, not a list or a map.
fn message_in(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    let message = field.kind().as_message().cloned()?;
    let is_ours = message.package_name() == SESSION.package_name();
    (is_ours && !field.is_list() && !field.is_map()).then_some(message)
}

fn known(path: &str) -> Result<Vec<FieldDescriptor>, DecodeError> {
    fields(path).map_err(|_| DecodeError::new("change", format_args!("{path} is not a field of a configuration")))
}

/// Adds the path of a field, or the paths of the fields that are set in it.
fn name_set(path: String, field: &FieldDescriptor, value: &Value, paths: &mut Vec<String>) {
    let before = paths.len();
    if let (Some(_), Some(message)) = (message_in(field), value.as_message())
        && path != WHOLE
    {
        for (field, value) in message.fields() {
            name_set(format!("{path}.{}", field.name()), &field, value, paths);
        }
    }
    if paths.len() == before {
        paths.push(path);
    }
}

/// Copies the field at the end of a path from another message, or clears it if it is not set there. A message on the
/// path that is empty afterwards is cleared too.
fn replace(into: &mut DynamicMessage, from: &DynamicMessage, path: &[FieldDescriptor]) {
    let [field, rest @ ..] = path else { return };
    let value = from.get_field(field);
    if rest.is_empty() && from.has_field(field) {
        into.set_field(field, value.into_owned());
    } else if rest.is_empty() {
        into.clear_field(field);
    } else if let (Some(inner), Some(from)) = (into.get_field_mut(field).as_message_mut(), value.as_message()) {
        replace(inner, from, rest);
        if inner.fields().next().is_none() {
            into.clear_field(field);
        }
    }
}

/// The value at the end of a path. Returns `None` if it is not set.
fn found(message: &DynamicMessage, path: &[FieldDescriptor]) -> Option<Value> {
    let [field, rest @ ..] = path else {
        return None;
    };
    let value = message.has_field(field).then(|| message.get_field(field))?;
    if rest.is_empty() {
        return Some(value.into_owned());
    }
    found(value.as_message()?, rest)
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
        ConfigChange { paths: paths.iter().map(|path| (*path).to_owned()).collect(), values }
    }

    /// Every top-level field of the configuration.
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

    /// The fields of the configuration.
    fn configuration() -> impl Iterator<Item = FieldDescriptor> {
        SESSION.fields().filter(|field| CONFIGURATION.contains(&field.number()))
    }

    /// The paths of all leaf fields of the configuration.
    fn leaves() -> Vec<String> {
        fn below(path: String, field: &FieldDescriptor, leaves: &mut Vec<String>) {
            match message_in(field) {
                Some(message) => {
                    message.fields().for_each(|field| below(format!("{path}.{}", field.name()), &field, leaves))
                }
                None => leaves.push(path),
            }
        }
        let mut leaves = Vec::new();
        configuration().for_each(|field| below(field.name().to_owned(), &field, &mut leaves));
        leaves
    }

    proptest! {
        #[test]
        fn a_mask_of_all_fields_replaces_the_whole_configuration(before in arbitrary::config(), values in arbitrary::config()) {
            prop_assert_eq!(apply(&change(&top(), values.clone()), &before), Ok(values));
        }

        #[test]
        fn a_mask_of_all_nested_fields_replaces_the_whole_configuration(before in arbitrary::config(), values in arbitrary::config()) {
            let change = ConfigChange { paths: leaves(), values };
            let after = apply(&change, &before).unwrap();
            // A message in which no field is set is stored as absent.
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
            let session: pb::Session = config.to_field();
            let named = ConfigChange { paths: set_paths(&session).unwrap(), values: config.clone() };
            prop_assert_eq!(apply(&named, &SessionConfig::default()), Ok(config));
        }
    }

    #[test]
    fn each_field_of_the_configuration_is_a_path() {
        let mut names: Vec<String> = configuration().map(|field| field.name().to_owned()).collect();
        let mut expected = top();
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected);
        for path in leaves() {
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
            ("policy_overrides.tools.default_output_limits.max_lines", Ok(())),
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
            (&["limits.max_steps"], limits(Some(1), Some(9)), limits(Some(2), None), limits(Some(2), Some(9))),
            (&["limits.max_steps"], limits(Some(1), Some(9)), limits(None, Some(5)), limits(None, Some(9))),
            (&["limits.max_steps"], limits(Some(1), None), limits(None, None), limits(None, None)),
            (&["limits.max_steps"], limits(None, None), limits(Some(1), Some(9)), limits(Some(1), None)),
            (&["limits"], limits(Some(1), Some(9)), limits(Some(2), None), limits(Some(2), None)),
            (&["limits", "limits.max_steps"], limits(Some(1), Some(9)), limits(Some(2), None), limits(Some(2), None)),
        ];
        for (paths, before, values, after) in table {
            assert_eq!(apply(&change(paths, values.clone()), &before), Ok(after), "{paths:?} {before:?} {values:?}");
        }
    }

    #[test]
    fn set_fields_of_nested_messages_are_found() {
        let session = pb::Session {
            session_id: "s".to_owned(),
            etag: "1".to_owned(),
            model: "a/b".to_owned(),
            tools: Some(pb::ToolSet { host_tools: vec![pb::Tool::default()], ..Default::default() }),
            limits: Some(pb::TurnLimits { max_steps: 3, ..Default::default() }),
            metadata: [("a".to_owned(), String::new())].into(),
            last_seq: 7,
            ..pb::Session::default()
        };
        assert_eq!(set_paths(&session).unwrap(), ["limits.max_steps", "metadata", "model", "tools"]);
        let empty =
            pb::Session { tools: Some(Default::default()), limits: Some(Default::default()), ..Default::default() };
        assert_eq!(set_paths(&empty).unwrap(), ["limits", "tools"]);
        assert_eq!(set_paths(&pb::Session::default()), Ok(Vec::new()));
    }

    #[test]
    fn changed_paths_are_reported_once_and_only_where_values_differ() {
        let before = SessionConfig { model: "a/b".to_owned(), ..SessionConfig::default() };
        let after = SessionConfig { model: "a/c".to_owned(), ..SessionConfig::default() };
        let paths = ["system_prompt", "model", "tools", "model"].map(str::to_owned);
        assert_eq!(differing(&paths, &before, &after), Ok(vec!["model".to_owned()]));
        assert_eq!(differing(&paths, &before, &before), Ok(Vec::new()));
    }

    #[test]
    fn tools_are_replaced_as_a_list() {
        let with = |tools: ToolSet| SessionConfig { tools, ..SessionConfig::default() };
        let host_tools = vec![pb::Tool { name: "look".to_owned(), ..pb::Tool::default() }];
        let look = ToolSet::from_field("tools", pb::ToolSet { host_tools, ..pb::ToolSet::default() }).unwrap();
        for path in ["tools", "tools.host_tools"] {
            let none = with(ToolSet::default());
            let some = with(look.clone());
            assert_eq!(apply(&change(&[path], some.clone()), &none), Ok(some.clone()));
            assert_eq!(apply(&change(&[path], none.clone()), &some), Ok(none));
        }
    }
}
