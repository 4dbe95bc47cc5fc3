//! The client with a scripted server in this process, over streams that break where a test says.

mod fake_server;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::sandbox::{OutputChunk, Sandbox, SandboxError};
use protocol::action::RunAction;
use protocol::observation::RunObservation;
use protocol::sandbox_api::{ActionFrame, ActionRequest, SandboxAction};
use protocol::{ActionId, Observation, ObservationKind};
use tokio::time::Instant;

use super::{ActionClient, Address};
use fake_server::{Act, FakeServer, raw};

fn address(server: &FakeServer) -> Address {
    Address {
        runtime: "fake",
        sandbox: "glovebox-c".parse().unwrap(),
        key: "key".into(),
        connector: Box::new(server.connector()),
    }
}

async fn client(server: &FakeServer) -> ActionClient {
    ActionClient::connect(address(server), Duration::from_secs(5))
        .await
        .unwrap()
}

fn request() -> ActionRequest {
    let action = RunAction {
        command: "true".into(),
        ..RunAction::default()
    };
    ActionRequest::new(SandboxAction::Run(action), None)
}

fn id() -> ActionId {
    "c.1".parse().unwrap()
}

fn done() -> Observation {
    Observation::new("done", RunObservation::default())
}

fn output(offset: u64, text: &str) -> ActionFrame {
    ActionFrame::Output {
        offset,
        bytes: text.into(),
    }
}

fn completion() -> ActionFrame {
    ActionFrame::Observation(Box::new(done()))
}

/// Executes the action. Returns its result and its output.
async fn execute(client: &ActionClient) -> (Result<Observation, SandboxError>, String) {
    let output = Arc::new(Mutex::new(String::new()));
    let written = output.clone();
    let on_output = move |chunk: OutputChunk<'_>| {
        let mut output = written.lock().unwrap();
        match chunk {
            OutputChunk::Bytes { bytes, .. } => output.push_str(&String::from_utf8_lossy(bytes)),
            OutputChunk::Gap { from, to } => output.push_str(&format!("[{from}..{to}]")),
        }
    };
    let result = client.execute(&id(), &request(), &on_output).await;
    let output = output.lock().unwrap().clone();
    (result, output)
}

