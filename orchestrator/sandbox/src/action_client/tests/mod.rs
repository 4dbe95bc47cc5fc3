//! The client against a small server in this process, over streams that break where a test says.

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
    ActionClient::first(address(server), Duration::from_secs(5)).await.unwrap()
}

fn request() -> ActionRequest {
    let action = RunAction { command: "true".into(), ..RunAction::default() };
    ActionRequest::new(SandboxAction::Run(action), None)
}

fn id() -> ActionId {
    "c.1".parse().unwrap()
}

fn done() -> Observation {
    Observation::new("done", RunObservation::default())
}

fn output(offset: u64, text: &str) -> ActionFrame {
    ActionFrame::Output { offset, bytes: text.into() }
}

fn ending() -> ActionFrame {
    ActionFrame::Observation(Box::new(done()))
}

/// Performs the action; returns what came of it and what was heard.
async fn perform(client: &ActionClient) -> (Result<Observation, SandboxError>, String) {
    let heard = Arc::new(Mutex::new(String::new()));
    let hearing = heard.clone();
    let tell = move |chunk: OutputChunk<'_>| {
        let mut heard = hearing.lock().unwrap();
        match chunk {
            OutputChunk::Bytes { bytes, .. } => heard.push_str(&String::from_utf8_lossy(bytes)),
            OutputChunk::Gap { from, to } => heard.push_str(&format!("[{from}..{to}]")),
        }
    };
    let ended = client.execute(&id(), &request(), &tell).await;
    let heard = heard.lock().unwrap().clone();
    (ended, heard)
}

