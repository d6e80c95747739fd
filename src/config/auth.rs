//! The settings of who may call.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::Uri;
use serde::{Deserialize, Serialize};

use super::check::Checks;
use crate::model::Access;
use crate::model::access::is_tenant;

/// `[auth]`: how callers are identified, and what they may do.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AuthConfig {
    /// Refuse callers without a valid credential. Without it every caller is an operator of the
    /// tenant `default`.
    pub required: bool,
    /// TOML file of API keys (docs/operations.md). Changes take effect within 5 s.
    pub keys_file: Option<PathBuf>,
    /// Where JSON web tokens come from. Nothing set: none are accepted.
    pub jwt: JwtConfig,
    /// Client certificates, by a name in them: a URI (such as a SPIFFE id) or a DNS name among the
    /// subject's alternative names. They need `tls.client_ca_file`.
    pub certificates: BTreeMap<String, GrantConfig>,
}

/// What a client certificate gives.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GrantConfig {
    /// The tenant whose data it gives access to.
    pub tenant: String,
    /// What it allows.
    pub access: Access,
}

/// `[auth.jwt]`: tokens of one issuer, signed with RS, PS, ES or EdDSA.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JwtConfig {
    /// The `iss` of tokens.
    pub issuer: Option<String>,
    /// The `aud` of tokens.
    pub audience: Option<String>,
    /// Where the issuer publishes its keys; `https`, or a loopback address.
    pub jwks_url: Option<String>,
    /// A file of those keys instead.
    pub jwks_file: Option<PathBuf>,
    /// The claim that names the tenant.
    pub tenant_claim: String,
    /// The claim with what the token allows: `contextd:read`, `contextd:write`, `contextd:admin` or
    /// `contextd:operator`, alone, in a list, or among other words. In another claim than `scope` and
    /// `scp`, which are about all services of the issuer, also without `contextd:`. The highest holds.
    pub access_claim: String,
}

impl Default for JwtConfig {
    fn default() -> Self {
        Self {
            issuer: None,
            audience: None,
            jwks_url: None,
            jwks_file: None,
            tenant_claim: "tenant".to_owned(),
            access_claim: "scope".to_owned(),
        }
    }
}

impl JwtConfig {
    /// Whether tokens are accepted.
    pub fn is_set(&self) -> bool {
        self.issuer.is_some()
    }
}

impl AuthConfig {
    pub(super) fn check(&self, checks: &mut Checks) {
        let Self {
            required,
            keys_file,
            jwt,
            certificates,
        } = self;
        let sources = keys_file.is_some() || jwt.is_set() || !certificates.is_empty();
        checks.require(*required || !sources, "auth.required", || {
            "credentials are configured but not required; set auth.required = true, or remove them"
                .to_owned()
        });
        checks.require(!*required || sources, "auth.required", || {
            "no credential could ever be valid: set auth.keys_file, auth.jwt or auth.certificates"
                .to_owned()
        });
        for (name, grant) in certificates {
            checks.require(
                is_tenant(&grant.tenant),
                &format!("auth.certificates.{name}.tenant"),
                || format!("{:?} is not 1 to 64 of a-z, 0-9, -, _ and .", grant.tenant),
            );
        }
        jwt.check(checks);
    }
}

impl JwtConfig {
    fn check(&self, checks: &mut Checks) {
        let Self {
            issuer,
            audience,
            jwks_url,
            jwks_file,
            tenant_claim,
            access_claim,
        } = self;
        let anything = audience.is_some() || jwks_url.is_some() || jwks_file.is_some();
        if issuer.is_none() {
            checks.require(!anything, "auth.jwt.issuer", || "is not set".to_owned());
            return;
        }
        checks.require(audience.is_some(), "auth.jwt.audience", || {
            "is not set: tokens that were issued for other services would be accepted".to_owned()
        });
        checks.require(
            jwks_url.is_some() != jwks_file.is_some(),
            "auth.jwt.jwks_url",
            || "set either this or auth.jwt.jwks_file".to_owned(),
        );
        if let Some(url) = jwks_url {
            checks.require(is_safe(url), "auth.jwt.jwks_url", || {
                format!("{url} is neither https nor on a loopback address")
            });
        }
        for (key, claim) in [
            ("auth.jwt.tenant_claim", tenant_claim),
            ("auth.jwt.access_claim", access_claim),
        ] {
            checks.require(!claim.is_empty(), key, || "is empty".to_owned());
        }
    }
}

/// Whether nothing can be read or put in on the way.
pub(super) fn is_safe(url: &str) -> bool {
    let Ok(url) = url.parse::<Uri>() else {
        return false;
    };
    match url.scheme_str() {
        Some("https") => url.host().is_some(),
        Some("http") => matches!(url.host(), Some("localhost" | "127.0.0.1" | "[::1]")),
        Some(_) | None => false,
    }
}
