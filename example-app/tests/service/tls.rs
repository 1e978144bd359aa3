//! A Redis behind TLS, and whom the service trusts to be it.

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use resilience_tests::{RedisServer, free_port};

use crate::process::{KEY, Service, eventually, run};

/// A Redis with a certificate for 127.0.0.1, and the authority that has signed it.
struct TlsRedis {
    _server: RedisServer,
    url: String,
    authority: String,
    _files: tempfile::TempDir,
}

impl TlsRedis {
    fn start() -> Self {
        let files = tempfile::tempdir().expect("a temporary directory can be made");
        let path = |name: &str| files.path().join(name).display().to_string();
        let [authority, certificate, key] = ["authority.pem", "certificate.pem", "key.pem"].map(path);
        certify([&authority, &certificate, &key].map(Path::new)).expect("certificates can be made");
        let port = free_port();
        let server = RedisServer::start_with(&[
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
            "--tls-auth-clients",
            "no",
        ]);
        Self {
            _server: server,
            url: format!("rediss://127.0.0.1:{port}"),
            authority,
            _files: files,
        }
    }
}

fn certify([authority, certificate, key]: [&Path; 3]) -> Result<(), Box<dyn std::error::Error>> {
    let mut of_authority = CertificateParams::default();
    of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(of_authority, KeyPair::generate()?)?;
    let server_key = KeyPair::generate()?;
    let of_server = CertificateParams::new(["127.0.0.1".to_owned()])?.signed_by(&server_key, &issuer)?;
    fs::write(authority, issuer.pem())?;
    fs::write(certificate, of_server.pem())?;
    fs::write(key, server_key.serialize_pem())?;
    Ok(())
}

#[test]
fn an_authority_that_is_trusted_makes_it_serve() {
    let redis = TlsRedis::start();
    let settings = [("REDIS_URL", &*redis.url), ("SSL_CERT_FILE", &*redis.authority)];
    let added = run(&["key", "add", KEY, "user-42"], &settings);
    assert!(added.status.success(), "{added:?}");
    let service = Service::start(&settings);
    eventually("it connects", || service.get("/readyz").json()["degraded"] == false);
    let answer = service.checkout(KEY);
    assert_eq!((answer.status, answer.fell_back()), (200, false), "{answer:?}");
}

#[test]
fn a_server_that_nobody_vouches_for_is_an_outage() {
    let (redis, stranger) = (TlsRedis::start(), TlsRedis::start());
    let service = Service::start(&[("REDIS_URL", &redis.url), ("SSL_CERT_FILE", &stranger.authority)]);
    eventually("it says why", || service.log().contains("cannot connect to Redis"));
    let answer = service.checkout(KEY);
    assert_eq!(
        (answer.status, answer.error().as_str()),
        (503, "auth_unavailable"),
        "{answer:?}"
    );
}
