//! Probes of the server, which need no key.

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use tests::glovebox::{Home, TEST_TIMEOUT, finish};
use tests::host_server::HostServer;
use tests::postgres::PostgresServer;
use tokio::time::{Instant, sleep, timeout};

async fn get(server: &HostServer, path: &str) -> (u16, Value) {
    let response = server
        .request_without_key(Method::GET, path)
        .send()
        .await
        .unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test]
async fn server_is_ready_and_reports_its_usage() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    assert_eq!(get(&server, "/ready").await, (200, json!({"status": "ok"})));
    let (status, info) = get(&server, "/server_info").await;
    assert_eq!(status, 200);
    let number = |path: &str| {
        info.pointer(path)
            .and_then(Value::as_f64)
            .unwrap_or_else(|| panic!("{path}: {info}"))
    };
    for path in [
        "/uptime",
        "/idle_time",
        "/resources/cpu_percent",
        "/resources/io/read_bytes",
    ] {
        assert!(number(path) >= 0.0, "{path}: {info}");
    }
    assert!(
        number("/resources/io/write_bytes") > 0.0 && number("/resources/memory/percent") < 100.0,
        "{info}"
    );
    assert!(
        number("/resources/memory/vms") > number("/resources/memory/rss"),
        "{info}"
    );
    let disk = |name: &str| number(&format!("/resources/disk/{name}"));
    assert!(
        disk("total") >= disk("used") + disk("free") && disk("percent") <= 100.0,
        "{info}"
    );
    server.terminate();
}

#[tokio::test]
async fn server_is_not_ready_without_its_blobs() {
    let home = Home::new();
    let blobs = home.path().join("blobs");
    let arguments = ["--blobs", blobs.to_str().unwrap(), "--log-level", "warn"];
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &arguments);
    assert_eq!(get(&server, "/ready").await.0, 200);
    std::fs::remove_dir(&blobs).unwrap();
    std::fs::write(&blobs, "in the way").unwrap();
    // The store is checked once per second.
    sleep(std::time::Duration::from_secs(1)).await;
    let (status, body) = get(&server, "/ready").await;
    assert_eq!(
        (status, &body["msg_id"]),
        (503, &json!("SERVER$FAILED")),
        "{body}"
    );
    let log = std::fs::read_to_string(home.path().join("serve.log")).unwrap();
    assert!(log.contains("cannot store and read blobs"), "{log}");
    std::fs::remove_file(&blobs).unwrap();
    sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(get(&server, "/ready").await.0, 200);
    server.terminate();
}

#[tokio::test]
async fn server_is_not_ready_while_its_database_is_down() {
    let Some(database) = PostgresServer::start() else {
        return;
    };
    let address = database.address(&database.create_database());
    let home = Home::new();
    let server = HostServer::start(
        &home,
        &home.script(&json!([finish()])),
        &["--store", &address],
    );
    let wait_for = async |expected: u16| {
        let polling = async {
            loop {
                let asked = Instant::now();
                let (status, body) = get(&server, "/ready").await;
                assert!(asked.elapsed().as_secs() < 5, "{:?}", asked.elapsed());
                if status == expected {
                    return body;
                }
                sleep(std::time::Duration::from_millis(100)).await;
            }
        };
        timeout(TEST_TIMEOUT, polling).await.unwrap()
    };
    assert_eq!(wait_for(200).await, json!({"status": "ok"}));
    database.stop(Signal::INT);
    let body = wait_for(503).await;
    assert_eq!(body["msg_id"], "SERVER$STORE_UNAVAILABLE", "{body}");
    assert!(!body.to_string().contains("postgres"), "{body}");
    // Not a reason to restart the server.
    assert_eq!(get(&server, "/alive").await.0, 200);
    database.restart();
    wait_for(200).await;
    server.terminate();
}
