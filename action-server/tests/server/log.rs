//! The log in JSON: one line per request, and no contents.

use std::fs::{self, File};

use hyper::Method;
use serde_json::Value;

use crate::harness::TestServer;

const SECRET: &str = "a-secret";

/// Runs a command, fails to read a file and shuts the server down. Each request contains
/// [`SECRET`]. Returns the log.
async fn logged(arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let stderr = File::create(&log).unwrap().into();
    let server = TestServer::start_with_stderr(
        tempfile::tempdir().unwrap(),
        Some("a-secret-key"),
        arguments,
        stderr,
    );
    server.run("one", "echo a-secret-text; sleep 0.2").await;
    let reply = server
        .send(Method::GET, "/v1/files?path=a-secret-file", "")
        .await;
    assert_eq!(reply.status, 404);
    drop(server);
    let text = fs::read_to_string(log).unwrap();
    assert!(!text.contains(SECRET), "{text}");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn json_log_has_a_line_per_request_without_contents() {
    let text = logged(&["--log-format", "json", "--log-level", "debug"]).await;
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let completed = lines
        .iter()
        .filter(|line| line["fields"]["message"] == "request completed");
    let mut requests: Vec<_> = completed
        .map(|line| {
            let (span, fields) = (&line["span"], &line["fields"]);
            assert_eq!(
                (&span["name"], &line["level"]),
                (&"request".into(), &"DEBUG".into()),
                "{line}"
            );
            let duration_ms = fields["duration_ms"].as_f64().unwrap();
            let request = [&span["method"], &span["path"]].map(|value| value.as_str().unwrap());
            (
                request,
                fields["status"].as_u64().unwrap(),
                duration_ms >= 200.0,
            )
        })
        .collect();
    requests.sort_unstable();
    let expected = [
        (["GET", "/v1/files"], 404, false),
        (["POST", "/v1/actions/one"], 200, true),
    ];
    assert_eq!(requests, expected, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn request_is_not_logged_when_the_level_is_info() {
    let text = logged(&["--log-level", "info"]).await;
    assert!(
        text.contains("shutting down") && !text.contains("request completed"),
        "{text}"
    );
    assert!(!text.starts_with('{'), "{text}");
}
