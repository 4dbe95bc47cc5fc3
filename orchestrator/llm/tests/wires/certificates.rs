//! A machine without certificates: plain HTTP works, and TLS fails only when a connection is
//! opened.
//!
//! Such a machine is simulated by this test program with invalid paths of certificates.

use std::process::Command;

use llm::ProviderLlm;

use crate::scene::{complete, config, response_body};
use crate::server::{Reply, Server};

#[test]
fn plain_http_needs_no_certificates() {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "certificates::without_certificates", "--ignored"])
        .env("SSL_CERT_FILE", "/nonexistent")
        .env("SSL_CERT_DIR", "/nonexistent")
        .status()
        .unwrap();
    assert!(status.success());
}

#[tokio::test]
#[ignore = "run by the test above, in a process of its own"]
async fn without_certificates() {
    let server = Server::start(vec![Reply::json(200, &response_body("Hello"))]).await;
    let mut config = config(&server);
    assert_eq!(
        complete(&config).await.unwrap().response.message.text,
        "Hello"
    );
    config.base_url = Some("https://localhost/v1".into());
    ProviderLlm::new(&config).unwrap();
}