#[tokio::test]
async fn output_resumes_at_the_next_byte_when_connection_is_cut() {
    let server = FakeServer::new("boot-1")
        .on("POST /v1/actions/c.1?after=0", Act::frames_then_cut(&[output(0, "one two ")]))
        .on("GET /v1/actions/c.1?after=8", Act::frames_then_cut(&[output(4, "two three ")]))
        .on(
            "GET /v1/actions/c.1?after=14",
            Act::frames(&[ActionFrame::Gap { from: 14, to: 20 }, output(20, "end"), ending()]),
        );
    let client = client(&server).await;
    let (ended, heard) = perform(&client).await;
    assert_eq!((ended.unwrap(), heard.as_str()), (done(), "one two three [14..20]end"));
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn a_frame_cut_in_two_is_heard_once() {
    let mut bytes = Vec::new();
    output(0, "whole").encode(&mut bytes).unwrap();
    let server = FakeServer::new("boot-1")
        .on("POST /v1/actions/c.1?after=0", Act::bytes_then_cut(&bytes[..9]))
        .on("GET /v1/actions/c.1?after=0", Act::frames(&[output(0, "whole"), ending()]));
    let (ended, heard) = perform(&client(&server).await).await;
    assert_eq!((ended.unwrap(), heard.as_str()), (done(), "whole"));
}

#[tokio::test]
async fn an_action_that_never_arrived_is_sent_again() {
    let server = FakeServer::new("boot-1")
        .on("POST /v1/actions/c.1?after=0", Act::Cut)
        .on("GET /v1/actions/c.1?after=0", Act::refuse(404, "not_found"))
        .on("POST /v1/actions/c.1?after=0", Act::frames(&[ending()]));
    let (ended, _) = perform(&client(&server).await).await;
    assert_eq!(ended.unwrap(), done());
}

#[tokio::test]
async fn a_server_that_was_started_again_is_another_sandbox() {
    let server =
        FakeServer::new("boot-1").on("POST /v1/actions/c.1?after=0", Act::CutAndStartAgain("boot-2"));
    let (ended, _) = perform(&client(&server).await).await;
    let error = ended.unwrap_err();
    assert!(matches!(&error, SandboxError::Lost { detail } if detail.contains("boot-2")), "{error}");

    let attached = ActionClient::again(address(&server), Some(&"boot-1".parse().unwrap())).await;
    assert!(matches!(attached.err().unwrap(), SandboxError::Lost { .. }));
}

#[tokio::test(start_paused = true)]
async fn all_calls_fail_within_five_seconds_when_server_is_lost() {
    let server = FakeServer::new("boot-1").on("POST /v1/actions/c.1?after=0", Act::CutForEver);
    let client = client(&server).await;
    let begun = Instant::now();
    let cancelled = id();
    let (first, second) = tokio::join!(perform(&client), client.cancel(&cancelled));
    assert!(matches!(first.0, Err(SandboxError::Lost { .. })));
    assert!(matches!(second, Err(SandboxError::Lost { .. })), "{second:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn server_is_not_lost_when_frozen_or_of_unknown_state() {
    // At half a second an attempt: five minutes, and most of one.
    for away in [Act::CutAndPause(600), Act::CutAndForget(100)] {
        let server = FakeServer::new("boot-1")
            .on("POST /v1/actions/c.1?after=0", away)
            .on("GET /v1/actions/c.1?after=0", Act::frames(&[ending()]));
        let (ended, _) = perform(&client(&server).await).await;
        assert_eq!(ended.unwrap(), done());
    }
    let server = FakeServer::new("boot-1").on("POST /v1/actions/c.1?after=0", Act::CutAndForget(200));
    let (begun, (ended, _)) = (Instant::now(), perform(&client(&server).await).await);
    assert!(matches!(ended, Err(SandboxError::Lost { .. })), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(70), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn paused_server_is_awaited_beyond_the_action_timeout() {
    // At half a second an attempt: an hour.
    let server = FakeServer::new("boot-1")
        .on("POST /v1/actions/c.1?after=0", Act::CutAndPause(7200))
        .on("GET /v1/actions/c.1?after=0", Act::frames(&[ending()]));
    let client = client(&server).await;
    let begun = Instant::now();
    let request = ActionRequest { timeout: Some(1.0), ..request() };
    assert_eq!(client.execute(&id(), &request, &|_| {}).await.unwrap(), done());
    assert!(begun.elapsed() > Duration::from_secs(3500), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_breaks_without_end_is_lost() {
    let mut server = FakeServer::new("boot-1").on("POST /v1/actions/c.1?after=0", Act::Cut);
    for _ in 0..10 {
        server = server.on("GET /v1/actions/c.1?after=0", Act::Cut);
    }
    let (ended, _) = perform(&client(&server).await).await;
    assert!(matches!(ended, Err(SandboxError::Lost { .. })), "{ended:?}");
}

#[tokio::test]
async fn refusal_is_quoted_without_control_characters() {
    let server = FakeServer::new("boot-1").on("POST /v1/actions/c.1?after=0", Act::refuse(409, "conflict"));
    let (ended, _) = perform(&client(&server).await).await;
    let error = ended.unwrap_err();
    assert!(
        matches!(&error, SandboxError::Refused { detail } if detail.contains("because  [31m")),
        "{error}"
    );
}

#[tokio::test]
async fn hostile_answers_are_errors() {
    for bytes in [&[1, 255, 255, 255, 255][..], &[9, 0, 0, 0, 0], &[2, 0, 0, 0, 1, 0], b"\x03\0\0\0\x02{}"] {
        let server = FakeServer::new("boot-1").on("POST /v1/actions/c.1?after=0", Act::bytes_then_cut(bytes));
        let (ended, _) = perform(&client(&server).await).await;
        assert!(matches!(ended, Err(SandboxError::Malformed { .. })), "{bytes:?}: {ended:?}");
    }
}

#[tokio::test]
async fn an_error_without_end_is_cut_short() {
    let server = FakeServer::new("boot-1")
        .on("POST /v1/actions/c.1?after=0", Act::Refuse { status: 500, body: vec![b'x'; 10 << 20] });
    let (ended, _) = perform(&client(&server).await).await;
    let error = ended.unwrap_err();
    assert!(matches!(&error, SandboxError::Refused { detail } if detail.len() < 2048), "{error}");
}

#[tokio::test]
async fn cancelling_what_never_was_is_no_error() {
    let server = FakeServer::new("boot-1")
        .on("DELETE /v1/actions/c.1", Act::refuse(404, "not_found"))
        .on("DELETE /v1/actions/c.1", Act::Cut)
        .on("DELETE /v1/actions/c.1", Act::Refuse { status: 204, body: Vec::new() });
    let client = client(&server).await;
    client.cancel(&id()).await.unwrap();
    client.cancel(&id()).await.unwrap();
}

#[tokio::test]
async fn another_key_is_refused_at_once() {
    let server = FakeServer::new("boot-1");
    let address = Address { key: "wrong".into(), ..address(&server) };
    let error = ActionClient::first(address, Duration::from_secs(60)).await.err().unwrap();
    assert!(matches!(error, SandboxError::Refused { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_not_http_are_an_error_in_time() {
    for bytes in
        [raw::endless_headers(), raw::huge_http_frame(), b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), Vec::new()]
    {
        let address = Address {
            runtime: "fake",
            sandbox: "glovebox-c".parse().unwrap(),
            key: "key".into(),
            connector: Box::new(raw::Connector(bytes)),
        };
        let begun = Instant::now();
        let error = ActionClient::first(address, Duration::from_secs(10)).await.err().unwrap();
        assert!(matches!(error, SandboxError::Start { .. }), "{error}");
        assert!(begun.elapsed() <= Duration::from_secs(11));
    }
}

/// A server that what runs in the sandbox has taken over: the only thing that it can do to an action is to fail it.
#[tokio::test]
async fn an_answer_of_a_kind_that_does_not_fit_is_refused() {
    let extras =
        r#"{"agent_state":"finished","recall_type":"knowledge","file_path":"/a","path":"/a","outputs":{}}"#;
    for kind in ObservationKind::KINDS {
        let json = format!(r#"{{"observation":"{kind}","content":"said","extras":{extras}}}"#);
        let mut frame = vec![3];
        frame.extend(u32::try_from(json.len()).unwrap().to_be_bytes());
        frame.extend(json.bytes());
        let server = FakeServer::new("boot-1")
            .on("POST /v1/actions/c.1?after=0", Act::Answer { bytes: frame, cut: false });
        let (ended, _) = perform(&client(&server).await).await;
        match *kind {
            "run" | "error" => assert_eq!(ended.unwrap().kind.kind(), *kind),
            _ => assert!(matches!(ended, Err(SandboxError::Malformed { .. })), "{kind}: {ended:?}"),
        }
    }
}
