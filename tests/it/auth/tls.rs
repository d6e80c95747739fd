//! TLS for clients, and client certificates.

use std::{path::PathBuf, time::Duration};

use contextd::{
    config::{AuthConfig, GrantConfig, TlsConfig},
    model::Access,
    pb::{self, admin_service_client::AdminServiceClient},
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tonic::{
    Code,
    transport::{Certificate, Channel, ClientTlsConfig, Identity},
};

use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use super::KeysFile;
use crate::harness::{Options, Replica, events::TEST_TIMEOUT};

/// The documented time within which a changed certificate is served.
const PROMISED: Duration = Duration::from_secs(5);

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate and its key, for these names.
    fn issue(&self, names: Vec<SanType>) -> (String, String) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = names;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn server(&self) -> (String, String) {
        self.issue(vec![SanType::DnsName("localhost".try_into().unwrap())])
    }

    fn client(&self, uri: &str) -> (String, String) {
        self.issue(vec![SanType::URI(uri.try_into().unwrap())])
    }
}

/// The certificate and key files of a server.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn write(&self, name: &str, pem: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path
    }

    fn serve(&self, (certificate, key): &(String, String)) -> TlsConfig {
        TlsConfig {
            cert_file: Some(self.write("cert.pem", certificate)),
            key_file: Some(self.write("key.pem", key)),
            ..TlsConfig::default()
        }
    }
}

async fn connect(
    replica: &Replica,
    trusted: &Authority,
    identity: Option<&(String, String)>,
) -> Result<Channel, tonic::transport::Error> {
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(trusted.pem())).domain_name("localhost");
    let tls = match identity {
        Some((certificate, key)) => tls.identity(Identity::from_pem(certificate, key)),
        None => tls,
    };
    let address = format!("https://{}", replica.address);
    Channel::from_shared(address).unwrap().tls_config(tls)?.connect().await
}

/// The tenant and the subject that the server assigns to the caller.
async fn subject(channel: Channel) -> Result<(String, String), Code> {
    let mut client = AdminServiceClient::new(channel);
    let info = client.get_server_info(pb::GetServerInfoRequest {});
    let info = info.await.map_err(|status| status.code())?.into_inner();
    Ok((info.tenant_id, info.subject))
}

#[tokio::test]
async fn a_changed_certificate_is_served_to_new_connections_without_a_restart() {
    let files = Files::new();
    let (old, new) = (Authority::new(), Authority::new());
    let options = Options { tls: files.serve(&old.server()), ..Options::default() };
    let (_database, replica) = Replica::alone(options).await;
    let before = connect(&replica, &old, None).await.unwrap();
    assert!(subject(before.clone()).await.is_ok());
    assert!(connect(&replica, &new, None).await.is_err());
    files.serve(&new.server());
    let seen = async {
        while connect(&replica, &new, None).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PROMISED, seen).await.expect("the new certificate is served within 5 s");
    assert!(connect(&replica, &old, None).await.is_err());
    assert!(subject(before).await.is_ok(), "what is open goes on");
}

