//! Client certificates: a name in one that TLS has verified is granted a tenant and an access.

use std::collections::BTreeMap;

use x509_parser::{
    extensions::GeneralName,
    prelude::{FromDer as _, X509Certificate},
};

use super::error::Denied;
use crate::{
    config::GrantConfig,
    model::{Principal, TenantId},
};

/// Whoever the certificate names, by the first of its names with a grant: URIs first, then DNS
/// names.
pub fn principal(
    certificate: &[u8],
    grants: &BTreeMap<String, GrantConfig>,
) -> Result<Principal, Denied> {
    let names = names(certificate).ok_or(Denied::Certificate)?;
    let granted = names
        .into_iter()
        .find_map(|name| grants.get(&name).map(|grant| (name, grant)));
    let (name, grant) = granted.ok_or(Denied::Certificate)?;
    Ok(Principal {
        tenant: TenantId::new(grant.tenant.as_str()),
        access: grant.access,
        subject: format!("certificate:{name}"),
    })
}

/// The URIs and DNS names among the subject's alternative names.
fn names(certificate: &[u8]) -> Option<Vec<String>> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let alternatives = certificate.subject_alternative_name().ok()??;
    let mut uris = Vec::new();
    let mut hosts = Vec::new();
    for name in &alternatives.value.general_names {
        if let GeneralName::URI(uri) = name {
            uris.push((*uri).to_owned());
        } else if let GeneralName::DNSName(host) = name {
            hosts.push((*host).to_owned());
        }
    }
    uris.append(&mut hosts);
    Some(uris)
}