#[tokio::test]
async fn output_resumes_at_the_next_byte_when_connection_is_cut() {
    let server = FakeServer::new("boot-1")
        .on(
            "POST /v1/actions/c.1?after=0",
            Act::frames_then_cut(&[output(0, "one two ")]),
        )
        .on(
            "GET /v1/actions/c.1?after=8",
            Act::frames_then_cut(&[output(4, "two three ")]),
        )
        .on(
            "GET /v1/actions/c.1?after=14",
            Act::frames(&[
                ActionFrame::Gap { from: 14, to: 20 },
                output(20, "end"),
                completion(),
            ]),
        );
    let client = client(&server).await;
    let (result, output) = execute(&client).await;
    assert_eq!(
        (result.unwrap(), output.as_str()),
        (done(), "one two three [14..20]end")
    );
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn frame_is_received_once_when_cut_in_two() {
    let mut bytes = Vec::new();
    output(0, "whole").encode(&mut bytes).unwrap();
    let server = FakeServer::new("boot-1")
        .on(
            "POST /v1/actions/c.1?after=0",
            Act::bytes_then_cut(&bytes[..9]),
        )
        .on(
            "GET /v1/actions/c.1?after=0",
            Act::frames(&[output(0, "whole"), completion()]),
        );
    let (result, output) = execute(&client(&server).await).await;
    assert_eq!((result.unwrap(), output.as_str()), (done(), "whole"));
}

#[tokio::test]
async fn action_is_sent_again_when_it_never_arrived() {
    let server = FakeServer::new("boot-1")
        .on("POST /v1/actions/c.1?after=0", Act::Cut)
        .on("GET /v1/actions/c.1?after=0", Act::refuse(404, "not_found"))
        .on("POST /v1/actions/c.1?after=0", Act::frames(&[completion()]));
    let (result, _) = execute(&client(&server).await).await;
    assert_eq!(result.unwrap(), done());
}

#[tokio::test]
async fn sandbox_is_lost_when_server_has_restarted() {
    let server =
        FakeServer::new("boot-1").on("POST /v1/actions/c.1?after=0", Act::CutAndRestart("boot-2"));
    let (result, _) = execute(&client(&server).await).await;
    let error = result.unwrap_err();
    assert!(
        matches!(&error, SandboxError::Lost { detail } if detail.contains("boot-2")),
        "{error}"
    );

    let attached =
        ActionClient::reconnect(address(&server), Some(&"boot-1".parse().unwrap())).await;
    assert!(matches!(attached.err().unwrap(), SandboxError::Lost { .. }));
}

#[tokio::test(start_paused = true)]
async fn all_calls_fail_within_five_seconds_when_server_is_lost() {
    let server = FakeServer::new("boot-1").on("POST /v1/actions/c.1?after=0", Act::CutForever);
    let client = client(&server).await;
    let started = Instant::now();
    let cancelled = id();
    let (first, second) = tokio::join!(execute(&client), client.cancel(&cancelled));
    assert!(matches!(first.0, Err(SandboxError::Lost { .. })));
    assert!(
        matches!(second, Err(SandboxError::Lost { .. })),
        "{second:?}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn server_is_awaited_when_paused_or_of_unknown_state() {
    // At half a second an attempt: five minutes, and most of one.
    for act in [
        Act::CutAndPause(600),
        Act::CutAndBecomeUnknown(100),
        Act::CutAndStall(3),
    ] {
        let server = FakeServer::new("boot-1")
            .on("POST /v1/actions/c.1?after=0", act)
            .on("GET /v1/actions/c.1?after=0", Act::frames(&[completion()]));
        let (result, _) = execute(&client(&server).await).await;
        assert_eq!(result.unwrap(), done());
    }
}

#[tokio::test(start_paused = true)]
async fn server_of_unknown_state_is_not_lost() {
    for act in [Act::CutAndBecomeUnknown(600), Act::CutAndStall(100)] {
        let server = FakeServer::new("boot-1").on("POST /v1/actions/c.1?after=0", act);
        let client = client(&server).await;
        let (started, (result, _)) = (Instant::now(), execute(&client).await);
        let attached = ActionClient::reconnect(address(&server), None).await;
        for error in [result.unwrap_err(), attached.err().unwrap()] {
            assert!(
                matches!(error, SandboxError::Unreachable { .. }),
                "{error:?}"
            );
        }
        assert!(
            started.elapsed() < Duration::from_secs(140),
            "{:?}",
            started.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn paused_server_is_awaited_beyond_the_action_timeout() {
    // At half a second an attempt: an hour.
    let server = FakeServer::new("boot-1")
        .on("POST /v1/actions/c.1?after=0", Act::CutAndPause(7200))
        .on("GET /v1/actions/c.1?after=0", Act::frames(&[completion()]));
    let client = client(&server).await;
    let started = Instant::now();
    let request = ActionRequest {
        timeout: Some(1.0),
        ..request()
    };
    assert_eq!(
        client.execute(&id(), &request, &|_| {}).await.unwrap(),
        done()
    );
    assert!(
        started.elapsed() > Duration::from_secs(3500),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn action_is_lost_when_its_response_breaks_repeatedly() {
    let mut server = FakeServer::new("boot-1").on("POST /v1/actions/c.1?after=0", Act::Cut);
    for _ in 0..10 {
        server = server.on("GET /v1/actions/c.1?after=0", Act::Cut);
    }
    let (result, _) = execute(&client(&server).await).await;
    assert!(
        matches!(result, Err(SandboxError::Lost { .. })),
        "{result:?}"
    );
}

#[tokio::test]
async fn error_response_is_quoted_without_control_characters() {
    let server =
        FakeServer::new("boot-1").on("POST /v1/actions/c.1?after=0", Act::refuse(409, "conflict"));
    let (result, _) = execute(&client(&server).await).await;
    let error = result.unwrap_err();
    assert!(
        matches!(&error, SandboxError::Refused { detail } if detail.contains("because  [31m")),
        "{error}"
    );
}

#[tokio::test]
async fn hostile_responses_are_errors() {
    for bytes in [
        &[1, 255, 255, 255, 255][..],
        &[9, 0, 0, 0, 0],
        &[2, 0, 0, 0, 1, 0],
        b"\x03\0\0\0\x02{}",
    ] {
        let server = FakeServer::new("boot-1")
            .on("POST /v1/actions/c.1?after=0", Act::bytes_then_cut(bytes));
        let (result, _) = execute(&client(&server).await).await;
        assert!(
            matches!(result, Err(SandboxError::Malformed { .. })),
            "{bytes:?}: {result:?}"
        );
    }
}

#[tokio::test]
async fn error_response_is_truncated_when_too_long() {
    let server = FakeServer::new("boot-1").on(
        "POST /v1/actions/c.1?after=0",
        Act::Refuse {
            status: 500,
            body: vec![b'x'; 10 << 20],
        },
    );
    let (result, _) = execute(&client(&server).await).await;
    let error = result.unwrap_err();
    assert!(
        matches!(&error, SandboxError::Refused { detail } if detail.len() < 2048),
        "{error}"
    );
}

#[tokio::test]
async fn cancel_succeeds_when_action_is_unknown() {
    let server = FakeServer::new("boot-1")
        .on("DELETE /v1/actions/c.1", Act::refuse(404, "not_found"))
        .on("DELETE /v1/actions/c.1", Act::Cut)
        .on(
            "DELETE /v1/actions/c.1",
            Act::Refuse {
                status: 204,
                body: Vec::new(),
            },
        );
    let client = client(&server).await;
    client.cancel(&id()).await.unwrap();
    client.cancel(&id()).await.unwrap();
}

#[tokio::test]
async fn connect_fails_immediately_when_key_is_wrong() {
    let server = FakeServer::new("boot-1");
    let address = Address {
        key: "wrong".into(),
        ..address(&server)
    };
    let error = ActionClient::connect(address, Duration::from_secs(60))
        .await
        .err()
        .unwrap();
    assert!(matches!(error, SandboxError::Refused { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn connect_fails_in_time_when_server_speaks_no_http2() {
    for bytes in [
        raw::endless_headers(),
        raw::huge_http_frame(),
        b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
        Vec::new(),
    ] {
        let address = Address {
            runtime: "fake",
            sandbox: "glovebox-c".parse().unwrap(),
            key: "key".into(),
            connector: Box::new(raw::Connector(bytes)),
        };
        let started = Instant::now();
        let error = ActionClient::connect(address, Duration::from_secs(10))
            .await
            .err()
            .unwrap();
        assert!(matches!(error, SandboxError::Start { .. }), "{error}");
        assert!(started.elapsed() <= Duration::from_secs(11));
    }
}

/// A compromised server can only make an action fail.
#[tokio::test]
async fn observation_is_rejected_when_its_kind_does_not_fit() {
    let extras = r#"{"agent_state":"finished","recall_type":"knowledge","file_path":"/a","path":"/a","outputs":{}}"#;
    for kind in ObservationKind::KINDS {
        let json = format!(r#"{{"observation":"{kind}","content":"text","extras":{extras}}}"#);
        let mut frame = vec![3];
        frame.extend(u32::try_from(json.len()).unwrap().to_be_bytes());
        frame.extend(json.bytes());
        let server = FakeServer::new("boot-1").on(
            "POST /v1/actions/c.1?after=0",
            Act::Respond {
                bytes: frame,
                cut: false,
            },
        );
        let (result, _) = execute(&client(&server).await).await;
        match *kind {
            "run" | "error" => assert_eq!(result.unwrap().kind.kind(), *kind),
            _ => assert!(
                matches!(result, Err(SandboxError::Malformed { .. })),
                "{kind}: {result:?}"
            ),
        }
    }
}
