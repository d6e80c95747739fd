//! Which sessions a list shows, and by which index they are found.

use std::{collections::BTreeMap, sync::LazyLock};

use jiff::Timestamp;

use super::{
    Error, Store,
    bounded_page::Listed,
    named_parameters::Named,
    pipeline::Param,
    row::state_number,
    session::{Session, session},
    session_labels::labels,
};
use crate::{
    model::{SessionId, TenantId},
    session::SessionState,
};

/// What the sessions of a list have in common. The default chooses all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionFilter {
    /// They are in one of these states. Empty: in any.
    pub states: Vec<SessionState>,
    /// Their metadata has these entries.
    pub metadata: BTreeMap<String, String>,
    /// They were last used at this time or later.
    pub since: Option<Timestamp>,
    /// They were last used before this time.
    pub until: Option<Timestamp>,
    /// Their id or title begins with this.
    pub text: String,
}

/// The index by which sessions are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FoundBy {
    /// The time of their last use, which is also their order.
    Time,
    /// Their turn is live.
    Live,
    /// Their metadata.
    Labels,
    /// The beginning of their id or title.
    Text,
}

impl FoundBy {
    /// Its name in the statement.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Live => "live",
            Self::Labels => "labels",
            Self::Text => "text",
        }
    }
}

impl SessionFilter {
    /// What tells filters apart, for the page tokens of a list; empty for all sessions.
    pub fn fingerprint(&self) -> String {
        if *self == Self::default() {
            String::new()
        } else {
            format!("{self:?}")
        }
    }

    /// The index that leaves the fewest: few sessions are live, and times leave out least.
    pub(super) fn found_by(&self) -> FoundBy {
        if !self.states.is_empty() && self.states.iter().all(|state| state.is_live()) {
            FoundBy::Live
        } else if !self.metadata.is_empty() {
            FoundBy::Labels
        } else if !self.text.is_empty() {
            FoundBy::Text
        } else {
            FoundBy::Time
        }
    }

    /// What every text that begins with `text` sorts before, by bytes.
    pub(super) fn text_end(&self) -> String {
        format!("{}{}", self.text, char::MAX)
    }
}

static LIST: LazyLock<Named> = named_alone!("sql/sessions/list.sql");
static FIND: LazyLock<Named> = named_alone!("sql/sessions/list_filtered.sql");

/// The statements that list sessions, by name. Tests look at their plans.
#[doc(hidden)]
pub fn list_statements() -> [(&'static str, &'static Named); 2] {
    [("list", &LIST), ("find", &FIND)]
}

impl Store {
    /// Sessions of a tenant that a filter chooses, the last used first, after `after`: at most `limit`, and as many as
    /// have configurations of at most `bytes` as they are stored, but at least one. Without
    /// their tools.
    pub async fn sessions(
        &self,
        tenant: &TenantId,
        filter: &SessionFilter,
        after: Option<&(Timestamp, SessionId)>,
        limit: u32,
        bytes: i64,
    ) -> Result<Listed<Session>, Error> {
        let at = after.map(|(at, _)| *at);
        let session_id = after.map_or("", |(_, session)| session.as_str());
        let labels = labels(tenant, &filter.metadata);
        let tenant = tenant.as_str();
        let limit = i64::from(limit);
        let states: Vec<i16> = filter
            .states
            .iter()
            .map(|state| state_number(*state))
            .collect();
        let mut values = vec![
            ("tenant", &tenant as Param<'_>),
            ("states", &states),
            ("since", &filter.since),
            ("until", &filter.until),
            ("after", &at),
            ("after_session", &session_id),
            ("limit", &limit),
            ("bytes", &bytes),
        ];
        let by = filter.found_by();
        let by_name = by.name();
        let text_end = filter.text_end();
        let rows = if by == FoundBy::Time {
            self.database.read_named(&LIST, &values).await?
        } else {
            values.extend([
                ("by", &by_name as Param<'_>),
                ("labels", &labels),
                ("text", &filter.text),
                ("text_end", &text_end),
            ]);
            self.database.read_named(&FIND, &values).await?
        };
        Listed::new(rows.iter().map(session).collect::<Result<_, _>>()?, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(key.to_owned(), value.to_owned())])
    }

    #[test]
    fn the_index_that_leaves_the_fewest_sessions_is_chosen() {
        let check = |filter: SessionFilter, expected| {
            assert_eq!(filter.found_by(), expected, "{filter:?}");
        };
        let live = vec![SessionState::Running, SessionState::AwaitingTools];
        let all = SessionFilter::default;
        check(all(), FoundBy::Time);
        let text = SessionFilter {
            text: "ab".to_owned(),
            ..all()
        };
        let labels = SessionFilter {
            metadata: entry("k", "v"),
            ..text.clone()
        };
        let of_live = SessionFilter {
            states: live.clone(),
            ..labels.clone()
        };
        let idle = SessionFilter {
            states: [live, vec![SessionState::Idle]].concat(),
            ..all()
        };
        check(text, FoundBy::Text);
        check(labels, FoundBy::Labels);
        check(of_live, FoundBy::Live);
        check(idle, FoundBy::Time);
    }
}
