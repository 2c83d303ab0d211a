#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use super::tests::{client, settings, word};
use super::*;

/// An authority of the tests and the folder that its files go to.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer, folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ca_file(&self) -> PathBuf {
        let path = self.path("ca.pem");
        std::fs::write(&path, self.issuer.pem()).unwrap();
        path
    }

    fn sign(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> (rcgen::Certificate, KeyPair) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// Writes a client certificate and its key over those that may lie there.
    fn client_files(&self) -> (PathBuf, PathBuf) {
        let (certificate, key) = self.sign("node", ExtendedKeyUsagePurpose::ClientAuth);
        let files = (self.path("client.crt"), self.path("client.key"));
        std::fs::write(&files.0, certificate.pem()).unwrap();
        std::fs::write(&files.1, key.serialize_pem()).unwrap();
        files
    }

    fn server_config(&self, name: &str, clients: Option<&Authority>) -> ServerConfig {
        transport::install_tls_provider();
        let (certificate, key) = self.sign(name, ExtendedKeyUsagePurpose::ServerAuth);
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let builder = ServerConfig::builder();
        match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from(authority.issuer.der().to_vec())).unwrap();
                let verifier = WebPkiClientVerifier::builder(roots.into()).build().unwrap();
                builder.with_client_cert_verifier(verifier)
            }
        }
        .with_single_cert(chain, key)
        .unwrap()
    }
}

/// Serves `count` connections with an empty 200; ends with how many requests it read whole.
fn serve(config: ServerConfig, count: usize) -> (String, JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let config = Arc::new(config);
    let task = std::thread::spawn(move || {
        let mut answered = 0;
        for _ in 0..count {
            let (socket, _) = listener.accept().unwrap();
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, socket);
            let mut seen = Vec::new();
            let mut buffer = [0; 1024];
            while !seen.ends_with(b"}}") {
                match stream.read(&mut buffer) {
                    Ok(0) | Err(_) => break,
                    Ok(length) => seen.extend_from_slice(&buffer[..length]),
                }
            }
            if seen.ends_with(b"}}") {
                answered += 1;
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
                stream.flush().unwrap();
            }
        }
        answered
    });
    (base, task)
}

fn with_ca(base: String, ca_file: &Path) -> SlotServer {
    SlotServer { ca_file: Some(ca_file.to_owned()), ..settings(base) }
}

#[tokio::test]
async fn our_own_authority_is_trusted_and_another_one_is_not() {
    let (ours, other) = (Authority::new(), Authority::new());
    let (base, task) = serve(ours.server_config("localhost", None), 2);
    let good = client(&with_ca(base.clone(), &ours.ca_file())).request().await;
    assert_eq!(good, SlotAnswer::Granted);
    let bad = client(&with_ca(base, &other.ca_file())).request().await;
    assert_eq!(word(&bad), "failed tls", "{bad:?}");
    assert_eq!(task.join().unwrap(), 1);
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let ours = Authority::new();
    let (base, task) = serve(ours.server_config("slots.example", None), 1);
    let answer = client(&with_ca(base, &ours.ca_file())).request().await;
    assert_eq!(word(&answer), "failed tls", "{answer:?}");
    assert_eq!(task.join().unwrap(), 0);
}

#[tokio::test]
async fn a_client_certificate_is_shown_and_read_anew_after_it_was_rotated() {
    let (ours, clients, stranger) = (Authority::new(), Authority::new(), Authority::new());
    let (base, task) = serve(ours.server_config("localhost", Some(&clients)), 4);
    let with = |files| SlotServer {
        client_certificate: Some(files),
        ..with_ca(base.clone(), &ours.ca_file())
    };
    let none = client(&with_ca(base.clone(), &ours.ca_file())).request().await;
    assert_eq!(word(&none), "lost tls", "{none:?}");
    let files = clients.client_files();
    let rotating = client(&with(files.clone()));
    assert_eq!(rotating.request().await, SlotAnswer::Granted);
    let (certificate, key) = stranger.client_files();
    std::fs::copy(certificate, &files.0).unwrap();
    std::fs::copy(key, &files.1).unwrap();
    let wrong = rotating.request().await;
    assert_eq!(word(&wrong), "lost tls", "{wrong:?}");
    clients.client_files();
    assert_eq!(rotating.request().await, SlotAnswer::Granted);
    assert_eq!(task.join().unwrap(), 2);
}

#[tokio::test]
async fn files_that_are_missing_or_none_are_named() {
    let ours = Authority::new();
    let ca = ours.ca_file();
    let (certificate, key) = ours.client_files();
    let text = ours.path("text");
    std::fs::write(&text, "no certificate").unwrap();
    let base = || "https://localhost:1".to_owned();
    let pair = |pair| SlotServer { client_certificate: Some(pair), ..with_ca(base(), &ca) };
    let cases = [
        (with_ca(base(), &ours.path("missing.pem")), "failed io", "missing.pem"),
        (with_ca(base(), &text), "failed config", "text"),
        (pair((ours.path("gone.crt"), key.clone())), "failed io", "gone.crt"),
        (pair((certificate.clone(), ours.path("gone.key"))), "failed io", "gone.key"),
        (pair((certificate.clone(), text.clone())), "failed config", "client.crt"),
        (pair((text, key)), "failed config", "client.key"),
    ];
    for (settings, expected, named) in cases {
        let answer = client(&settings).request().await;
        assert_eq!(word(&answer), expected, "{answer:?}");
        assert!(format!("{answer:?}").contains(named), "{answer:?}");
    }
}

/// The trust store is the environment's, which is fixed once threads run. So the test begins by
/// running itself, and only itself, in an environment that names an empty one.
#[tokio::test]
async fn an_empty_trust_store_stops_neither_plain_http_nor_an_own_authority() {
    const NAME: &str = "effects::slot::tls_tests::\
        an_empty_trust_store_stops_neither_plain_http_nor_an_own_authority";
    const INSIDE: &str = "LOCKKEEPER_TEST_EMPTY_TRUST_STORE";
    if std::env::var_os(INSIDE).is_none() {
        let empty = tempfile::tempdir().unwrap();
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME])
            .env(INSIDE, "1")
            .env("SSL_CERT_DIR", empty.path())
            .env("SSL_CERT_FILE", empty.path().join("none"))
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{told}");
        return;
    }
    let (base, _task) =
        super::tests::server(super::tests::Manner::Says(super::tests::http("200 OK", "", "")))
            .await;
    assert_eq!(client(&settings(base)).request().await, SlotAnswer::Granted);
    let ours = Authority::new();
    let (base, _task) = serve(ours.server_config("localhost", None), 1);
    let own = client(&with_ca(base, &ours.ca_file())).request().await;
    assert_eq!(own, SlotAnswer::Granted);
    let none = client(&settings("https://localhost:1".to_owned())).request().await;
    assert_eq!(word(&none), "failed config", "{none:?}");
}
