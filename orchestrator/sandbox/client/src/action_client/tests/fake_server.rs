//! A scripted server, which can also cut its connections.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use protocol::sandbox_api::{ActionFrame, KEY_HEADER, ServerInfo, ServerLimits};
use tokio_util::sync::CancellationToken;

use crate::connect::{ByteStream, ConnectError, Connector};

/// The reaction to a request.
#[derive(Clone)]
pub(super) enum Act {
    /// Responds with these bytes, then ends the response or cuts the connection.
    Respond { bytes: Vec<u8>, cut: bool },
    /// Responds with this status and body.
    Refuse { status: u16, body: Vec<u8> },
    /// Cuts the connection without a response.
    Cut,
    /// Also changes the boot id.
    CutAndRestart(&'static str),
    /// Also rejects all further connections.
    CutForever,
    /// Also appears paused for this number of attempts to connect.
    CutAndPause(usize),
    /// Also has an unknown state for this number of attempts to connect.
    CutAndBecomeUnknown(usize),
    /// Also does not react to this number of attempts to connect.
    CutAndStall(usize),
}

impl Act {
    pub(super) fn frames(frames: &[ActionFrame]) -> Self {
        Self::Respond {
            bytes: encode(frames),
            cut: false,
        }
    }

    pub(super) fn frames_then_cut(frames: &[ActionFrame]) -> Self {
        Self::bytes_then_cut(&encode(frames))
    }

    pub(super) fn bytes_then_cut(bytes: &[u8]) -> Self {
        Self::Respond {
            bytes: bytes.to_vec(),
            cut: true,
        }
    }

    pub(super) fn refuse(status: u16, code: &str) -> Self {
        let body = serde_json::json!({"code": code, "detail": "because \u{1b}[31m"});
        Self::Refuse {
            status,
            body: body.to_string().into(),
        }
    }
}

fn encode(frames: &[ActionFrame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frames
        .iter()
        .for_each(|frame| frame.encode(&mut bytes).unwrap());
    bytes
}

/// Clones share the server.
#[derive(Clone)]
pub(super) struct FakeServer(Arc<Mutex<State>>);

struct State {
    boot_id: Option<&'static str>,
    script: VecDeque<(String, Act)>,
    connections: usize,
    paused: usize,
    unknown: usize,
    stalled: usize,
}

impl FakeServer {
    pub(super) fn new(boot_id: &'static str) -> Self {
        Self(Arc::new(Mutex::new(State {
            boot_id: Some(boot_id),
            script: VecDeque::new(),
            connections: 0,
            paused: 0,
            unknown: 0,
            stalled: 0,
        })))
    }

    /// Expects this request next.
    pub(super) fn on(self, request: &str, act: Act) -> Self {
        self.0
            .lock()
            .unwrap()
            .script
            .push_back((request.to_owned(), act));
        self
    }

    /// The number of opened connections.
    pub(super) fn connections(&self) -> usize {
        self.0.lock().unwrap().connections
    }

    pub(super) fn connector(&self) -> impl Connector + use<> {
        self.clone()
    }

    fn respond_to(
        &self,
        request: &Request<Incoming>,
        cut: &CancellationToken,
    ) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let key = request.headers().get(KEY_HEADER).map(|key| key.as_bytes());
        if key != Some(b"key") {
            return respond(403, Vec::new());
        }
        let mut state = self.0.lock().unwrap();
        if request.uri().path() == "/v1/info" {
            return respond(
                200,
                serde_json::to_vec(&info(state.boot_id.unwrap())).unwrap(),
            );
        }
        let actual = format!(
            "{} {}",
            request.method(),
            request.uri().path_and_query().unwrap()
        );
        let (expected, act) = state
            .script
            .pop_front()
            .unwrap_or_else(|| panic!("not expected: {actual}"));
        assert_eq!(actual, expected);
        match act {
            Act::Respond { bytes, cut: false } => return respond(200, bytes),
            Act::Respond { bytes, cut: true } => return respond_then_cut(bytes, cut.clone()),
            Act::Refuse { status, body } => return respond(status, body),
            Act::Cut => {}
            Act::CutAndRestart(boot_id) => state.boot_id = Some(boot_id),
            Act::CutForever => state.boot_id = None,
            Act::CutAndPause(attempts) => state.paused = attempts,
            Act::CutAndBecomeUnknown(attempts) => state.unknown = attempts,
            Act::CutAndStall(attempts) => state.stalled = attempts,
        }
        cut.cancel();
        respond(500, Vec::new())
    }
}

#[async_trait]
impl Connector for FakeServer {
    async fn connect(&self) -> Result<Box<dyn ByteStream>, ConnectError> {
        let is_stalled = {
            let mut state = self.0.lock().unwrap();
            let is_stalled = state.stalled > 0;
            state.stalled -= usize::from(is_stalled);
            is_stalled
        };
        if is_stalled {
            std::future::pending::<()>().await;
        }
        {
            let mut state = self.0.lock().unwrap();
            if state.boot_id.is_none() {
                let source = io::ErrorKind::ConnectionReset.into();
                return Err(ConnectError::Failed {
                    operation: "connect to",
                    subject: "the fake".into(),
                    source,
                });
            }
            if let Some(rest) = state.paused.checked_sub(1) {
                state.paused = rest;
                return Err(ConnectError::Paused("frozen".into()));
            }
            if let Some(rest) = state.unknown.checked_sub(1) {
                state.unknown = rest;
                return Err(ConnectError::Unknown("the engine does not respond".into()));
            }
            state.connections += 1;
        }
        let (near, far) = tokio::io::duplex(64 << 10);
        let (server, cut) = (self.clone(), CancellationToken::new());
        // Ends with the peer of the stream, or when a test cuts it.
        tokio::spawn(async move {
            let cut_in_service = cut.clone();
            let service = service_fn(move |request| {
                let response = server.respond_to(&request, &cut_in_service);
                async move { Ok::<_, Infallible>(response) }
            });
            let serving = http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(far), service);
            let _ = cut.run_until_cancelled(serving).await;
        });
        Ok(Box::new(near))
    }
}

