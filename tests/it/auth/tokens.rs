//! JSON Web Tokens, with an issuer that the test simulates.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use contextd::{
    clock::{Clock as _, SystemClock},
    config::{AuthConfig, JwtConfig},
    model::Access,
    pb::{
        self, admin_service_client::AdminServiceClient, session_service_client::SessionServiceClient,
        turn_service_client::TurnServiceClient,
    },
};
use http_body_util::Full;
use hyper::{Response, body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, jwk::Jwk};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tonic::{Code, service::interceptor::InterceptedService};

use super::{
    Key, KeysFile, connect,
    keys::{admin, end, until, wanted},
};
use crate::harness::{Options, Replica, TestDatabase, host::until as eventually};

const AUDIENCE: &str = "contextd";

/// Seconds for which a token is accepted after it expires.
const LEEWAY: i64 = 30;

/// An issuer of tokens whose keys can be fetched.
#[derive(Clone)]
struct Issuer {
    url: String,
    keys: Arc<Mutex<BTreeMap<String, rcgen::KeyPair>>>,
    away: Arc<AtomicBool>,
    silent: Arc<AtomicBool>,
    fetched: Arc<AtomicU32>,
}

impl Issuer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            keys: Arc::default(),
            away: Arc::default(),
            silent: Arc::default(),
            fetched: Arc::default(),
        };
        let served = issuer.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let issuer = served.clone();
                let answer = service_fn(move |_| {
                    let issuer = issuer.clone();
                    async move { issuer.answer().await }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        issuer
    }

    async fn answer(&self) -> Result<Response<Full<Bytes>>, http::Error> {
        self.fetched.fetch_add(1, Ordering::SeqCst);
        if self.silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.away.load(Ordering::SeqCst) {
            return Response::builder().status(503).body(Full::default());
        }
        let keys = self.keys.lock().unwrap();
        let public = keys.iter().map(|(id, pair)| {
            let signing = EncodingKey::from_ec_der(&pair.serialize_der());
            let mut key = Jwk::from_encoding_key(&signing, Algorithm::ES256).unwrap();
            key.common.key_id = Some(id.clone());
            key
        });
        let set = json!({"keys": public.collect::<Vec<_>>()});
        Ok(Response::new(Full::from(set.to_string())))
    }

    /// Adds a key.
    fn add(&self, id: &str) {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        self.keys.lock().unwrap().insert(id.to_owned(), pair);
    }

    /// A token signed with one of the keys.
    fn token(&self, id: &str, claims: &Value) -> Key {
        let header = Header { kid: Some(id.to_owned()), ..Header::new(Algorithm::ES256) };
        Key(self.signed(&header, claims))
    }

    /// A token with this header, which names the key.
    fn signed(&self, header: &Header, claims: &Value) -> String {
        let keys = self.keys.lock().unwrap();
        let id = header.kid.as_deref().unwrap();
        let signing = EncodingKey::from_ec_der(&keys[id].serialize_der());
        encode(header, claims, &signing).unwrap()
    }

    /// Options that require a token of this issuer.
    fn required(&self) -> Options {
        let jwt = JwtConfig {
            issuer: Some(self.url.clone()),
            audience: Some(AUDIENCE.to_owned()),
            jwks_url: Some(format!("{}/jwks.json", self.url)),
            ..JwtConfig::default()
        };
        Options { auth: AuthConfig { required: true, jwt, ..AuthConfig::default() }, ..Options::default() }
    }

    /// Valid claims, with changes.
    fn claims(&self, change: &Value) -> Value {
        let now = SystemClock.now().as_second();
        let mut claims = json!({
            "iss": self.url, "aud": AUDIENCE, "sub": "host-1", "exp": now + 600,
            "tenant": "acme", "scope": "openid contextd:write",
        });
        for (claim, value) in change.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(claim)),
                value => claims[claim] = value.clone(),
            }
        }
        claims
    }
}

