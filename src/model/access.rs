//! Who calls, and what that caller may do.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::TenantId;

/// The tenant of callers that name none.
pub const DEFAULT_TENANT: &str = "default";

/// What a credential allows. Each level includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Read what the tenant has.
    Read,
    /// Also change it, and run turns.
    Write,
    /// Also manage the tenant's API keys.
    Admin,
    /// Also manage those of every tenant.
    Operator,
}

impl Access {
    /// All levels, the least first.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Admin, Self::Operator];

    /// Its name in configuration and credentials.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
            Self::Operator => "operator",
        }
    }

    /// The level of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|access| access.name() == name)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A caller that was identified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Whose data it sees.
    pub tenant: TenantId,
    /// What it may do with it.
    pub access: Access,
    /// Its name in logs, such as `key:<key_id>`.
    pub subject: String,
}

/// Characters of a tenant's id, at most.
const LONGEST_TENANT: usize = 64;

/// Whether a text can be the id of a tenant: 1 to 64 characters of `a-z`, `0-9`, `-`, `_` and `.`.
pub fn is_tenant(id: &str) -> bool {
    let fits =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    (1..=LONGEST_TENANT).contains(&id.len()) && id.bytes().all(fits)
}

/// An API key as it is stored: without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Which.
    pub id: String,
    /// Whose data it gives access to.
    pub tenant: TenantId,
    /// What it allows.
    pub access: Access,
    /// What it is for.
    pub name: String,
    /// When it was made.
    pub created_at: jiff::Timestamp,
    /// From when on it is refused.
    pub expires_at: Option<jiff::Timestamp>,
    /// Since when it is refused.
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
