//! The keys file: API keys that are there before any other, such as an operator's, and those of
//! installations that keep their secrets elsewhere.

use std::{io, path::Path};

use jiff::Timestamp;
use serde::Deserialize;

use super::{
    DEFAULT_TENANT,
    secret::{self, Hash},
};
use crate::model::{Access, TenantId, access::is_tenant};

/// Bytes of a keys file: about ten thousand keys.
const MOST_BYTES: u64 = 4 << 20;

/// A key of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileKey {
    /// Its name in logs.
    pub name: String,
    /// Whose data it gives access to.
    pub tenant: TenantId,
    /// What it allows.
    pub access: Access,
    /// SHA-256 of the whole key.
    pub hash: Hash,
    /// From when on it is refused.
    pub expires_at: Option<Timestamp>,
}

/// What is wrong with a keys file. It never quotes a value: those may be secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It is no such TOML.
    #[error("line {line}: {what}")]
    Syntax {
        /// The line.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A value is wrong.
    #[error("the key {name:?}: {what}")]
    Value {
        /// The key's name.
        name: String,
        /// What is wrong.
        what: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    keys: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    tenant: Option<String>,
    access: Access,
    /// The hash of the key, in hexadecimal digits.
    sha256: Option<String>,
    /// The key itself.
    key: Option<String>,
    /// RFC 3339.
    expires: Option<String>,
}

/// The text of the file.
pub async fn read(path: &Path) -> io::Result<String> {
    let size = tokio::fs::metadata(path).await?.len();
    if size > MOST_BYTES {
        let message = format!("it has more than {MOST_BYTES} bytes");
        return Err(io::Error::other(message));
    }
    tokio::fs::read_to_string(path).await
}

/// The keys in it.
pub fn parse(text: &str) -> Result<Vec<FileKey>, Problem> {
    let file: File = toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        Problem::Syntax {
            line: before.unwrap_or_default().matches('\n').count() + 1,
            what: "expected [[keys]] with name, access, sha256 or key, and if need be tenant and expires",
        }
    })?;
    file.keys.into_iter().map(Entry::into_key).collect()
}

impl Entry {
    fn into_key(self) -> Result<FileKey, Problem> {
        let Self {
            name,
            tenant,
            access,
            sha256,
            key,
            expires,
        } = self;
        let wrong = |what| Problem::Value {
            name: name.clone(),
            what,
        };
        let tenant = tenant.unwrap_or_else(|| DEFAULT_TENANT.to_owned());
        if !is_tenant(&tenant) {
            return Err(wrong("tenant is not 1 to 64 of a-z, 0-9, -, _ and ."));
        }
        let hash = match (sha256, key) {
            (Some(digits), None) => secret::hash_from_hex(digits.trim())
                .ok_or_else(|| wrong("sha256 is not 64 hexadecimal digits"))?,
            (None, Some(key)) => secret::hash(key.trim())
                .ok_or_else(|| wrong("key is none that `contextd admin key generate` made"))?,
            (Some(_), Some(_)) | (None, None) => {
                return Err(wrong("give either sha256 or key"));
            }
        };
        let expires_at = match expires {
            Some(text) => Some(
                text.parse()
                    .map_err(|_| wrong("expires is no time such as 2027-01-01T00:00:00Z"))?,
            ),
            None => None,
        };
        Ok(FileKey {
            tenant: TenantId::new(tenant),
            access,
            hash,
            expires_at,
            name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::derive::hex;

    #[test]
    fn keys_are_read_with_their_tenant_and_access() {
        let (key, hash) = secret::generate().unwrap();
        let text = format!(
            "[[keys]]\nname = 'ops'\naccess = 'operator'\nkey = '{key}'\n\
             [[keys]]\nname = 'acme'\ntenant = 'acme'\naccess = 'write'\nsha256 = '{}'\nexpires = '2027-01-01T00:00:00Z'\n",
            hex(&hash.0)
        );
        let keys = parse(&text).unwrap();
        let seen: Vec<_> = keys
            .iter()
            .map(|key| {
                (
                    key.name.as_str(),
                    key.tenant.as_str(),
                    key.access,
                    key.hash == hash,
                )
            })
            .collect();
        let expected = [
            ("ops", "default", Access::Operator, true),
            ("acme", "acme", Access::Write, true),
        ];
        assert_eq!(seen, expected);
        assert_eq!(
            keys[1].expires_at,
            Some("2027-01-01T00:00:00Z".parse().unwrap())
        );
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    #[test]
    fn problems_name_the_place_and_quote_no_value() {
        let check = |text: &str, expected: &str| {
            let problem = parse(text).unwrap_err().to_string();
            assert!(problem.contains(expected), "{problem}");
            assert!(!problem.contains("s3cret"), "{problem}");
        };
        check("[[keys]]\nname = 's3cret", "line 2");
        check("[[keys]]\nname = 'a'\naccess = 's3cret'", "line 3");
        check("[[keys]]\nname = 'a'\naccess = 'read'\ns3cret = 1", "line");
        check(
            "[[keys]]\nname = 'a'\naccess = 'read'",
            "either sha256 or key",
        );
        check(
            "[[keys]]\nname = 'a'\naccess = 'read'\nkey = 's3cret'",
            "key is none",
        );
        check(
            "[[keys]]\nname = 'a'\naccess = 'read'\nsha256 = 's3cret'",
            "64 hexadecimal",
        );
        check(
            &format!(
                "[[keys]]\nname = 'a'\naccess = 'read'\ntenant = 'a b'\nsha256 = '{}'",
                "0".repeat(64)
            ),
            "tenant",
        );
    }
}
