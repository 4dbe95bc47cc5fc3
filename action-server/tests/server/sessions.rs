//! Several shells by name: independent, listed, and reset whatever hangs in them.

use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{CompletedAction, TestServer, pids, wait_until_dead};

async fn run_in(server: &TestServer, id: &str, session: &str, command: &str) -> CompletedAction {
    let action = json!({"action": "run", "args": {"command": command, "blocking": true}, "session": session});
    server.act(id, action).await
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_independent_of_each_other() {
    let server = TestServer::start();
    run_in(&server, "a1", "a", "A=1; cd /").await;
    let slow = server.start_request(
        Method::POST,
        "/v1/actions/slow",
        json!({"action": "run", "args": {"command": "read x <gate; echo $x"}, "session": "slow"})
            .to_string(),
    );
    let gate = server.gate("gate");
    assert_eq!(
        run_in(&server, "a2", "a", "echo $A; pwd").await.text(),
        "1\n/\n"
    );
    assert_eq!(run_in(&server, "b1", "b", "echo [$A]").await.text(), "[]\n");
    let read = json!({"action": "read", "args": {"path": "etc/hostname"}, "session": "a"});
    assert!(!server.act("a3", read).await.observation.content.is_empty());
    let list = server.send(Method::GET, "/v1/sessions", "").await.json();
    let names: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|session| session["name"].clone())
        .collect();
    assert_eq!(names, ["a", "b", "default", "slow"]);
    assert_eq!(
        (&list[0]["working_dir"], &list[3]["busy"]),
        (&json!("/"), &json!(true))
    );
    tokio::task::spawn_blocking(move || std::fs::write(gate, "late\n").unwrap())
        .await
        .unwrap();
    assert_eq!(slow.await.unwrap().answer().text(), "late\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_session_is_reset_within_a_second() {
    let server = TestServer::start();
    let stubborn = "trap '' INT TERM HUP; (setsid sh -c 'echo $$ >>pids; trap \"\" TERM; sleep 1000' &); \
                    stty raw; echo $$ >>pids; while :; do sleep 1000; done";
    let action = json!({"action": "run", "args": {"command": stubborn}, "session": "s"});
    let hung = server.start_request(Method::POST, "/v1/actions/hung", action.to_string());
    let hanging = pids(&server.file("pids"), 2);
    let started = Instant::now();
    let reply = server.send(Method::DELETE, "/v1/sessions/s", "").await;
    assert_eq!(reply.status, 204);
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    let answer = hung.await.unwrap().answer();
    assert!(answer.observation.content.is_empty(), "{answer:?}");
    hanging.into_iter().for_each(wait_until_dead);
    assert_eq!(
        run_in(&server, "next", "s", "echo fine").await.text(),
        "fine\n"
    );
    assert_eq!(
        server
            .send(Method::DELETE, "/v1/sessions/never", "")
            .await
            .status,
        404
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn error_names_an_invalid_session_name() {
    let server = TestServer::start();
    let action = json!({"action": "run", "args": {"command": "true"}, "session": "../x"});
    let reply = server
        .send(Method::POST, "/v1/actions/a", action.to_string())
        .await;
    assert_eq!(reply.status, 422);
    let detail: Value = reply.json()["detail"].clone();
    assert!(detail.as_str().unwrap().contains("session"), "{detail}");
}
