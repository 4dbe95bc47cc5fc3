//! Conversations across restarts of the server.

use reqwest::{Method, StatusCode};
use serde_json::json;
use tests::glovebox::{Home, bash, finish};
use tests::host_server::{HostServer, is_state};

/// An agent that is at work when its server ends continues with the next one. Its action runs once.
async fn work_continues(end: impl FnOnce(HostServer)) {
    let home = Home::new();
    let marker = home.workspace().join("runs");
    let gate = home.workspace().join("gate");
    let command = format!(
        "echo run >> {}; until [ -e {} ]; do sleep 0.05; done; echo done",
        marker.display(),
        gate.display()
    );
    home.write(
        ".glovebox/config.toml",
        format!("[core]\nworkspace_base = \"{}\"\n", home.workspace().display()),
    );
    let model = home.script(&json!([bash(&command), finish()]));
    let server = HostServer::start(&home, &model, &[]);
    let id = server.create("Work.").await;
    server.wait_for_event(&id, |event| event["action"] == "run").await;
    while !marker.exists() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    end(server);
    let server = HostServer::start(&home, &model, &[]);
    std::fs::write(gate, "").unwrap();
    let events = server.wait_for_event(&id, |event| is_state(event, "finished")).await;
    let run = events.iter().find(|event| event["observation"] == "run").unwrap();
    assert_eq!(run["content"], "done");
    assert_eq!(std::fs::read_to_string(marker).unwrap(), "run\n");
    server.post(&format!("/api/conversations/{id}/stop"), &json!({})).await;
    server.terminate();
    home.assert_nothing_runs();
}

#[tokio::test]
async fn work_continues_after_the_server_is_killed() {
    work_continues(HostServer::kill).await;
}

#[tokio::test]
async fn work_continues_after_the_server_is_terminated() {
    work_continues(HostServer::terminate).await;
}

#[tokio::test]
async fn conversation_of_another_server_is_not_changed() {
    let home = Home::new();
    let model = home.script(&json!([bash("sleep 60"), finish()]));
    let (first, second) = (HostServer::start(&home, &model, &[]), HostServer::start(&home, &model, &[]));
    let id = first.create("Work.").await;
    first.wait_for_event(&id, |event| event["action"] == "run").await;
    let path = format!("/api/conversations/{id}");
    assert_eq!(second.get(&path).await["status"], "RUNNING");
    let pause = json!({"action": "change_agent_state", "args": {"agent_state": "paused"}});
    for (route, body) in [("stop", json!({})), ("message", json!({"message": "Go on."})), ("events", pause)] {
        let (status, error) = second.send(Method::POST, &format!("{path}/{route}"), Some(&body)).await;
        assert_eq!(status, StatusCode::CONFLICT, "{route}: {error}");
    }
    first.post(&format!("{path}/stop"), &json!({})).await;
    [first, second].into_iter().for_each(HostServer::terminate);
    home.assert_nothing_runs();
}

#[tokio::test]
async fn key_stays_the_same_after_a_restart() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    let first = HostServer::start(&home, &model, &[]);
    let key = first.key.clone();
    first.terminate();
    let second = HostServer::start(&home, &model, &[]);
    assert_eq!(second.key, key);
    assert_eq!(second.get("/api/conversations").await["results"], json!([]));
    second.terminate();
}
