//! The settings of authentication.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::Uri;
use serde::{Deserialize, Serialize};

use crate::model::Access;
use crate::model::access::is_tenant;
use crate::settings::{ByName, Checks, Kind, settings};

settings! {
    /// `[auth]`: how callers are authenticated, and what they may do.
    pub struct AuthConfig {
        /// Refuse callers without a valid credential. If false, every caller is an operator of the tenant `default`.
        required: bool = false;
        /// TOML file of API keys (docs/operations.md); `contextd admin key generate` prints an entry. Changes take effect
        /// within 5 s. Not set: only the keys in the database.
        keys_file: Option<PathBuf> = None;
        /// The issuer of JSON Web Tokens. Not set: no tokens are accepted.
        jwt: JwtConfig = JwtConfig::default();
        /// Client certificates, by a name in them: a URI (such as a SPIFFE id) or a DNS name of the subject's
        /// alternative names. They need `tls.client_ca_file`.
        certificates: BTreeMap<String, GrantConfig> = BTreeMap::new();
    }
}

/// What a client certificate grants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GrantConfig {
    /// The tenant to whose data it grants access.
    pub tenant: String,
    pub access: Access,
}

impl ByName for GrantConfig {
    fn kind_by_name() -> Kind {
        Kind::Tables
    }
}

settings! {
    /// `[auth.jwt]`: tokens of one issuer, signed with RS, PS, ES or EdDSA.
    pub struct JwtConfig {
        /// The `iss` of tokens.
        issuer: Option<String> = None;
        /// The `aud` of tokens.
        audience: Option<String> = None;
        /// URL of the issuer's keys: `https`, or a loopback address.
        jwks_url: Option<String> = None;
        /// File of those keys, instead of `jwks_url`.
        jwks_file: Option<PathBuf> = None;
        /// The claim that names the tenant.
        tenant_claim: String = "tenant".to_owned();
        /// The claim that grants access: `contextd:read`, `contextd:write`, `contextd:admin` or `contextd:operator`, in
        /// a string of values separated by spaces or in a list of strings; other values are ignored. The prefix
        /// `contextd:` may be left out, except in `scope` and `scp`, which apply to all services of the issuer. The
        /// highest access applies.
        access_claim: String = "scope".to_owned();
    }
}

impl JwtConfig {
    /// Whether tokens are accepted.
    pub fn is_set(&self) -> bool {
        self.issuer.is_some()
    }
}

impl AuthConfig {
    /// Whether callers can belong to several tenants. Callers without credentials all belong to the same one.
    pub fn is_shared(&self) -> bool {
        self.required
    }

    pub(super) fn check(&self, checks: &mut Checks) {
        let Self { required, keys_file, jwt, certificates } = self;
        let sources = keys_file.is_some() || jwt.is_set() || !certificates.is_empty();
        checks.require(*required || !sources, "auth.required", || {
            "credentials are configured but not required; set auth.required = true, or remove them".to_owned()
        });
        checks.require(!*required || sources, "auth.required", || {
            "no credential source is configured: set auth.keys_file, auth.jwt or auth.certificates".to_owned()
        });
        for (name, grant) in certificates {
            checks.require(is_tenant(&grant.tenant), &format!("auth.certificates.{name}.tenant"), || {
                format!("{:?} must be 1 to 64 characters of [a-z0-9._-]", grant.tenant)
            });
        }
        jwt.check(checks);
    }
}

impl JwtConfig {
    fn check(&self, checks: &mut Checks) {
        let Self { issuer, audience, jwks_url, jwks_file, tenant_claim, access_claim } = self;
        let anything = audience.is_some() || jwks_url.is_some() || jwks_file.is_some();
        if issuer.is_none() {
            checks.require(!anything, "auth.jwt.issuer", || "must be set if another key of auth.jwt is set".to_owned());
            return;
        }
        checks.require(audience.is_some(), "auth.jwt.audience", || {
            "must be set: otherwise tokens for other services would be accepted".to_owned()
        });
        checks.require(jwks_url.is_some() != jwks_file.is_some(), "auth.jwt.jwks_url", || {
            "set exactly one of auth.jwt.jwks_url and auth.jwt.jwks_file".to_owned()
        });
        if let Some(url) = jwks_url {
            checks.require(is_secure_url(url), "auth.jwt.jwks_url", || {
                format!("{url} must use https, or be on a loopback address")
            });
        }
        for (key, claim) in [("auth.jwt.tenant_claim", tenant_claim), ("auth.jwt.access_claim", access_claim)] {
            checks.require(!claim.is_empty(), key, || "must not be empty".to_owned());
        }
    }
}

/// Whether requests to this URL cannot be read or changed in transit: it uses https, or is on a loopback address.
pub(super) fn is_secure_url(url: &str) -> bool {
    let Ok(url) = url.parse::<Uri>() else {
        return false;
    };
    match url.scheme_str() {
        Some("https") => url.host().is_some(),
        Some("http") => matches!(url.host(), Some("localhost" | "127.0.0.1" | "[::1]")),
        Some(_) | None => false,
    }
}
