//! Rewrites call ids to what a service accepts. An id may originate from another service or from a
//! host.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{CallId, Message, derive, service_rules::CallIdRule};

/// Maximum length of a call id, in characters, for services that document no other limit.
const MAX_CHARS: usize = 40;

/// Exact length of a call id for Mistral, in characters.
const NINE: usize = 9;

/// The call ids of a transcript that are sent under another id.
#[derive(Debug, Default)]
pub(super) struct CallIdMap {
    renamed: BTreeMap<CallId, String>,
}

impl CallIdMap {
    /// Renames the ids that the service would reject. The same transcript always yields the same
    /// names, so that prompt caches stay valid.
    pub(super) fn of(messages: &[Message], rule: CallIdRule) -> Self {
        Self::keeping(messages, rule, |_| false)
    }

    /// Like `of`, but keeps the ids in messages for which `keeps` returns true unchanged.
    pub(super) fn keeping(messages: &[Message], rule: CallIdRule, keeps: impl Fn(&Message) -> bool) -> Self {
        let calls = messages.iter().flat_map(|message| {
            let kept = keeps(message);
            let calls = message.parts.iter();
            let calls = calls.filter_map(|stored| stored.part.content.as_call());
            calls.map(move |call| (&call.id, kept))
        });
        let (good, bad): (Vec<_>, Vec<_>) = calls.partition(|(id, kept)| *kept || takes(rule, id.as_str()));
        let good = good.into_iter().map(|(id, _)| id.as_str().to_owned());
        let mut taken: BTreeSet<String> = good.collect();
        let mut renamed = BTreeMap::new();
        for (id, _) in bad {
            let mut names = (0..).map(|turn: u32| name(rule, id, turn));
            let name = names.find(|name| !taken.contains(name)).unwrap_or_default();
            taken.insert(name.clone());
            renamed.insert(id.clone(), name);
        }
        Self { renamed }
    }

    /// The id to send.
    pub(super) fn get<'a>(&'a self, id: &'a CallId) -> &'a str {
        self.renamed.get(id).map_or(id.as_str(), String::as_str)
    }
}

fn takes(rule: CallIdRule, id: &str) -> bool {
    match rule {
        CallIdRule::Short => {
            (1..=MAX_CHARS).contains(&id.len())
                && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
        }
        CallIdRule::Nine => id.len() == NINE && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
    }
}

fn name(rule: CallIdRule, id: &CallId, turn: u32) -> String {
    let print = derive::fingerprint(["call", id.as_str(), &turn.to_string()]);
    match rule {
        CallIdRule::Short => format!("call_{}", &print[..32]),
        CallIdRule::Nine => print[..NINE].to_owned(),
    }
}
