//! The authenticated caller: its tenant and its access level.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::TenantId;

/// The tenant of callers whose credential names none.
pub const DEFAULT_TENANT: &str = "default";

/// Access level of a credential. Each level includes the levels before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Read the tenant's data.
    Read,
    /// Also change the tenant's data and run turns.
    Write,
    /// Also manage the tenant's API keys.
    Admin,
    /// Also manage the API keys of every tenant.
    Operator,
}

impl Access {
    /// All levels, lowest first.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Admin, Self::Operator];

    /// The level's name in configuration and credentials.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
            Self::Operator => "operator",
        }
    }

    /// Parses a level's name. Returns `None` for an unknown name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|access| access.name() == name)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub tenant: TenantId,
    pub access: Access,
    /// The caller's name in logs, such as `key:<key_id>`.
    pub subject: String,
}

/// Maximum length of a tenant id, in characters.
const MAX_TENANT_CHARS: usize = 64;

/// Whether the text is a valid tenant id: 1 to 64 characters of `a-z`, `0-9`, `-`, `_` and `.`.
pub fn is_tenant(id: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    (1..=MAX_TENANT_CHARS).contains(&id.len()) && id.bytes().all(fits)
}

/// An API key as stored, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    pub id: String,
    pub tenant: TenantId,
    pub access: Access,
    /// A label chosen by the creator of the key.
    pub name: String,
    pub created_at: jiff::Timestamp,
    /// The key is rejected from this time on. `None` means it does not expire.
    pub expires_at: Option<jiff::Timestamp>,
    /// The key has been rejected since this time. `None` means it is not revoked.
    pub revoked_at: Option<jiff::Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_access_includes_the_lower_ones() {
        assert!(Access::ALL.is_sorted());
        for access in Access::ALL {
            assert_eq!(Access::from_name(access.name()), Some(access));
        }
        assert_eq!(Access::from_name("Admin"), None);
    }

    #[test]
    fn tenant_ids_are_short_and_plain() {
        let check = |id: &str, expected: bool| assert_eq!(is_tenant(id), expected, "{id:?}");
        check("default", true);
        check("acme-2.eu_west", true);
        check(&"a".repeat(64), true);
        check(&"a".repeat(65), false);
        check("", false);
        check("a b", false);
        check("Acme", false);
        check("a/b", false);
        check("a\nb", false);
        check("ä", false);
    }
}
