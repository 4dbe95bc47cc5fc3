//! Conversations across restarts of the server.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::json;
use tests::glovebox::{Home, bash, finish};
use tests::host_server::{HostServer, is_state};
use tests::model_server::{ModelReply, ModelServer};

/// An agent that is working when its server ends continues with the next one. Its action runs once.
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
        format!(
            "[core]\nworkspace_base = \"{}\"\n",
            home.workspace().display()
        ),
    );
    let model = home.script(&json!([bash(&command), finish()]));
    let server = HostServer::start(&home, &model, &[]);
    let id = server.create("Work.").await;
    server
        .wait_for_event(&id, |event| event["action"] == "run")
        .await;
    while !marker.exists() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    end(server);
    let server = HostServer::start(&home, &model, &[]);
    std::fs::write(gate, "").unwrap();
    let events = server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    let run = events
        .iter()
        .find(|event| event["observation"] == "run")
        .unwrap();
    assert_eq!(run["content"], "done");
    assert_eq!(std::fs::read_to_string(marker).unwrap(), "run\n");
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
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

/// The server has kept the sandbox, so that a message continues in it.
#[tokio::test]
async fn stop_removes_the_sandbox_that_was_kept() {
    let home = Home::new();
    let model = home.script(&json!([bash("echo hello"), finish(), {"text": "Again."}]));
    let server = HostServer::start(&home, &model, &[]);
    let id = server.create("Say hello.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    server.terminate();
    let has_sandbox = || {
        home.processes()
            .iter()
            .any(|(_, line)| line.contains("--working-dir"))
    };
    assert!(has_sandbox(), "the sandbox is kept");
    let server = HostServer::start(&home, &model, &[]);
    let path = format!("/api/conversations/{id}");
    server.post(&format!("{path}/stop"), &json!({})).await;
    assert!(!has_sandbox());
    // A message gets a new one.
    server
        .post(&format!("{path}/message"), &json!({"message": "Again."}))
        .await;
    server
        .wait_for_event(&id, |event| event["args"]["content"] == "Again.")
        .await;
    server.post(&format!("{path}/stop"), &json!({})).await;
    server.terminate();
    home.assert_nothing_runs();
}

fn start(home: &Home, model: &ModelServer, arguments: &[&str]) -> HostServer {
    let own = ["serve", "--listen", "127.0.0.1:0", "--runtime", "local"];
    let mut command = home.glovebox(&[&own, arguments].concat());
    command.envs([
        ("LLM_MODEL", "openai/test"),
        ("LLM_API_KEY", "k"),
        ("LLM_BASE_URL", &model.base_url),
    ]);
    HostServer::from_command(home, &mut command)
}

/// Starts a server of a model, and returns it with a conversation that calls the model.
async fn calling(home: &Home, model: &ModelServer, arguments: &[&str]) -> (HostServer, String) {
    let server = start(home, model, arguments);
    let id = server.create("Work.").await;
    model.called(1).await;
    (server, id)
}

#[tokio::test]
async fn call_of_a_model_ends_before_the_server() {
    let home = Home::new();
    let call = ModelReply::call(
        "execute_bash",
        &json!({"command": "echo called", "security_risk": "LOW"}),
    );
    let late = ModelReply::Late(Duration::from_secs(3), Box::new(call));
    let model = ModelServer::start([
        late,
        ModelReply::call("finish", &json!({"message": "Done."})),
    ])
    .await;
    let (server, id) = calling(&home, &model, &[]).await;
    // The model replies in this runtime.
    tokio::task::spawn_blocking(|| server.terminate())
        .await
        .unwrap();
    assert_eq!(
        model.call_count(),
        1,
        "its command is not run, nor is the model called again"
    );
    let server = start(&home, &model, &[]);
    let events = server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    let results: Vec<_> = events
        .iter()
        .filter(|event| event["observation"] == "run")
        .collect();
    assert_eq!(
        (results.len(), &results[0]["content"]),
        (1, &json!("called"))
    );
    assert_eq!(model.call_count(), 2, "the call that ended is not repeated");
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    server.terminate();
    home.assert_nothing_runs();
}

#[tokio::test]
async fn server_ends_when_a_model_does_not() {
    let home = Home::new();
    let model = ModelServer::start([ModelReply::Silence]).await;
    let (server, _) = calling(&home, &model, &["--drain-timeout", "1s"]).await;
    let started = Instant::now();
    server.terminate();
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn conversation_of_another_server_is_not_changed() {
    let home = Home::new();
    let model = home.script(&json!([bash("sleep 60"), finish()]));
    let (first, second) = (
        HostServer::start(&home, &model, &[]),
        HostServer::start(&home, &model, &[]),
    );
    let id = first.create("Work.").await;
    first
        .wait_for_event(&id, |event| event["action"] == "run")
        .await;
    let path = format!("/api/conversations/{id}");
    assert_eq!(second.get(&path).await["status"], "RUNNING");
    let pause = json!({"action": "change_agent_state", "args": {"agent_state": "paused"}});
    for (route, body) in [
        ("stop", json!({})),
        ("message", json!({"message": "Go on."})),
        ("events", pause),
    ] {
        let (status, error) = second
            .send(Method::POST, &format!("{path}/{route}"), Some(&body))
            .await;
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
