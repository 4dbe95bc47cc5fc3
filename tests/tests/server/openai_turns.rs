//! Turns of OpenAI's API whose client is gone, whose server ends, or whose agent does not come to
//! an answer.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tests::glovebox::{Home, bash, finish, wait_until};
use tests::host_server::{HostServer, is_state};
use tokio::time::sleep;

fn to_body(message: &str, fields: &Value) -> Value {
    let mut body = json!({"model": "glovebox", "messages": [{"role": "user", "content": message}]});
    body.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    body
}

/// The agent of a new conversation is stopped with its client. That of a named one keeps working.
#[tokio::test]
async fn disconnected_client_stops_only_its_own_agent() {
    let home = Home::new();
    let work = bash("echo $$ > started; until [ -e gate ]; do sleep 0.1; done; echo done");
    let server = HostServer::start(
        &home,
        &home.script(&json!([work, finish(), work, finish()])),
        &[],
    );
    let newest = async || {
        let listed = server.get("/api/conversations").await;
        listed["results"][0]["conversation_id"]
            .as_str()
            .map(str::to_owned)
    };
    let status =
        async |id: &str| server.get(&format!("/api/conversations/{id}")).await["status"].clone();
    let started = |id: &str| {
        home.path()
            .join(".glovebox/workspaces")
            .join(id)
            .join("started")
    };
    let mut seen = Vec::new();
    for is_stream in [false, true] {
        let body = to_body("Work.", &json!({"stream": is_stream}));
        let request = server
            .request(Method::POST, "/v1/chat/completions")
            .body(body.to_string());
        let client = tokio::spawn(async move {
            let response = request.send().await.unwrap();
            response.text().await.map(drop)
        });
        let id = loop {
            match newest().await.filter(|id| !seen.contains(id)) {
                Some(id) if started(&id).exists() => break id,
                _ => sleep(Duration::from_millis(50)).await,
            }
        };
        client.abort();
        while status(&id).await != "STOPPED" {
            sleep(Duration::from_millis(50)).await;
        }
        seen.push(id);
    }
    let id = server.create("Work.").await;
    wait_until("the command runs", || started(&id).exists());
    let body = to_body("Hurry.", &json!({"conversation_id": id}));
    let request = server
        .request(Method::POST, "/v1/chat/completions")
        .body(body.to_string());
    let client = tokio::spawn(async move { request.send().await.map(drop) });
    server
        .wait_for_event(&id, |event| event["args"]["content"] == "Hurry.")
        .await;
    client.abort();
    std::fs::write(started(&id).with_file_name("gate"), "").unwrap();
    let events = server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    assert!(
        events
            .iter()
            .any(|event| event["observation"] == "run" && event["content"] == "done")
    );
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    server.terminate();
    home.assert_nothing_runs();
}

/// The client learns that the server ends. The agent of its conversation continues with the next
/// server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turn_of_a_terminated_server_continues_with_the_next() {
    let home = Home::new();
    let work = bash("echo run >> started; until [ -e gate ]; do sleep 0.1; done; echo done");
    let model = home.script(&json!([work, finish()]));
    let server = HostServer::start(&home, &model, &[]);
    let send = |is_stream: bool| {
        let body = to_body("Work.", &json!({"stream": is_stream}));
        let request = server
            .request(Method::POST, "/v1/chat/completions")
            .body(body.to_string());
        tokio::spawn(async move {
            let response = request.send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        })
    };
    let (plain, stream) = (send(false), send(true));
    let started = || {
        let folders = std::fs::read_dir(home.path().join(".glovebox/workspaces"))
            .into_iter()
            .flatten();
        let started = folders.map(|folder| folder.unwrap().path().join("started"));
        started
            .filter(|started| started.exists())
            .collect::<Vec<_>>()
    };
    wait_until("the commands run", || started().len() == 2);
    server.terminate();
    let ((status, text), (stream_status, chunks)) = (plain.await.unwrap(), stream.await.unwrap());
    assert_eq!((status, stream_status), (503, 200), "{text}");
    for text in [text, chunks] {
        assert!(
            text.contains(r#""type":"server_error""#) && text.contains("SERVER$SHUTTING_DOWN"),
            "{text}"
        );
        assert!(!text.contains("[DONE]"));
    }
    let server = HostServer::start(&home, &model, &[]);
    for started in started() {
        std::fs::write(started.with_file_name("gate"), "").unwrap();
        let id = started
            .parent()
            .unwrap()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        server
            .wait_for_event(&id, |event| is_state(event, "finished"))
            .await;
        assert_eq!(std::fs::read_to_string(&started).unwrap(), "run\n");
        server
            .post(&format!("/api/conversations/{id}/stop"), &json!({}))
            .await;
    }
    server.terminate();
    home.assert_nothing_runs();
}

#[tokio::test]
async fn agent_without_an_answer_is_an_error_without_a_retry() {
    let home = Home::new();
    home.write(".glovebox/config.toml", "[core]\nmax_iterations = 1\n");
    let server = HostServer::start(
        &home,
        &home.script(&json!([bash("echo hello"), finish()])),
        &[],
    );
    let body = to_body("Say hello.", &json!({}));
    let request = server
        .request(Method::POST, "/v1/chat/completions")
        .body(body.to_string());
    let response = request.send().await.unwrap();
    assert_eq!(
        (
            response.status().as_u16(),
            &response.headers()["x-should-retry"]
        ),
        (422, &"false".parse().unwrap())
    );
    let id = response.headers()["x-conversation-id"]
        .to_str()
        .unwrap()
        .to_owned();
    let error: Value = response.json().await.unwrap();
    assert_eq!(error["error"]["code"], "AGENT$LIMIT_REACHED", "{error}");
    server
        .wait_for_event(&id, |event| is_state(event, "error"))
        .await;
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    server.terminate();
    home.assert_nothing_runs();
}
