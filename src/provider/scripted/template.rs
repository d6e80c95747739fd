//! Placeholders in the texts of scripts.

use std::collections::BTreeMap;

use super::script_context::{Pick, ScriptContext};

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    pieces: Vec<Piece>,
}

/// A literal text or a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(String),
    User,
    Call,
    Result(String),
    Pick(String),
}

impl Template {
    /// Parses a template. `picks` are the names that the script declares. Returns an error for an
    /// unknown placeholder.
    pub(super) fn parse(text: &str, picks: &BTreeMap<String, Pick>) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, after_it) = after.split_once("}}").ok_or("{{ without }}")?;
            pieces.push(Piece::Literal(before.to_owned()));
            pieces.push(Piece::parse(name.trim(), picks)?);
            rest = after_it;
        }
        pieces.push(Piece::Literal(rest.to_owned()));
        Ok(Self { pieces })
    }

    /// Renders the text for a prompt.
    pub(super) fn render(&self, context: &ScriptContext<'_>) -> String {
        let pieces = self.pieces.iter();
        pieces.map(|it| it.render(context, |value| value)).collect()
    }

    /// Renders a template that is JSON and has its placeholders inside of strings.
    pub(super) fn render_json(&self, context: &ScriptContext<'_>) -> String {
        let pieces = self.pieces.iter();
        pieces.map(|it| it.render(context, escape)).collect()
    }
}

impl Piece {
    /// Parses the name of a placeholder.
    fn parse(name: &str, picks: &BTreeMap<String, Pick>) -> Result<Self, String> {
        match name.split_once(':') {
            Some(("result", tool)) => Ok(Self::Result(tool.trim().to_owned())),
            None if name == "user" => Ok(Self::User),
            None if name == "call" => Ok(Self::Call),
            None if picks.contains_key(name) => Ok(Self::Pick(name.to_owned())),
            Some(_) | None => {
                Err(format!("{{{{{name}}}}} is unknown: use user, call, result:TOOL or a pick of the script"))
            }
        }
    }

    /// Renders this element. Only inserted values are escaped.
    fn render(&self, context: &ScriptContext<'_>, escape: impl Fn(String) -> String) -> String {
        match self {
            Self::Literal(text) => text.clone(),
            Self::User => escape(context.user_text.clone()),
            Self::Call => context.call.to_string(),
            Self::Result(tool) => escape(context.result_of(tool)),
            Self::Pick(pick) => escape(context.picked(pick).to_owned()),
        }
    }
}

/// Escapes text for use within a JSON string literal.
fn escape(text: String) -> String {
    let quoted = serde_json::Value::String(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}
