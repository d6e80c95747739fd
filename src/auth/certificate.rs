//! Client certificates: maps a name in a certificate verified by TLS to a tenant and an access.

use std::collections::BTreeMap;

use jiff::Timestamp;
use x509_parser::{
    extensions::GeneralName,
    prelude::{FromDer as _, X509Certificate},
};

use super::error::Denied;
use crate::{
    config::GrantConfig,
    model::{Principal, TenantId},
};

/// The caller named by a certificate, and when the certificate expires. The first name with a grant decides:
/// URIs first, then DNS names. Returns [`Denied::Certificate`] if no name has a grant.
pub fn principal(certificate: &[u8], grants: &BTreeMap<String, GrantConfig>) -> Result<(Principal, Timestamp), Denied> {
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| Denied::Certificate)?;
    let names = names(&certificate).ok_or(Denied::Certificate)?;
    let granted = names.into_iter().find_map(|name| grants.get(&name).map(|grant| (name, grant)));
    let (name, grant) = granted.ok_or(Denied::Certificate)?;
    let principal = Principal {
        tenant: TenantId::new(grant.tenant.as_str()),
        access: grant.access,
        subject: format!("certificate:{name}"),
    };
    let expires_at = Timestamp::from_second(certificate.validity().not_after.timestamp());
    Ok((principal, expires_at.unwrap_or(Timestamp::MAX)))
}

/// Whether a name is a URI: every URI has a colon, and no DNS name has. A certificate with a DNS name that
/// looks like a URI must not get the grant of that URI.
fn is_uri(name: &str) -> bool {
    name.contains(':')
}

/// The URIs and DNS names of the certificate's subject alternative names, URIs first.
fn names(certificate: &X509Certificate<'_>) -> Option<Vec<String>> {
    let alternatives = certificate.subject_alternative_name().ok()??;
    let mut uris = Vec::new();
    let mut hosts = Vec::new();
    for name in &alternatives.value.general_names {
        if let GeneralName::URI(uri) = name
            && is_uri(uri)
        {
            uris.push((*uri).to_owned());
        } else if let GeneralName::DNSName(host) = name
            && !is_uri(host)
        {
            hosts.push((*host).to_owned());
        }
    }
    uris.append(&mut hosts);
    Some(uris)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;
    use crate::model::Access;

    fn certificate(name: SanType) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![name];
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn a_dns_name_that_is_written_like_a_uri_gets_no_grant_of_it() {
        let grant = || GrantConfig { tenant: "acme".to_owned(), access: Access::Admin };
        let grants = BTreeMap::from([
            ("spiffe://example.org/agent".to_owned(), grant()),
            ("agent.example.org".to_owned(), grant()),
        ]);
        let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
        let uri = |name: &str| SanType::URI(name.try_into().unwrap());
        for (name, granted) in [
            (uri("spiffe://example.org/agent"), true),
            (dns("agent.example.org"), true),
            (dns("spiffe://example.org/agent"), false),
            (uri("agent.example.org"), false),
        ] {
            let shown = format!("{name:?}");
            let found = principal(&certificate(name), &grants);
            assert_eq!(found.is_ok(), granted, "{shown}");
        }
    }
}
