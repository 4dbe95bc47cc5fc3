//! Limits of requests and of wrong keys per client.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tests::glovebox::{Home, finish};
use tests::host_server::HostServer;
use tokio::time::Instant;

fn start(home: &Home, rate: &str, arguments: &[&str]) -> HostServer {
    HostServer::start_with_rate(home, &home.script(&json!([finish()])), rate, arguments)
}

#[tokio::test]
async fn requests_are_delayed_then_rejected_per_client() {
    let home = Home::new();
    let server = start(&home, "10", &["--trusted-proxy", "127.0.0.1"]);
    let send = async |client: &str, path: &str| {
        let request = server
            .request(Method::GET, path)
            .header("X-Forwarded-For", client);
        let response = request.send().await.unwrap();
        let retry_after = response
            .headers()
            .get("retry-after")
            .map(|value| value.to_str().unwrap().to_owned());
        (
            response.status().as_u16(),
            retry_after,
            response.json::<Value>().await.unwrap(),
        )
    };
    let started = Instant::now();
    let responses = join_all((0..50).map(|_| send("1.2.3.4", "/api/conversations"))).await;
    let rejected: Vec<_> = responses
        .iter()
        .filter(|(status, ..)| *status == 429)
        .collect();
    let accepted = responses
        .iter()
        .filter(|(status, ..)| *status == 200)
        .count();
    assert!(
        accepted >= 20 && rejected.len() + accepted == 50 && !rejected.is_empty(),
        "{responses:?}"
    );
    assert!(
        started.elapsed().as_secs() >= 1,
        "some are delayed: {:?}",
        started.elapsed()
    );
    let (_, retry_after, body) = rejected[0];
    assert_eq!(retry_after.as_deref(), Some("1"));
    assert!(body["message"].is_string(), "{body}");
    assert_eq!(
        send("1.2.3.5", "/api/conversations").await.0,
        200,
        "another client"
    );
    for path in ["/alive", "/health", "/server_info"] {
        let statuses = join_all((0..50).map(|_| send("1.2.3.4", path))).await;
        assert!(statuses.iter().all(|(status, ..)| *status == 200), "{path}");
    }
}

#[tokio::test]
async fn client_waits_after_many_wrong_keys() {
    let home = Home::new();
    let server = start(&home, "off", &["--trusted-proxy", "127.0.0.1"]);
    let send = async |client: &str, key: &str| {
        let request = server.request_without_key(Method::GET, "/api/conversations");
        let request = request
            .header("X-Forwarded-For", client)
            .header("X-Session-API-Key", key);
        request.send().await.unwrap()
    };
    for number in 0..10 {
        assert_eq!(send("1.2.3.4", "wrong").await.status(), 401, "{number}");
    }
    // Also the right key, so that the answer does not tell which one is.
    for key in ["wrong", &server.key] {
        let response = send("1.2.3.4", key).await;
        assert_eq!(response.status(), 429);
        let wait: u64 = response.headers()["retry-after"]
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        assert!((1..=60).contains(&wait), "{wait}");
        let error: Value = response.json().await.unwrap();
        assert_eq!(error["msg_id"], "AUTH$TOO_MANY_WRONG_KEYS", "{error}");
    }
    assert_eq!(
        send("1.2.3.5", &server.key).await.status(),
        200,
        "another client"
    );
    // A request without any key is no attempt.
    for _ in 0..20 {
        assert_eq!(
            server.status_with_key("/api/conversations", None).await,
            401
        );
    }
    assert_eq!(
        server
            .status_with_key("/api/conversations", Some(&server.key))
            .await,
        200
    );
}

#[tokio::test]
async fn cookie_of_a_session_is_secure_behind_a_proxy_with_tls() {
    let home = Home::new();
    std::fs::write(home.path().join("index.html"), "<p>page").unwrap();
    let folder = home.path().to_str().unwrap();
    let server = start(
        &home,
        "off",
        &[
            "--allow-host",
            "127.0.0.1",
            "--static",
            folder,
            "--trusted-proxy",
            "127.0.0.1",
        ],
    );
    for (scheme, is_secure) in [("https", true), ("http", false)] {
        let form = server
            .request_without_key(Method::POST, "/sign-in")
            .body(format!("key={}", server.key));
        let form = form.header("Content-Type", "application/x-www-form-urlencoded");
        let response = form
            .header("X-Forwarded-Proto", scheme)
            .send()
            .await
            .unwrap();
        let cookie = response.headers()["set-cookie"].to_str().unwrap();
        assert_eq!(cookie.contains("; Secure"), is_secure, "{scheme}: {cookie}");
    }
}
