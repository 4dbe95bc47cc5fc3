//! HTTPS with a certificate whose files are replaced while the server runs.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use reqwest::Method;
use rustix::process::Signal;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tests::glovebox::{Home, TEST_TIMEOUT, finish};
use tests::host_server::{HostServer, is_state};
use tests::postgres::PostgresServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Writes a new certificate and its key, and returns the certificate.
fn renew(home: &Home) -> CertificateDer<'static> {
    let names = ["localhost", "127.0.0.1"].map(str::to_owned);
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
    home.write("chain.pem", cert.pem());
    let key = home.write("key.pem", signing_key.serialize_pem());
    std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o600)).unwrap();
    cert.der().clone()
}

fn start(home: &Home, arguments: &[&str]) -> HostServer {
    let [chain, key] = ["chain.pem", "key.pem"].map(|name| home.path().join(name));
    let own = [
        "--tls-cert",
        chain.to_str().unwrap(),
        "--tls-key",
        key.to_str().unwrap(),
    ];
    HostServer::start(
        home,
        &home.script(&json!([finish()])),
        &[&own, arguments].concat(),
    )
}

fn roots(certificates: &[CertificateDer<'static>]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    certificates
        .iter()
        .for_each(|certificate| roots.add(certificate.clone()).unwrap());
    roots
}

/// Connects, and returns the certificate of the server.
async fn served_certificate(server: &HostServer, trusted: &[CertificateDer<'static>]) -> Vec<u8> {
    let config = tls::client(roots(trusted), &[b"h2", b"http/1.1"]).unwrap();
    let stream = TcpStream::connect(server.url.strip_prefix("https://").unwrap())
        .await
        .unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    let connection = stream.get_ref().1;
    assert_eq!(connection.alpn_protocol(), Some(&b"http/1.1"[..]));
    connection.peer_certificates().unwrap()[0].to_vec()
}

/// Sends SIGHUP, and waits until the log has one more line with a text.
async fn reload(home: &Home, server: &HostServer, text: &str) {
    let count = || {
        std::fs::read_to_string(home.path().join("serve.log"))
            .unwrap()
            .matches(text)
            .count()
    };
    let before = count();
    server.signal(Signal::HUP);
    let logged = async {
        while count() == before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, logged)
        .await
        .expect("the certificate is loaded again");
}

#[tokio::test]
async fn certificate_is_replaced_while_the_server_runs() {
    let home = Home::new();
    let first = renew(&home);
    let server = start(&home, &["--log-level", "info"]);
    assert!(
        server.url.starts_with("https://127.0.0.1:"),
        "{}",
        server.url
    );
    assert_eq!(
        served_certificate(&server, std::slice::from_ref(&first)).await,
        *first
    );

    let second = renew(&home);
    reload(&home, &server, "loaded the certificate again").await;
    assert_eq!(
        served_certificate(&server, &[first.clone(), second.clone()]).await,
        *second
    );

    home.write("chain.pem", "no certificate");
    reload(&home, &server, "keeping the earlier certificate").await;
    assert_eq!(
        served_certificate(&server, &[first, second.clone()]).await,
        *second
    );

    // Plain HTTP to the port of HTTPS, which the server survives.
    let mut plain = TcpStream::connect(server.url.strip_prefix("https://").unwrap())
        .await
        .unwrap();
    plain
        .write_all(b"GET /alive HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert_eq!(
        served_certificate(&server, std::slice::from_ref(&second)).await,
        *second
    );
    server.terminate();
}

#[tokio::test]
async fn conversation_runs_over_https() {
    let home = Home::new();
    let certificate = renew(&home);
    home.write("index.html", "<p>page");
    let server = start(&home, &["--static", home.path().to_str().unwrap()]);
    let server = server.trusting(roots(&[certificate]));
    let id = server.create("Finish.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;

    let form = server
        .request_without_key(Method::POST, "/sign-in")
        .body(format!("key={}", server.key));
    let form = form.header("Content-Type", "application/x-www-form-urlencoded");
    let response = form.header("Origin", &server.url).send().await.unwrap();
    let cookie = response.headers()["set-cookie"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(cookie.contains("; Secure"), "{cookie}");
    let hosts = server
        .get(&format!("/api/conversations/{id}/web-hosts"))
        .await;
    let hosts = hosts["hosts"].as_object().unwrap();
    assert!(
        hosts.keys().all(|url| url.starts_with("https://")),
        "{hosts:?}"
    );
    // Nothing listens: a client tries the ports that a program may have later.
    let mut ports: Vec<_> = hosts.values().map(|port| port.as_u64().unwrap()).collect();
    ports.sort_unstable();
    assert_eq!(ports, [3000, 5000, 5173, 8000, 8080]);
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    server.terminate();
    home.assert_nothing_runs();
}

#[tokio::test]
async fn other_host_is_reached_over_https() {
    let Some(database) = PostgresServer::start() else {
        return;
    };
    let address = database.address(&database.create_database());
    let home = Home::new();
    let certificate = renew(&home);
    let model = home.script(&json!([finish()]));
    let start = || {
        let arguments = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--runtime",
            "local",
            "--rate-limit",
            "off",
        ];
        let files = [
            "--tls-cert",
            "chain.pem",
            "--tls-key",
            "key.pem",
            "--store",
            &address,
            "-l",
            &model,
        ];
        let mut command = home.glovebox(&[&arguments[..], &files].concat());
        command.env("SSL_CERT_FILE", home.path().join("chain.pem"));
        HostServer::from_command(&home, &mut command)
            .trusting(roots(std::slice::from_ref(&certificate)))
    };
    let [first, second] = [start(), start()];
    let id = first.create("Finish.").await;
    first
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    // Only the first one can stop it.
    let stopped = second
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    assert_eq!(stopped["conversation_status"], "STOPPED");
    first.terminate();
    second.terminate();
    home.assert_nothing_runs();
}

#[tokio::test]
async fn unusable_certificate_is_refused_at_the_start() {
    let home = Home::new();
    renew(&home);
    let serve = |certificate: &str, key: &str| {
        let own = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--runtime",
            "local",
            "--tls-cert",
            certificate,
        ];
        let output = home
            .glovebox(&[&own[..], &["--tls-key", key]].concat())
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    for (certificate, key, expected) in [
        ("none.pem", "key.pem", "cannot read none.pem: No such file"),
        (
            "key.pem",
            "key.pem",
            "key.pem holds no certificate, but a private key",
        ),
        (
            "chain.pem",
            "chain.pem",
            "chain.pem holds no private key, but a certificate",
        ),
    ] {
        let (code, error) = serve(certificate, key);
        assert!(
            code == Some(2) && error.contains(expected),
            "{code:?} {error}"
        );
    }
    std::fs::set_permissions(
        home.path().join("key.pem"),
        std::fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    let error = serve("none.pem", "key.pem").1;
    assert!(
        error.contains("key.pem: all users of this machine may read it"),
        "{error}"
    );
    let alone = home
        .glovebox(&["serve", "--tls-cert", "chain.pem"])
        .output()
        .unwrap();
    assert_eq!(alone.status.code(), Some(2));
}