/// The tenant, the access and the subject that the server assigns to the caller.
async fn caller(replica: &Replica, key: &Key) -> Result<(String, pb::Access, String), Code> {
    let channel = InterceptedService::new(replica.channel().await, key.clone());
    let mut client = AdminServiceClient::new(channel);
    let info = client.get_server_info(pb::GetServerInfoRequest {});
    let info = info.await.map_err(|status| status.code())?.into_inner();
    let access = info.access();
    Ok((info.tenant_id, access, info.subject))
}

#[tokio::test]
async fn a_token_gives_the_tenant_and_access_of_its_claims() {
    let issuer = Issuer::start().await;
    issuer.add("k1");
    let (_database, replica) = Replica::alone(issuer.required()).await;
    let check = async |change: Value, expected: (&str, pb::Access, &str)| {
        let token = issuer.token("k1", &issuer.claims(&change));
        let (tenant, access, subject) = caller(&replica, &token).await.unwrap();
        assert_eq!((tenant.as_str(), access, subject.as_str()), expected, "{change}");
    };
    check(json!({}), ("acme", pb::Access::Write, "jwt:host-1")).await;
    check(json!({"tenant": "other", "scope": ["contextd:read", "admin"]}), ("other", pb::Access::Read, "jwt:host-1"))
        .await;
    check(json!({"aud": ["a", AUDIENCE], "scope": "contextd:admin"}), ("acme", pb::Access::Admin, "jwt:host-1")).await;
}

#[tokio::test]
async fn tokens_that_are_not_the_issuers_for_this_service_are_refused() {
    let issuer = Issuer::start().await;
    issuer.add("k1");
    let (_database, replica) = Replica::alone(issuer.required()).await;
    let now = SystemClock.now().as_second();
    let changes = [
        json!({"iss": "http://127.0.0.1:1"}),
        json!({"aud": "another-service"}),
        json!({"aud": null}),
        json!({"exp": null}),
        json!({"exp": now - 60}),
        json!({"nbf": now + 600}),
        json!({"iss": null}),
        json!({"tenant": null}),
        json!({"tenant": "A b"}),
        json!({"scope": "openid"}),
        json!({"scope": "admin operator"}),
        json!({"scope": null}),
    ];
    for change in changes {
        let token = issuer.token("k1", &issuer.claims(&change));
        assert_eq!(caller(&replica, &token).await, Err(Code::Unauthenticated), "{change}");
    }
    let good = issuer.token("k1", &issuer.claims(&json!({})));
    let [head, body, signature] = good.0.split('.').collect::<Vec<_>>().try_into().unwrap();
    // {"alg":"none"}, and the public key used as a shared secret.
    let none = format!("eyJhbGciOiJub25lIiwia2lkIjoiazEifQ.{body}.");
    let public = issuer.keys.lock().unwrap()["k1"].public_key_pem();
    let shared = Header { kid: Some("k1".to_owned()), ..Header::new(Algorithm::HS256) };
    let secret = EncodingKey::from_secret(public.as_bytes());
    let confused = encode(&shared, &issuer.claims(&json!({})), &secret).unwrap();
    // A critical header extension that the server does not support.
    let critical =
        Header { kid: Some("k1".to_owned()), crit: Some(vec!["exp".to_owned()]), ..Header::new(Algorithm::ES256) };
    let critical = issuer.signed(&critical, &issuer.claims(&json!({})));
    let another = Issuer::start().await;
    another.add("k1");
    let stolen = another.token("k1", &issuer.claims(&json!({})));
    let altered = format!(
        "{head}.{}.{signature}",
        issuer.token("k1", &issuer.claims(&json!({"tenant": "other"}))).0.split('.').nth(1).unwrap()
    );
    for forged in [none, confused, critical, stolen.0, altered] {
        assert_eq!(caller(&replica, &Key(forged.clone())).await, Err(Code::Unauthenticated), "{forged}");
    }
    assert!(caller(&replica, &good).await.is_ok());
}