#[tokio::test]
async fn a_client_certificate_is_granted_what_its_name_is_granted() {
    const HOST: &str = "spiffe://cluster/ns/agents/sa/host";
    let files = Files::new();
    let (ours, foreign) = (Authority::new(), Authority::new());
    let mut keys = KeysFile::new();
    let key = keys.add("keyed", Access::Read);
    let grant = GrantConfig { tenant: "acme".to_owned(), access: Access::Write };
    let options = Options {
        tls: TlsConfig { client_ca_file: Some(files.write("clients.pem", &ours.pem())), ..files.serve(&ours.server()) },
        auth: AuthConfig { certificates: [(HOST.to_owned(), grant)].into(), ..keys.required().auth },
        ..Options::default()
    };
    let (_database, replica) = Replica::alone(options).await;
    let known = connect(&replica, &ours, Some(&ours.client(HOST))).await.unwrap();
    let granted = ("acme".to_owned(), format!("certificate:{HOST}"));
    assert_eq!(subject(known.clone()).await, Ok(granted));
    let unknown = ours.client("spiffe://cluster/ns/agents/sa/other");
    let unknown = connect(&replica, &ours, Some(&unknown)).await.unwrap();
    assert_eq!(subject(unknown).await, Err(Code::Unauthenticated));
    let without = connect(&replica, &ours, None).await.unwrap();
    assert_eq!(subject(without).await, Err(Code::Unauthenticated));
    // A key identifies the caller, regardless of the certificate.
    let keyed = tonic::service::interceptor::InterceptedService::new(known, key);
    let info = AdminServiceClient::new(keyed).get_server_info(pb::GetServerInfoRequest {}).await;
    assert_eq!(info.unwrap().into_inner().tenant_id, "keyed");
    // TLS rejects a certificate of another authority.
    let forged = foreign.client(HOST);
    let refused = match connect(&replica, &ours, Some(&forged)).await {
        Ok(channel) => subject(channel).await.is_err(),
        Err(_) => true,
    };
    assert!(refused);
}

#[tokio::test]
async fn a_required_client_certificate_is_asked_for_by_tls() {
    let files = Files::new();
    let ours = Authority::new();
    let options = Options {
        tls: TlsConfig {
            client_ca_file: Some(files.write("clients.pem", &ours.pem())),
            client_cert_required: true,
            ..files.serve(&ours.server())
        },
        ..Options::default()
    };
    let (_database, replica) = Replica::alone(options).await;
    let with = connect(&replica, &ours, Some(&ours.client("spiffe://any"))).await.unwrap();
    assert!(subject(with).await.is_ok());
    let without = match connect(&replica, &ours, None).await {
        Ok(channel) => subject(channel).await.is_err(),
        Err(_) => true,
    };
    assert!(without);
}

/// The status and the text of a page.
async fn page(replica: &Replica, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(replica.admin).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split("\r\n\r\n").nth(1).unwrap().to_owned())
}

async fn becomes(replica: &Replica, path: &str, expected: (u16, &str)) {
    let seen = async {
        loop {
            let (status, text) = page(replica, path).await;
            if (status, text.as_str()) == expected {
                return;
            }
        }
    };
    timeout(TEST_TIMEOUT, seen).await.unwrap_or_else(|_| panic!("never: {expected:?}"));
}

#[tokio::test]
async fn the_admin_port_tells_probes_health_in_plain_text_beside_tls_and_keys() {
    let files = Files::new();
    let ours = Authority::new();
    let mut keys = KeysFile::new();
    keys.add("acme", Access::Read);
    let options = Options {
        tls: TlsConfig {
            client_ca_file: Some(files.write("clients.pem", &ours.pem())),
            client_cert_required: true,
            ..files.serve(&ours.server())
        },
        drain_delay: TEST_TIMEOUT,
        ..keys.required()
    };
    let (_database, replica) = Replica::alone(options).await;
    becomes(&replica, "/readyz", (200, "ready\n")).await;
    assert_eq!(page(&replica, "/livez").await, (200, "alive\n".to_owned()));
    assert_eq!(page(&replica, "/other").await.0, 404);
    let channel = Channel::from_shared(format!("http://{}", replica.admin)).unwrap();
    let channel = channel.connect().await.unwrap();
    let mut health = HealthClient::new(channel.clone());
    let mut watched = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    while watched.message().await.unwrap().unwrap().status() != ServingStatus::Serving {}
    // This port does not serve the API.
    assert_eq!(subject(channel).await, Err(Code::Unimplemented));
    replica.begin_shutdown();
    while watched.message().await.unwrap().unwrap().status() != ServingStatus::NotServing {}
    becomes(&replica, "/readyz", (503, "the server is shutting down\n")).await;
    let checked = health.check(HealthCheckRequest::default()).await.unwrap();
    let why = checked.metadata().get("contextd-not-ready").unwrap();
    assert_eq!(why, "the server is shutting down");
    assert_eq!(page(&replica, "/livez").await.0, 200);
}
