//! Metrics in the format of OpenMetrics, read by Prometheus' own parser.

use std::process::Stdio;

use reqwest::Method;
use serde_json::{Value, json};
use tests::glovebox::{Home, bash, finish};
use tests::host_server::{HostServer, is_state};
use tests::postgres::PostgresServer;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::test_packages::pypi_packages;

/// Prints the samples as JSON: a list of the name, the labels and the value. Fails on text that is
/// not in the format.
const PARSER: &str = "
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
families = list(text_string_to_metric_families(sys.stdin.read()))
assert all(family.documentation for family in families)
print(json.dumps([[sample.name, sample.labels, sample.value] for family in families for sample in family.samples]))
";

/// Metrics as they were at one time.
struct Samples(Vec<(String, Value, f64)>);

impl Samples {
    /// `None`, and the test is skipped, without the parser.
    async fn scrape(server: &HostServer) -> Option<Self> {
        let packages = pypi_packages()?;
        let request = server.request_without_key(Method::GET, "/metrics");
        let response = request.bearer_auth(&server.key).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let content_type = response.headers()["content-type"].to_str().unwrap();
        assert!(
            content_type.starts_with("application/openmetrics-text; version=1.0.0"),
            "{content_type}"
        );
        let text = response.text().await.unwrap();
        let mut parser = Command::new("python3");
        parser
            .args(["-c", PARSER])
            .env("PYTHONPATH", packages)
            .kill_on_drop(true);
        let mut parser = parser
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        parser
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .await
            .unwrap();
        let output = parser.wait_with_output().await.unwrap();
        assert!(output.status.success(), "{text}");
        Some(Self(serde_json::from_slice(&output.stdout).unwrap()))
    }

    /// Returns the sum of all samples with a name and these labels.
    fn sum(&self, name: &str, labels: &Value) -> f64 {
        let has_labels = |own: &Value| {
            labels
                .as_object()
                .unwrap()
                .iter()
                .all(|(key, value)| own[key] == *value)
        };
        let samples = self
            .0
            .iter()
            .filter(|(own, labels, _)| own == name && has_labels(labels));
        samples.map(|(_, _, value)| value).sum()
    }
}

#[tokio::test]
async fn metrics_count_what_a_conversation_does() {
    let home = Home::new();
    let command = "until [ -e gate ]; do sleep 0.05; done";
    let model = home.script(&json!([bash(command), finish()]));
    let server = HostServer::start(&home, &model, &[]);
    let Some(before) = Samples::scrape(&server).await else {
        return;
    };
    assert_eq!(before.sum("glovebox_agent_steps_total", &json!({})), 0.0);
    let id = server.create("Wait.").await;
    server
        .wait_for_event(&id, |event| event["action"] == "run")
        .await;
    let stream = server.request(Method::GET, &format!("/api/v2/conversations/{id}/stream"));
    let stream = stream.send().await.unwrap();
    let during = Samples::scrape(&server).await.unwrap();
    assert_eq!(
        during.sum(
            "glovebox_conversations_running",
            &json!({"state": "running"})
        ),
        1.0
    );
    assert_eq!(during.sum("glovebox_streams_open", &json!({})), 1.0);
    let gate = home
        .path()
        .join(".glovebox/workspaces")
        .join(&id)
        .join("gate");
    std::fs::write(gate, "").unwrap();
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    drop(stream);
    let _ = server
        .send(
            Method::GET,
            "/api/conversations/none/events?limit=1000",
            None,
        )
        .await;

    let after = Samples::scrape(&server).await.unwrap();
    let sum = |name: &str, labels: Value| after.sum(name, &labels);
    assert_eq!(sum("glovebox_agent_steps_total", json!({})), 2.0);
    assert_eq!(
        sum("glovebox_model_call_duration_seconds_count", json!({})),
        2.0
    );
    assert_eq!(sum("glovebox_model_calls_in_flight", json!({})), 0.0);
    assert_eq!(
        sum(
            "glovebox_sandbox_start_duration_seconds_count",
            json!({"backend": "local"})
        ),
        1.0
    );
    assert!(
        sum(
            "glovebox_sandbox_start_phase_duration_seconds_count",
            json!({"backend": "local"})
        ) >= 1.0
    );
    assert_eq!(
        sum(
            "glovebox_conversations_running",
            json!({"state": "finished"})
        ),
        1.0
    );
    assert_eq!(sum("glovebox_event_append_errors_total", json!({})), 0.0);
    let events = sum("glovebox_events_appended_total", json!({}));
    let appends = sum("glovebox_event_append_duration_seconds_count", json!({}));
    assert!(events >= appends && appends > 5.0, "{events} {appends}");
    let requests = |route: &str, status: &str| {
        let labels = json!({"method": "GET", "route": route, "status": status});
        sum("glovebox_http_request_duration_seconds_count", labels)
    };
    assert!(
        requests("/api/conversations/{id}/events", "2xx") >= 2.0,
        "{:?}",
        after.0
    );
    assert_eq!(requests("/api/conversations/{id}/events", "4xx"), 1.0);
    assert_eq!(requests("/api/v2/conversations/{id}/stream", "2xx"), 1.0);
    let has_id = after
        .0
        .iter()
        .any(|(_, labels, _)| labels.to_string().contains(&id));
    assert!(!has_id, "no label names a conversation");
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    server.terminate();
    home.assert_nothing_runs();
}

#[tokio::test]
async fn failed_calls_and_starts_are_counted() {
    let home = Home::new();
    // The script ends before the agent does.
    let server = HostServer::start(&home, &home.script(&json!([bash("true")])), &[]);
    let id = server.create("Fail.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "error"))
        .await;
    let Some(samples) = Samples::scrape(&server).await else {
        return;
    };
    assert_eq!(
        samples.sum(
            "glovebox_model_call_errors_total",
            &json!({"error": "script_ended"})
        ),
        1.0
    );
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    server.terminate();
}

#[tokio::test]
async fn connections_to_the_database_are_counted() {
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
    let Some(samples) = Samples::scrape(&server).await else {
        return;
    };
    assert!(
        samples.sum("glovebox_database_connections", &json!({})) >= 1.0,
        "{:?}",
        samples.0
    );
    assert_eq!(samples.sum("glovebox_database_waiting", &json!({})), 0.0);
    server.terminate();
}

#[tokio::test]
async fn metrics_need_the_key_of_the_operator() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    assert!(
        home.glovebox(&["user", "add", "ada"])
            .status()
            .unwrap()
            .success()
    );
    let (user_key, _) = home.add_key("ada", &[]);
    assert_eq!(server.status_with_key("/metrics", None).await, 401);
    assert_eq!(server.status_with_key("/metrics", Some("wrong")).await, 401);
    assert_eq!(
        server.status_with_key("/metrics", Some(&user_key)).await,
        403
    );
    assert_eq!(
        server.status_with_key("/metrics", Some(&server.key)).await,
        200
    );
    assert_eq!(server.send(Method::POST, "/metrics", None).await.0, 405);
    server.terminate();
}