#[tokio::test]
async fn a_stream_ends_when_its_token_expires() {
    let issuer = Issuer::start().await;
    issuer.add("k1");
    let (_database, replica) = Replica::alone(issuer.required()).await;
    let lasting = issuer.token("k1", &issuer.claims(&json!({})));
    let create = pb::CreateSessionRequest {
        session: Some(pb::Session { session_id: "watched".to_owned(), ..pb::Session::default() }),
        ..pb::CreateSessionRequest::default()
    };
    let mut sessions = SessionServiceClient::new(connect(&replica, &lasting).await);
    sessions.create_session(create).await.unwrap();
    let watch = async |token: &Key| {
        let request = pb::WatchEventsRequest {
            session_id: "watched".to_owned(),
            follow: true,
            ..pb::WatchEventsRequest::default()
        };
        let mut turns = TurnServiceClient::new(connect(&replica, token).await);
        turns.watch_events(request).await
    };
    let others = watch(&lasting).await.unwrap().into_inner();
    let (events, expires_at) = loop {
        let expires_at = SystemClock.now().as_second() + 2;
        let exp = expires_at - LEEWAY;
        let token = issuer.token("k1", &issuer.claims(&json!({ "exp": exp })));
        // On a busy machine, the token may have expired before the call arrives.
        if let Ok(events) = watch(&token).await {
            break (events.into_inner(), expires_at);
        }
    };
    assert_eq!(end(events).await, Code::Unauthenticated);
    assert!(SystemClock.now().as_second() >= expires_at, "it ended early");
    let other = tokio::time::timeout(Duration::from_millis(100), end(others)).await;
    assert!(other.is_err(), "{other:?}");
}

#[tokio::test]
async fn a_new_key_of_the_issuer_is_fetched_and_known_ones_outlive_its_outage() {
    let issuer = Issuer::start().await;
    issuer.add("k1");
    let (database, replica) = Replica::alone(issuer.required()).await;
    let first = issuer.token("k1", &issuer.claims(&json!({})));
    assert!(caller(&replica, &first).await.is_ok());
    assert_eq!(issuer.fetched.load(Ordering::SeqCst), 1);
    // Unknown keys trigger at most one fetch every 10 s.
    issuer.add("k2");
    let second = issuer.token("k2", &issuer.claims(&json!({})));
    for _ in 0..20 {
        assert_eq!(caller(&replica, &second).await, Err(Code::Unauthenticated));
    }
    assert_eq!(issuer.fetched.load(Ordering::SeqCst), 1);
    let another = Replica::start(&database, issuer.required()).await;
    assert!(caller(&another, &second).await.is_ok());
    issuer.away.store(true, Ordering::SeqCst);
    let before = issuer.fetched.load(Ordering::SeqCst);
    replica.auth.refresh_issuer(Duration::ZERO).await;
    another.auth.refresh_issuer(Duration::ZERO).await;
    assert_eq!(issuer.fetched.load(Ordering::SeqCst), before + 2);
    assert!(caller(&replica, &first).await.is_ok());
    assert!(caller(&another, &second).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_revoked_in_time_while_the_issuer_of_tokens_is_silent() {
    let issuer = Issuer::start().await;
    issuer.add("k1");
    let mut file = KeysFile::new();
    let root = file.add("acme", Access::Admin);
    let options = || Options {
        auth: AuthConfig { keys_file: file.required().auth.keys_file, ..issuer.required().auth },
        ..Options::default()
    };
    let database = TestDatabase::new().await;
    let here = Replica::start(&database, options()).await;
    let there = Replica::start(&database, options()).await;
    let mut admin = admin(&here, &root).await;
    let created = admin.create_key(wanted(pb::Access::Write)).await;
    let created = created.unwrap().into_inner();
    let key = Key(created.secret);
    until(&there, &key, true).await;
    issuer.silent.store(true, Ordering::SeqCst);
    let before = issuer.fetched.load(Ordering::SeqCst);
    // These wait for the issuer one after another, 5 s each.
    for _ in 0..4 {
        let auth = Arc::clone(&there.auth);
        tokio::spawn(async move { auth.refresh_issuer(Duration::ZERO).await });
    }
    eventually("the issuer is asked", || async { issuer.fetched.load(Ordering::SeqCst) > before }).await;
    // By now the periodic fetch of the replica waits too.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let revoke = pb::RevokeKeyRequest { key_id: created.key.unwrap().key_id, tenant_id: String::new() };
    admin.revoke_key(revoke).await.unwrap();
    until(&there, &key, false).await;
}
