//! TLS to the database. The server's certificate is always verified.

use std::{path::Path, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::Error;

/// Creates a TLS connector. Trusts the authorities of a PEM file or those of the system, and accepts a certificate for
/// the host name or for any host name.
pub(super) fn connector(ca_file: Option<&Path>, verify_host_name: bool) -> Result<MakeRustlsConnect, Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(authorities(ca_file)?), Arc::clone(&provider)).build();
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?;
    // Without any authority no verifier can be built. Every certificate is then refused.
    let client = match verifier {
        Ok(verifier) if !verify_host_name => {
            client.dangerous().with_custom_certificate_verifier(Arc::new(AnyHostName(verifier)))
        }
        Ok(verifier) => client.with_webpki_verifier(verifier),
        Err(_) => client.with_root_certificates(RootCertStore::empty()),
    };
    Ok(MakeRustlsConnect::new(client.with_no_client_auth()))
}

/// The authorities in the file, or those of the system.
fn authorities(ca_file: Option<&Path>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let Some(file) = ca_file else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let of_file = |error| unusable(&format_args!("{}: {error}", file.display()));
    for certificate in CertificateDer::pem_file_iter(file).map_err(of_file)? {
        let added = roots.add(certificate.map_err(of_file)?);
        added.map_err(|error| unusable(&error))?;
    }
    Ok(roots)
}

fn unusable(problem: &dyn std::fmt::Display) -> Error {
    Error::Unavailable(format!("cannot load certificate authorities: {problem}"))
}

/// Accepts a certificate signed by a trusted authority for any host name: `sslmode=verify-ca`.
#[derive(Debug)]
struct AnyHostName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyHostName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.0.verify_server_cert(certificate, intermediates, name, ocsp, now);
        match verified {
            // The name is checked last, so everything else of the certificate is already verified.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
