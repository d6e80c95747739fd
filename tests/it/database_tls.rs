//! Who can read the password of PostgreSQL in transit.

use std::{net::SocketAddr, path::Path, sync::Arc};

use contextd::{app, config::Config, telemetry::progress::Progress};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_rustls::TlsAcceptor;

/// How the client sent the password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    InClearText,
    Encrypted,
    Never,
}

/// A server that requests a password in clear text and refuses it. Without a certificate, it responds that it does not
/// support TLS.
async fn server(tls: Option<TlsAcceptor>) -> (SocketAddr, mpsc::Receiver<Came>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (told, came) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            password(stream, tls.as_ref(), &told).await;
        }
    });
    (address, came)
}

/// Serves one connection. Returns `None` if the client ends it before the password is requested.
async fn password(mut stream: TcpStream, tls: Option<&TlsAcceptor>, told: &mpsc::Sender<Came>) -> Option<()> {
    const SSL_REQUEST: u32 = 80_877_103;
    let mut begin = [0; 8];
    stream.read_exact(&mut begin).await.ok()?;
    if begin[4..] != SSL_REQUEST.to_be_bytes() {
        let rest = u32::from_be_bytes(begin[..4].try_into().unwrap()) as usize - begin.len();
        stream.read_exact(&mut vec![0; rest]).await.ok()?;
        asked(&mut stream, Came::InClearText, told).await;
        return Some(());
    }
    let Some(tls) = tls else {
        stream.write_all(b"N").await.ok()?;
        startup(&mut stream).await?;
        asked(&mut stream, Came::InClearText, told).await;
        return Some(());
    };
    stream.write_all(b"S").await.ok()?;
    let mut stream = tls.accept(stream).await.ok()?;
    startup(&mut stream).await?;
    asked(&mut stream, Came::Encrypted, told).await;
    Some(())
}

async fn startup(stream: &mut (impl AsyncRead + Unpin)) -> Option<()> {
    let length = stream.read_u32().await.ok()? as usize;
    stream.read_exact(&mut vec![0; length - 4]).await.ok()?;
    Some(())
}

/// Requests the password, reports how it was sent, and refuses it.
async fn asked(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), how: Came, told: &mpsc::Sender<Came>) {
    const CLEAR_TEXT: &[u8] = b"R\0\0\0\x08\0\0\0\x03";
    const REFUSED: &[u8] = b"SFATAL\0C28P01\0Mno\0\0";
    let _ = stream.write_all(CLEAR_TEXT).await;
    let _ = stream.flush().await;
    let mut answer = [0; 12];
    if stream.read_exact(&mut answer).await.is_ok() && answer[5..11] == *b"s3cret" {
        let _ = told.try_send(how); // before the following response ends the migration
    }
    let length = u32::try_from(REFUSED.len() + 4).unwrap();
    let _ = stream.write_u8(b'E').await;
    let _ = stream.write_u32(length).await;
    let _ = stream.write_all(REFUSED).await;
    let _ = stream.flush().await;
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn server(&self, name: &str) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let certificate = CertificateDer::from_pem_slice(certificate.pem().as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Migrates the database at this URL. Returns how the password was sent, and the error of the migration.
async fn migrated(tls: Option<TlsAcceptor>, ca: &Path, host: &str, query: &str) -> (Came, String) {
    let (address, mut came) = server(tls).await;
    let port = address.port();
    let url = format!("postgres://tester:s3cret@{host}:{port}/d?hostaddr=127.0.0.1{query}");
    let mut config = Config::default();
    config.database.url = Some(url.as_str().into());
    config.database.ca_file = Some(ca.to_owned());
    let migrated = app::migrate(&config, &Progress::silent()).await;
    let problem = format!("{:#}", migrated.expect_err("the password is refused"));
    (came.try_recv().unwrap_or(Came::Never), problem)
}

#[tokio::test]
async fn the_password_of_postgresql_leaves_the_machine_encrypted_unless_the_url_says_otherwise() {
    let files = TempDir::new().unwrap();
    let ca = files.path().join("ca.pem");
    let authority = Authority::new();
    std::fs::write(&ca, authority.0.pem()).unwrap();
    let stranger = Authority::new();
    let check = async |tls: Option<TlsAcceptor>, host: &str, query: &str, expected| {
        let (came, problem) = migrated(tls, &ca, host, query).await;
        assert_eq!(came, expected, "{host} {query}: {problem}");
        assert_eq!(problem.contains("database.sslmode"), expected == Came::Never, "{host} {query}: {problem}");
    };
    let named = || Some(authority.server("db.example.com"));
    let misnamed = || Some(authority.server("other.example.com"));
    let unknown = || Some(stranger.server("db.example.com"));
    let strict = ["", "&sslmode=require", "&sslmode=verify-ca", "&sslmode=verify-full"];
    for query in strict {
        check(None, "db.example.com", query, Came::Never).await;
        check(named(), "db.example.com", query, Came::Encrypted).await;
        check(unknown(), "db.example.com", query, Came::Never).await;
        let host_is_verified = query != "&sslmode=verify-ca";
        let of_misnamed = match host_is_verified {
            true => Came::Never,
            false => Came::Encrypted,
        };
        check(misnamed(), "db.example.com", query, of_misnamed).await;
    }
    check(None, "localhost", "", Came::InClearText).await;
    for lax in ["&sslmode=prefer", "&sslmode=disable"] {
        check(None, "db.example.com", lax, Came::InClearText).await;
    }
    check(named(), "db.example.com", "&sslmode=prefer", Came::Encrypted).await;
}
