//! Search keys of sessions in addition to their ids: a hash of each metadata entry and the beginning of the title,
//! stored with each configuration. ListSessions uses them.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::model::{SessionConfig, TenantId};

/// The metadata entry that contains a session's title.
const TITLE: &str = "title";
/// Number of indexed characters of a title, which is also the maximum length of a requested prefix.
pub const TITLE_CHARS: usize = 128;

/// Search keys, as stored with each configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Labels {
    pub(super) labels: Vec<Vec<u8>>,
    pub(super) title: Option<String>,
}

impl Labels {
    pub(super) fn of(tenant: &TenantId, config: &SessionConfig) -> Self {
        let title = config.metadata.get(TITLE).filter(|title| !title.is_empty());
        Self {
            labels: labels(tenant, &config.metadata),
            title: title.map(|title| title.chars().take(TITLE_CHARS).collect()),
        }
    }
}

/// A hash of each entry and the tenant, so that one tenant's search never finds another tenant's sessions.
pub(super) fn labels(tenant: &TenantId, metadata: &BTreeMap<String, String>) -> Vec<Vec<u8>> {
    metadata
        .iter()
        .map(|(key, value)| {
            let mut hash = Sha256::new();
            for text in [tenant.as_str(), key, value] {
                hash.update((text.len() as u64).to_be_bytes());
                hash.update(text);
            }
            hash.finalize().iter().take(16).copied().collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(key.to_owned(), value.to_owned())])
    }

    #[test]
    fn labels_differ_by_tenant_key_and_value() {
        let of = |tenant: &str, key, value| labels(&TenantId::new(tenant), &entry(key, value));
        let all = [of("a", "k", "v"), of("b", "k", "v"), of("ak", "", "v"), of("a", "kv", ""), of("a", "", "kv")];
        for (i, one) in all.iter().enumerate() {
            assert_eq!(one[0].len(), 16);
            assert!(!all[..i].contains(one), "{i}");
        }
    }

    #[test]
    fn a_long_title_is_stored_up_to_the_longest_prefix() {
        let config = |title: &str| SessionConfig { metadata: entry("title", title), ..SessionConfig::default() };
        let tenant = TenantId::new("t");
        let of = |title: &str| Labels::of(&tenant, &config(title)).title;
        assert_eq!(of(""), None);
        assert_eq!(of("Ärger").as_deref(), Some("Ärger"));
        assert_eq!(of(&"ü".repeat(200)), Some("ü".repeat(TITLE_CHARS)));
    }
}
