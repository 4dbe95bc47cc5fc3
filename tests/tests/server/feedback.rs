//! Feedback on conversations.

use reqwest::Method;
use serde_json::json;
use tests::glovebox::{Home, finish};
use tests::host_server::{HostServer, is_state};

#[tokio::test]
async fn feedback_is_stored_in_the_log_of_the_conversation() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let id = server.create("Finish.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    let path = format!("/api/conversations/{id}/submit-feedback");
    // V0's page also sends a token and a trajectory.
    let sent = json!({
        "version": "1.0", "email": "a@example.org", "polarity": "positive", "permissions": "private",
        "token": "", "trajectory": [],
    });
    let stored = json!({"version": "1.0", "email": "a@example.org", "polarity": "positive", "permissions": "private"});
    // As in V0, everything else has a default.
    let brief = server.post(&path, &json!({"polarity": "negative"})).await;
    assert_eq!(
        (&brief["version"], &brief["permissions"]),
        (&json!(""), &json!("private"))
    );
    let mut reply = server.post(&path, &sent).await;
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    assert_eq!(server.post(&path, &sent).await, reply);
    // V0's page shows these.
    let shown = reply.as_object_mut().unwrap().remove("body").unwrap();
    assert!(
        shown["message"].as_str().unwrap().contains("is stored"),
        "{shown}"
    );
    assert_eq!(
        (&shown["feedback_id"], &shown["password"]),
        (&json!(""), &json!(""))
    );
    assert_eq!(
        reply.as_object_mut().unwrap().remove("statusCode"),
        Some(json!(200))
    );
    assert_eq!(reply, stored);
    for (field, value, expected) in [
        ("polarity", json!("none"), 422),
        ("version", json!("x".repeat(257)), 400),
        ("email", json!(1), 422),
    ] {
        let mut wrong = stored.clone();
        wrong[field] = value;
        let (status, response) = server.send(Method::POST, &path, Some(&wrong)).await;
        assert_eq!(
            (status.as_u16(), &response["field"]),
            (expected, &json!(field)),
            "{response}"
        );
    }
    let unknown = "/api/conversations/none/submit-feedback";
    assert_eq!(
        server.send(Method::POST, unknown, Some(&stored)).await.0,
        404
    );
    // V0's clients do not know the record, and see none.
    let events = server.wait_for_event(&id, |_| true).await;
    assert!(
        !events
            .iter()
            .any(|event| event.to_string().contains("feedback_given"))
    );
    server.terminate();
    let log = home
        .run(&["conversations", "show", &id, "--json"])
        .expect(0)
        .events();
    let records: Vec<_> = log
        .iter()
        .filter(|event| event["record"] == "feedback_given")
        .collect();
    assert_eq!(records.len(), 3);
    assert!(
        records
            .iter()
            .skip(1)
            .all(|record| record["args"] == stored && record["source"] == "user"),
        "{records:?}"
    );
}

#[tokio::test]
async fn experiments_are_not_stored() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let id = server.create("Finish.").await;
    let path = format!("/api/conversations/{id}/exp-config");
    assert_eq!(
        server.post(&path, &json!({"config": {"a": "b"}})).await,
        json!(false)
    );
    let unknown = "/api/conversations/none/exp-config";
    assert_eq!(
        server.send(Method::POST, unknown, Some(&json!({}))).await.0,
        404
    );
}
