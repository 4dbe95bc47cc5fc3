//! `glovebox serve`, with real clients.

mod audit;
mod expensive_requests;
mod feedback;
mod files;
mod full_disk;
mod git;
mod hostile_input;
mod large_events;
mod many_sockets;
mod mcp_endpoint;
mod openai;
mod openai_turns;
mod openapi;
mod operations;
mod page;
mod ports;
mod rate_limit;
mod requests;
mod restart;
mod settings;
mod several_hosts;
mod socket_io;
mod store_outage;
mod stream;
mod users;
mod v2;
mod v2_files;
mod workspace_git;

use reqwest::Method;
use serde_json::{Value, json};
use tests::glovebox::{Home, bash, finish};
use tests::host_server::{HostServer, is_state};

#[tokio::test]
async fn conversation_runs_stops_and_continues() {
    let home = Home::new();
    let model = home.script(&json!([bash("echo hello"), finish(), {"text": "Again."}]));
    let server = HostServer::start(&home, &model, &[]);
    let id = server.create("Say hello.").await;
    let events = server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    let run = events
        .iter()
        .find(|event| event["observation"] == "run")
        .unwrap();
    assert_eq!(run["content"], "hello");
    assert!(
        events
            .iter()
            .all(|event| event["id"].is_u64() && event.get("message").is_some()),
        "{events:#?}"
    );
    let info = server.get(&format!("/api/conversations/{id}")).await;
    assert_eq!(
        (&info["status"], &info["title"]),
        (&json!("RUNNING"), &json!("Say hello."))
    );
    assert_eq!(info["runtime_status"], "STATUS$READY");

    let stopped = server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    assert_eq!(stopped["conversation_status"], "STOPPED");
    // A message opens the conversation again.
    server
        .post(
            &format!("/api/conversations/{id}/message"),
            &json!({"message": "Once more."}),
        )
        .await;
    server
        .wait_for_event(&id, |event| event["args"]["content"] == "Again.")
        .await;
    assert_eq!(
        server.get(&format!("/api/conversations/{id}")).await["status"],
        "RUNNING"
    );

    let path = format!("/api/conversations/{id}");
    assert_eq!(
        server.send(Method::DELETE, &path, None).await.1,
        json!(true)
    );
    assert_eq!(server.get(&path).await, Value::Null);
    assert_eq!(
        server.send(Method::DELETE, &path, None).await.1,
        json!(false)
    );
    server.terminate();
    home.assert_nothing_runs();
}

#[tokio::test]
async fn conversation_without_a_message_waits_for_the_first() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let created = server.post("/api/conversations", &json!({})).await;
    let id = created["conversation_id"].as_str().unwrap();
    server
        .wait_for_event(id, |event| is_state(event, "awaiting_user_input"))
        .await;
    let path = format!("/api/conversations/{id}/events");
    server
        .post(
            &path,
            &json!({"action": "message", "args": {"content": "Go."}}),
        )
        .await;
    let events = server
        .wait_for_event(id, |event| is_state(event, "finished"))
        .await;
    let message = events
        .iter()
        .find(|event| event["action"] == "message")
        .unwrap();
    assert_eq!(
        (&message["source"], &message["args"]["content"]),
        (&json!("user"), &json!("Go."))
    );
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    server.terminate();
    home.assert_nothing_runs();
}

#[tokio::test]
async fn idle_conversation_is_closed() {
    let home = Home::new();
    home.write(".glovebox/config.toml", "[sandbox]\nclose_delay = 1\n");
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let id = server.create("Finish.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    let has_sandbox = || {
        home.processes()
            .iter()
            .any(|(_, line)| line.contains("--working-dir"))
    };
    assert!(has_sandbox());
    let is_stopped =
        async || server.get(&format!("/api/conversations/{id}")).await["status"] == "STOPPED";
    let closed = async {
        while has_sandbox() || !is_stopped().await {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(tests::glovebox::TEST_TIMEOUT, closed)
        .await
        .expect("the sandbox is removed");
    server.terminate();
}
