//! Actions: an id runs once, output can be read again by offset, a cancel kills everything and a
//! lost connection nothing.

use std::fs;
use std::io::Write as _;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request};
use protocol::observation::ObservationKind;
use serde_json::json;

use crate::harness::{TestServer, pids, wait_until, wait_until_dead};

fn run(command: &str) -> String {
    json!({"action": "run", "args": {"command": command, "blocking": true}}).to_string()
}

fn open(gate: &std::path::Path) {
    fs::OpenOptions::new()
        .write(true)
        .open(gate)
        .unwrap()
        .write_all(b"open\n")
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn action_runs_once_when_started_with_the_same_id() {
    let server = TestServer::start();
    let gate = server.gate("gate");
    let request = run("echo ran >> count; echo one; cat gate");
    let first = server.start_request(Method::POST, "/v1/actions/a", request.clone());
    wait_until("the action runs", || server.file("count").exists());
    let second = server.start_request(Method::POST, "/v1/actions/a", request.clone());
    open(&gate);
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!(first.answer().text(), "one\nopen\n");
    let again = server
        .send(Method::POST, "/v1/actions/a?after=4", request.clone())
        .await;
    assert_eq!(again.answer().text(), "open\n");
    let attached = server.send(Method::GET, "/v1/actions/a", "").await;
    assert_eq!(attached.answer(), first.answer());
    assert_eq!(second.answer(), first.answer());
    assert_eq!(fs::read_to_string(server.file("count")).unwrap(), "ran\n");
    assert_eq!(first.answer().observation.success(), Some(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn start_is_refused_when_the_id_has_another_action() {
    let server = TestServer::start();
    server.run("a", "true").await;
    let other = server
        .send(Method::POST, "/v1/actions/a", run("false"))
        .await;
    assert_eq!(
        (other.status, other.json()["code"].as_str()),
        (409, Some("conflict"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn action_continues_when_its_connection_is_lost() {
    let server = TestServer::start();
    let gate = server.gate("gate");
    let mut client = server.http2().await;
    let request = Request::post("http://sandbox/v1/actions/a")
        .body(Full::<Bytes>::from(run("cat gate")))
        .unwrap();
    let response = client.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    drop((response, client));
    open(&gate);
    let attached = server.send(Method::GET, "/v1/actions/a", "").await;
    assert_eq!(attached.answer().text(), "open\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_streamed_before_the_action_completes() {
    let server = TestServer::start();
    let gate = server.gate("gate");
    let mut client = server.http2().await;
    let request = Request::post("http://sandbox/v1/actions/a")
        .body(Full::<Bytes>::from(run("echo early; cat gate")))
        .unwrap();
    let mut body = client.send_request(request).await.unwrap().into_body();
    let mut read = Vec::new();
    while !read.windows(5).any(|window| window == b"early") {
        read.extend(body.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    open(&gate);
    body.collect().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn long_output_is_retained_until_it_is_acknowledged() {
    let server = TestServer::start();
    let first = server.run("a", "seq 1500000; echo end").await;
    let expected: String = (1..=1_500_000)
        .map(|n| format!("{n}\n"))
        .chain(["end\n".into()])
        .collect();
    assert!(expected.len() > 10 << 20);
    assert!(
        first.output == expected.as_bytes(),
        "{} bytes",
        first.output.len()
    );
    for after in [0, 7, 2_000_000, expected.len() - 3] {
        let answer = server
            .send(Method::GET, &format!("/v1/actions/a?after={after}"), "")
            .await
            .answer();
        assert_eq!(answer.gaps, []);
        assert!(
            answer.output == expected.as_bytes()[after..],
            "after {after}"
        );
    }
    let acknowledge = || server.send(Method::POST, "/v1/actions/a/acknowledge", "");
    assert_eq!(acknowledge().await.status, 204);
    assert_eq!(acknowledge().await.status, 410);
    assert_eq!(
        server.send(Method::GET, "/v1/actions/a", "").await.status,
        410
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledge_is_refused_while_the_action_runs() {
    let server = TestServer::start();
    let gate = server.gate("gate");
    let reply = server.start_request(
        Method::POST,
        "/v1/actions/a",
        run("echo ran >> started; cat gate"),
    );
    wait_until("the action runs", || server.file("started").exists());
    let refused = server
        .send(Method::POST, "/v1/actions/a/acknowledge", "")
        .await;
    assert_eq!(
        (refused.status, refused.json()["code"].as_str()),
        (409, Some("conflict"))
    );
    open(&gate);
    assert_eq!(reply.await.unwrap().answer().text(), "open\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_kills_the_process_tree_and_returns_an_observation() {
    let server = TestServer::start();
    let command = "sleep 1000 & echo $! >> pids; setsid sleep 1001 & sh -c 'sleep 1002 & echo $! >> pids; wait' & \
                   echo $! >> pids; wait";
    let reply = server.start_request(Method::POST, "/v1/actions/a", run(command));
    let tree = pids(&server.file("pids"), 3);
    for _ in 0..2 {
        assert_eq!(
            server
                .send(Method::DELETE, "/v1/actions/a", "")
                .await
                .status,
            204
        );
    }
    let reply = reply.await.unwrap();
    assert!(matches!(
        reply.answer().observation.kind,
        ObservationKind::Run(_) | ObservationKind::Error(_)
    ));
    tree.into_iter().for_each(wait_until_dead);
    assert_eq!(
        server
            .send(Method::DELETE, "/v1/actions/a", "")
            .await
            .status,
        204
    );
    assert_eq!(server.run("b", "echo alive").await.text(), "alive\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn relative_file_paths_refer_to_the_working_directory() {
    let server = TestServer::start();
    let dir = server.dir.path().canonicalize().unwrap();
    server
        .act(
            "w",
            json!({"action": "write", "args": {"path": "a/b", "content": "x\ny\n"}}),
        )
        .await;
    let read = server
        .act(
            "r",
            json!({"action": "read", "args": {"path": "a/b", "start": 1}}),
        )
        .await
        .observation;
    assert_eq!(read.content, "y\n");
    let missing = server
        .act("m", json!({"action": "read", "args": {"path": "none"}}))
        .await
        .observation;
    let (file, dir) = (
        dir.join("none").display().to_string(),
        dir.display().to_string(),
    );
    assert_eq!(
        missing.content,
        format!("File not found: {file}. Your current working directory is {dir}.")
    );
    let view = json!({"action": "read", "args": {"path": "a/b", "impl_source": "oh_aci", "view_range": [2, 2]}});
    assert!(
        server
            .act("v", view)
            .await
            .observation
            .content
            .ends_with("/a/b:\n     2\ty\n")
    );
    let edit = json!({"action": "edit", "args": {"path": "a/b", "command": "insert", "insert_line": 9, "new_str": ""}});
    assert!(
        server
            .act("e", edit)
            .await
            .observation
            .content
            .starts_with("ERROR:\nInvalid `insert_line` parameter")
    );
    nix::unistd::mkfifo(&server.file("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let pipe = server
        .act("p", json!({"action": "read", "args": {"path": "pipe"}}))
        .await
        .observation;
    assert_eq!(pipe.kind.kind(), "error");
}

#[tokio::test(flavor = "multi_thread")]
async fn execute_action_returns_the_observation() {
    let server = TestServer::start();
    let event = json!({"action": {"id": 3, "source": "agent", "timeout": 120, "action": "run",
        "args": {"command": "echo hi"}}});
    let reply = server
        .send(Method::POST, "/execute_action", event.to_string())
        .await;
    let observation = reply.json();
    assert_eq!(
        (reply.status, observation["observation"].as_str()),
        (200, Some("run"))
    );
    assert!(
        observation["content"].as_str().unwrap().starts_with("hi"),
        "{observation}"
    );
    assert_eq!(observation["extras"]["metadata"]["exit_code"], 0);
    assert_eq!(observation["success"], true);
    let page = json!({"action": {"action": "browse", "args": {"url": "http://x"}}});
    let reply = server
        .send(Method::POST, "/execute_action", page.to_string())
        .await;
    assert_eq!(
        (reply.status, reply.json()["observation"].as_str()),
        (200, Some("error"))
    );
}
