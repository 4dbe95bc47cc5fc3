//! The environment that the host sets: for all processes that start later, and not readable by
//! clients.

use hyper::Method;
use protocol::sandbox_api::{ProcessFrame, ProcessFrameDecoder};
use serde_json::json;

use crate::harness::{HttpReply, TestServer};

async fn set(server: &TestServer, variables: serde_json::Value) -> HttpReply {
    server
        .send(Method::PUT, "/v1/environment", variables.to_string())
        .await
}

/// Returns a variable as a new process sees it.
async fn process_variable(server: &TestServer, id: &str, name: &str) -> String {
    let request = json!({"argv": ["sh", "-c", format!("printf %s \"${name}\"")]});
    let reply = server
        .send(
            Method::POST,
            &format!("/v1/processes/{id}"),
            request.to_string(),
        )
        .await;
    let mut decoder = ProcessFrameDecoder::default();
    decoder.push(&reply.body);
    let mut received = Vec::new();
    while let Some(frame) = decoder.next_frame().unwrap() {
        if let ProcessFrame::Output { bytes, .. } = frame {
            received.extend(bytes);
        }
    }
    String::from_utf8(received).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_apply_to_shells_and_processes_started_later() {
    let server = TestServer::start();
    assert_eq!(
        set(&server, json!({"TOKEN": "s3cret", "HOME": "/elsewhere"}))
            .await
            .status,
        204
    );
    // The default shell was started with the server, and is restarted because nothing ran in it.
    assert_eq!(
        server.run("a1", "echo $TOKEN $HOME").await.text(),
        "s3cret /elsewhere\n"
    );
    assert_eq!(process_variable(&server, "p1", "TOKEN").await, "s3cret");

    // A second set replaces the first. A shell in which a command ran keeps its environment.
    assert_eq!(set(&server, json!({"OTHER": "o"})).await.status, 204);
    assert_eq!(
        server.run("a2", "echo $TOKEN $OTHER").await.text(),
        "s3cret\n"
    );
    assert_eq!(process_variable(&server, "p2", "TOKEN").await, "");
    assert_eq!(process_variable(&server, "p3", "OTHER").await, "o");
    assert_ne!(process_variable(&server, "p4", "HOME").await, "/elsewhere");
    let in_new =
        json!({"action": "run", "args": {"command": "echo [$TOKEN$OTHER]"}, "session": "new"});
    assert_eq!(server.act("a3", in_new).await.text(), "[o]\n");
    // A new shell after an exit has the current environment.
    server.run("a4", "exit").await;
    assert_eq!(
        server.run("a5", "echo [$TOKEN$OTHER]").await.text(),
        "[o]\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_is_unchanged_when_variables_are_too_long() {
    let server = TestServer::start();
    let value = "x".repeat(100 << 10);
    let many: serde_json::Map<_, _> = (0..10)
        .map(|number| (format!("V{number}"), json!(value)))
        .collect();
    assert_eq!(set(&server, many.into()).await.status, 204);
    assert_eq!(
        server.run("a1", "echo ${#V0} ${#V9}").await.text(),
        "102400 102400\n"
    );
    assert_eq!(
        process_variable(&server, "p1", "V9").await.len(),
        value.len()
    );

    let too_many: serde_json::Map<_, _> = (0..11)
        .map(|number| (format!("V{number}"), json!(value)))
        .collect();
    for (variables, status) in [
        (too_many.into(), 413),
        (json!({"A": "x".repeat(128 << 10)}), 422),
        (json!({"": "x"}), 422),
        (json!({"A=B": "x"}), 422),
        (json!({"A": "x\0y"}), 422),
        (json!({"A": 1}), 422),
        (json!(["A"]), 422),
    ] {
        assert_eq!(set(&server, variables).await.status, status);
    }
    assert_eq!(
        process_variable(&server, "p2", "V9").await.len(),
        value.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_cannot_be_read() {
    let server = TestServer::start();
    set(&server, json!({"TOKEN": "s3cret"})).await;
    assert_eq!(
        server.send(Method::GET, "/v1/environment", "").await.status,
        405
    );
    let refused = set(&server, json!({"TOKEN": "s3cret\0"})).await;
    assert!(
        !String::from_utf8_lossy(&refused.body).contains("s3cret"),
        "{refused:?}"
    );
}

/// Returns an action with variables for its command only.
fn action_with_variables(
    command: &str,
    session: &str,
    variables: serde_json::Value,
) -> serde_json::Value {
    json!({"action": "run", "args": {"command": command}, "session": session, "environment": variables})
}

#[tokio::test(flavor = "multi_thread")]
async fn command_variables_are_not_visible_to_other_commands() {
    let server = TestServer::start();
    assert_eq!(set(&server, json!({"TOKEN": "of all"})).await.status, 204);
    let action = action_with_variables(
        "echo $TOKEN; env | grep -c s3cret",
        "default",
        json!({"TOKEN": "s3cret"}),
    );
    assert_eq!(server.act("a1", action).await.text(), "s3cret\n1\n");
    assert_eq!(server.run("a2", "echo $TOKEN").await.text(), "of all\n");
    let other = action_with_variables("echo $TOKEN", "other", json!({}));
    assert_eq!(server.act("a3", other).await.text(), "of all\n");
    assert_eq!(process_variable(&server, "p1", "TOKEN").await, "of all");
}

#[tokio::test(flavor = "multi_thread")]
async fn action_attaches_when_the_variables_are_missing() {
    let server = TestServer::start();
    let with = |variables| action_with_variables("echo $TOKEN >> ran", "default", variables);
    server.act("a", with(json!({"TOKEN": "s3cret"}))).await;
    server.act("a", with(json!({"TOKEN": "another"}))).await;
    server.act("a", with(json!({}))).await;
    assert_eq!(
        std::fs::read_to_string(server.file("ran")).unwrap(),
        "s3cret\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_variable_is_refused_without_showing_its_value() {
    let server = TestServer::start();
    let long = "s3cret".repeat(32 << 10);
    for variables in [
        json!({"A B": "s3cret"}),
        json!({"1A": "s3cret"}),
        json!({"": "s3cret"}),
        json!({"A=": "s3cret"}),
        json!({"é": "s3cret"}),
        json!({"A;touch ran": "s3cret"}),
        json!({"A": "s3cret\0"}),
        json!({"A": long}),
        json!({"A": ["s3cret"]}),
        json!("s3cret"),
    ] {
        let request = action_with_variables("touch ran", "default", variables).to_string();
        let refused = server.send(Method::POST, "/v1/actions/a", request).await;
        let body = String::from_utf8_lossy(&refused.body).into_owned();
        assert_eq!(refused.status, 422, "{body}");
        assert!(
            body.contains("environment") && !body.contains("s3cret"),
            "{body}"
        );
    }
    assert!(!server.file("ran").exists());
}
