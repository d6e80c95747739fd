//! Filters for lists of sessions, and the choice of the index.

use std::{collections::BTreeMap, sync::LazyLock};

use jiff::Timestamp;

use super::{
    Error, Store,
    bounded_page::BoundedPage,
    named_parameters::Named,
    number::Number as _,
    pipeline::Param,
    session::{Session, session},
    session_labels::labels,
};
use crate::{
    model::{SessionId, TenantId},
    session::SessionState,
};

/// Conditions for the sessions of a list. The default selects all sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionFilter {
    /// Allowed states; empty for all.
    pub states: Vec<SessionState>,
    /// Metadata entries that sessions must have.
    pub metadata: BTreeMap<String, String>,
    /// Sessions must be last used at this time or later.
    pub since: Option<Timestamp>,
    /// Sessions must be last used before this time.
    pub until: Option<Timestamp>,
    /// Prefix of the id or title.
    pub text: String,
}

/// The index by which sessions are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FoundBy {
    /// Time of the last use, which is also the order of the list.
    Time,
    /// Sessions with a running turn.
    Live,
    /// Metadata entries.
    Labels,
    /// Prefix of the id or title.
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
    /// Returns a text that identifies the filter in page tokens; empty for all sessions.
    pub fn fingerprint(&self) -> String {
        if *self == Self::default() { String::new() } else { format!("{self:?}") }
    }

    /// The most selective index: few sessions have a running turn, and times are the least selective condition.
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

    /// An upper bound, in byte order, of all texts that begin with `text`.
    pub(super) fn text_end(&self) -> String {
        format!("{}{}", self.text, char::MAX)
    }
}

static LIST: LazyLock<Named> = named_alone!("sql/sessions/list.sql");
static FIND: LazyLock<Named> = named_alone!("sql/sessions/list_filtered.sql");

/// Returns the statements that list sessions, by name, for tests of their plans.
#[doc(hidden)]
pub fn list_statements() -> [(&'static str, &'static Named); 2] {
    [("list", &LIST), ("find", &FIND)]
}

impl Store {
    /// Lists the sessions of a tenant that match a filter, last used first, after `after`: at most `limit` sessions
    /// whose configurations have at most `bytes` of stored size, but at least one session. Tools are not read.
    pub async fn sessions(
        &self,
        tenant: &TenantId,
        filter: &SessionFilter,
        after: Option<&(Timestamp, SessionId)>,
        limit: u32,
        bytes: i64,
    ) -> Result<BoundedPage<Session>, Error> {
        let at = after.map(|(at, _)| *at);
        let session_id = after.map_or("", |(_, session)| session.as_str());
        let labels = labels(tenant, &filter.metadata);
        let tenant = tenant.as_str();
        let limit = i64::from(limit);
        let states: Vec<i16> = filter.states.iter().map(|state| state.number()).collect();
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
        BoundedPage::new(rows.iter().map(session).collect::<Result<_, _>>()?, &rows)
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
        let text = SessionFilter { text: "ab".to_owned(), ..all() };
        let labels = SessionFilter { metadata: entry("k", "v"), ..text.clone() };
        let of_live = SessionFilter { states: live.clone(), ..labels.clone() };
        let idle = SessionFilter { states: [live, vec![SessionState::Idle]].concat(), ..all() };
        check(text, FoundBy::Text);
        check(labels, FoundBy::Labels);
        check(of_live, FoundBy::Live);
        check(idle, FoundBy::Time);
    }
}
