//! The path to a field in a request, for violations.

use std::fmt;

/// Maximum number of characters shown of a map key.
const MAX_KEY_CHARS: usize = 40;

/// A path such as `session.tools.host_tools[3].name`. Formatted only if it is printed.
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    segment: Segment<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Segment<'a> {
    /// The request itself.
    Request,
    Field(&'static str),
    Index(usize),
    Key(&'a str),
    /// A position in another API's message.
    Foreign(&'a str),
}

impl<'a> Path<'a> {
    /// The request.
    pub const fn request() -> Self {
        Self { parent: None, segment: Segment::Request }
    }

    /// A field of the request.
    pub const fn to(field: &'static str) -> Self {
        Self { parent: None, segment: Segment::Field(field) }
    }

    /// A position in a message of another API. Fields below it are fields of this API.
    pub const fn foreign(place: &'a str) -> Self {
        Self { parent: None, segment: Segment::Foreign(place) }
    }

    /// The position in another API's message at the root of this path, and the path of the field below it.
    /// Returns `None` for a path that does not start in such a message.
    pub fn of_foreign(&self) -> Option<(&'a str, String)> {
        let mut root = self;
        while let Some(parent) = root.parent {
            root = parent;
        }
        match root.segment {
            Segment::Foreign(place) => {
                let whole = self.to_string();
                let field = whole[place.len()..].trim_start_matches('.').to_owned();
                Some((place, field))
            }
            Segment::Request | Segment::Field(_) | Segment::Index(_) | Segment::Key(_) => None,
        }
    }

    /// A field of the message at this path.
    pub const fn field(&'a self, field: &'static str) -> Self {
        Self { parent: Some(self), segment: Segment::Field(field) }
    }

    /// An element of the list at this path.
    pub const fn index(&'a self, index: usize) -> Self {
        Self { parent: Some(self), segment: Segment::Index(index) }
    }

    /// An entry of the map at this path.
    pub const fn key(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), segment: Segment::Key(key) }
    }
}

impl Path<'_> {
    /// Whether this is a field of the request itself.
    fn is_first(&self) -> bool {
        self.parent.is_none_or(|parent| matches!(parent.segment, Segment::Request))
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.segment {
            Segment::Request => Ok(()),
            Segment::Field(name) if self.is_first() => f.write_str(name),
            Segment::Field(name) => write!(f, ".{name}"),
            Segment::Foreign(place) => f.write_str(place),
            Segment::Index(index) => write!(f, "[{index}]"),
            Segment::Key(key) => write!(f, "[\"{}\"]", key.chars().take(MAX_KEY_CHARS).collect::<String>()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_path_is_written_as_in_the_proto() {
        let input = Path::to("input");
        assert_eq!(input.to_string(), "input");
        assert_eq!(Path::request().field("input").to_string(), "input");
        assert_eq!(input.field("parts").index(2).field("text").to_string(), "input.parts[2].text");
        assert_eq!(input.field("metadata").key("a").to_string(), "input.metadata[\"a\"]");
    }

    #[test]
    fn a_path_below_a_message_of_another_api_is_split() {
        let place = Path::foreign("messages_json[3].content[1]");
        assert_eq!(
            place.field("tool_call").field("call_id").of_foreign(),
            Some(("messages_json[3].content[1]", "tool_call.call_id".to_owned()))
        );
        assert_eq!(place.of_foreign().map(|(_, field)| field), Some(String::new()));
        assert_eq!(Path::to("input").field("parts").of_foreign(), None);
    }

    #[test]
    fn long_map_keys_are_shortened_in_paths() {
        assert_eq!(Path::to("metadata").key(&"ü".repeat(100)).to_string(), format!("metadata[\"{}\"]", "ü".repeat(40)));
    }
}
