//! A program in a sandbox replaces the action server or its socket: it gets neither the key nor
//! control of a conversation.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post, put};
use axum::{Json, Router};
use engine::sandbox::SandboxError;
use protocol::ObservationKind;
use sandbox_local::IsolationKind;
use serde_json::json;
use tests::glovebox::{Home, bash, finish, wait_until};
use tests::sandbox_contract::local::LocalBackend;
use tests::sandbox_contract::{Backend, create_sandbox, error, remove, run};
use tokio::net::TcpListener;

use crate::skip::skip_without;

/// Replaces the server's socket with its own, stops the server, and records what it receives.
const SWAP: &str = r#"
import os, signal, socket, sys, time
path, server = sys.argv[1], int(sys.argv[2])
while not os.path.exists("go"):
    time.sleep(0.01)
os.rename(path, path + "moved")
fake = socket.socket(socket.AF_UNIX)
fake.bind(path)
fake.listen()
os.kill(server, signal.SIGSTOP)
open("swapped", "w").close()
while True:
    stream = fake.accept()[0]
    with open("received", "ab") as received:
        received.write(b"accepted\n")
        received.flush()
        while piece := stream.recv(65536):
            received.write(piece)
            received.flush()
"#;

async fn replaced_socket_receives_nothing(backend: &LocalBackend) {
    if skip_without("python3") {
        return;
    }
    let sandbox = create_sandbox(backend).await;
    let lease = sandbox.lease().clone();
    let workspace = Path::new(&lease.working_dir);
    std::fs::write(workspace.join("swap.py"), SWAP).unwrap();
    // The shell's parent is the server.
    let started = run(
        &*sandbox,
        1,
        "python3 swap.py $PWD/../r/s $PPID >said 2>&1 </dev/null & echo started",
    )
    .await;
    assert!(started.content.contains("started"), "{started:?}");
    std::fs::write(workspace.join("go"), "").unwrap();
    wait_until("the socket is replaced", || {
        workspace.join("swapped").exists()
    });

    let asked = Instant::now();
    let provider = backend.provider();
    for refused in [
        provider.find(&lease.sandbox_id).await,
        provider.attach(&lease).await,
    ] {
        let refused = error(refused);
        assert!(matches!(refused, SandboxError::Lost { .. }), "{refused}");
        assert!(
            refused
                .to_string()
                .contains("instead of the sandbox's server"),
            "{refused}"
        );
    }
    // A second connection to the same sandbox.
    let refused = error(
        sandbox
            .files()
            .unwrap()
            .download("go", engine::sandbox::TransferKind::File)
            .await
            .map(drop),
    );
    assert!(matches!(refused, SandboxError::Lost { .. }), "{refused}");
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "{:?}",
        asked.elapsed()
    );
    wait_until("the connections were accepted", || {
        workspace.join("received").exists()
    });
    let received = std::fs::read_to_string(workspace.join("received")).unwrap();
    assert_eq!(received.replace("accepted\n", ""), "");
    remove(backend, sandbox).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_socket_receives_nothing_in_bubblewrap() {
    if let Some(backend) = LocalBackend::isolated(IsolationKind::Bubblewrap).await {
        replaced_socket_receives_nothing(&backend).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_socket_receives_nothing_in_landlock() {
    if let Some(backend) = LocalBackend::isolated(IsolationKind::Landlock).await {
        replaced_socket_receives_nothing(&backend).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_socket_receives_nothing_without_isolation() {
    replaced_socket_receives_nothing(&LocalBackend::new().unwrap()).await;
}

/// Starts a server that answers consecutive actions with these frames.
async fn serve(frames: Vec<Vec<u8>>) -> SocketAddr {
    let frames = Arc::new(Mutex::new(VecDeque::from(frames)));
    let limits =
        json!({"body_bytes": 0, "output_bytes": 0, "ended_actions": 0, "retention_seconds": 0});
    let info = json!({
        "version": "0", "boot_id": "hostile-1", "working_dir": "/workspace", "capabilities": [], "limits": limits,
    });
    let router = Router::new()
        .route("/v1/info", get(move || std::future::ready(Json(info))))
        .route("/v1/environment", put(async || StatusCode::NO_CONTENT))
        .route(
            "/v1/actions/{id}",
            post(
                async |State(frames): State<Arc<Mutex<VecDeque<Vec<u8>>>>>| {
                    frames
                        .lock()
                        .unwrap()
                        .pop_front()
                        .ok_or(StatusCode::SERVICE_UNAVAILABLE)
                },
            )
            .delete(async || StatusCode::NO_CONTENT),
        )
        .fallback(async || {
            (
                StatusCode::NOT_FOUND,
                Json(json!({"code": "not_found", "detail": "no"})),
            )
        })
        .with_state(frames);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

fn frame(observation: &str, content: &str) -> Vec<u8> {
    let extras = json!({
        "agent_state": "finished", "recall_type": "knowledge", "file_path": "/a", "path": "/a", "outputs": {"a": "b"},
    });
    let answer =
        json!({"observation": observation, "content": content, "extras": extras}).to_string();
    let length = u32::try_from(answer.len()).unwrap().to_be_bytes();
    [&[3][..], &length, answer.as_bytes()].concat()
}

/// Each wrong observation fails its action, and the agent continues to the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_action_fails_when_its_observation_has_a_wrong_kind() {
    let home = Home::new();
    let kinds: Vec<_> = ObservationKind::KINDS
        .iter()
        .filter(|kind| !["run", "error"].contains(*kind))
        .collect();
    let mut frames: Vec<_> = kinds.iter().map(|kind| frame(kind, "said")).collect();
    frames.push(frame("run", &"x".repeat(40 << 20)));
    let address = serve(frames).await;
    let commands = (0..=kinds.len()).map(|number| bash(&format!("echo {number}")));
    let model = home.script(&json!(commands.chain([finish()]).collect::<Vec<_>>()));
    let mut command = home.glovebox(&[
        "run",
        "--json",
        "-t",
        "work",
        "-l",
        &model,
        "--runtime",
        "remote",
    ]);
    command.env("SANDBOX_REMOTE_SERVER_URL", format!("http://{address}"));
    command.env("SANDBOX_REMOTE_SERVER_KEY", "0123456789abcdef");
    let ended = tokio::task::spawn_blocking(move || home.start(&mut command).end().expect(0))
        .await
        .unwrap();

    let events = ended.events();
    let of = |key: &str, value: &str| {
        events
            .iter()
            .filter(|event| event["cause"].is_number() && event[key] == value)
            .collect::<Vec<_>>()
    };
    assert_eq!(of("observation", "error").len(), kinds.len(), "{events:#?}");
    assert!(
        events.iter().all(|event| event["content"] != "said"),
        "{events:#?}"
    );
    let ran = of("observation", "run");
    assert_eq!(ran.len(), 1);
    assert!(
        ran[0]["content"].as_str().unwrap().len() < 3 << 20,
        "the observation is truncated"
    );
    let states: Vec<_> = events
        .iter()
        .filter_map(|event| event["extras"]["agent_state"].as_str())
        .collect();
    assert_eq!(
        states.iter().filter(|state| **state == "finished").count(),
        1,
        "{states:?}"
    );
}