fn respond(status: u16, body: Vec<u8>) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

/// Sends the bytes, then cuts the connection before the end of the body.
fn respond_then_cut(
    bytes: Vec<u8>,
    cut: CancellationToken,
) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let first =
        futures_util::stream::once(async { Ok(hyper::body::Frame::data(Bytes::from(bytes))) });
    let then = futures_util::stream::once(async move {
        // Gives the server time to write the bytes before the cut.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        cut.cancel();
        std::future::pending().await
    });
    Response::new(StreamBody::new(first.chain(then)).boxed_unsync())
}

fn info(boot_id: &str) -> ServerInfo {
    ServerInfo {
        version: "0".into(),
        boot_id: boot_id.parse().unwrap(),
        working_dir: "/workspace".into(),
        capabilities: Vec::new(),
        limits: ServerLimits {
            body_bytes: 0,
            output_bytes: 0,
            ended_actions: 0,
            retention_seconds: 0,
        },
    }
}

/// Peers that violate HTTP/2.
pub(super) mod raw {
    use async_trait::async_trait;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use crate::connect::{ByteStream, ConnectError};

    /// Sends these bytes on every connection, and then nothing.
    pub(in super::super) struct Connector(pub(in super::super) Vec<u8>);

    #[async_trait]
    impl crate::connect::Connector for Connector {
        async fn connect(&self) -> Result<Box<dyn ByteStream>, ConnectError> {
            let (near, mut far) = tokio::io::duplex(64 << 10);
            let bytes = self.0.clone();
            tokio::spawn(async move {
                let _ = far.write_all(&bytes).await;
                let _ = far.read_to_end(&mut Vec::new()).await; // until the client is gone
            });
            Ok(Box::new(near))
        }
    }

    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

    /// Header frames without an end.
    pub(in super::super) fn endless_headers() -> Vec<u8> {
        let mut bytes = SETTINGS.to_vec();
        let block = [0u8; 16 << 10].map(|_| 0x82); // an indexed header field, repeated
        for kind in [1].into_iter().chain([9; 600]) {
            bytes.extend([0, 0x40, 0, kind, 0, 0, 0, 0, 1]);
            bytes.extend(block);
        }
        bytes
    }

    /// A frame with a length of 16 MiB.
    pub(in super::super) fn huge_http_frame() -> Vec<u8> {
        let mut bytes = SETTINGS.to_vec();
        bytes.extend([0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]);
        bytes
    }
}
