//! A server that answers each request as a test wrote down, and cuts its connections in between.

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

/// What is done on a request.
#[derive(Clone)]
pub(super) enum Act {
    /// Answer with these bytes, then end or cut the connection.
    Answer { bytes: Vec<u8>, cut: bool },
    /// Answer with a status and a body.
    Refuse { status: u16, body: Vec<u8> },
    /// Cut the connection without an answer.
    Cut,
    /// The same, and live another life from then on.
    CutAndStartAgain(&'static str),
    /// The same, and take no connection from then on.
    CutForEver,
    /// The same, and be frozen for so many attempts to connect.
    CutAndPause(usize),
    /// The same, and whoever knows of the server is away for so many attempts.
    CutAndForget(usize),
}

impl Act {
    pub(super) fn frames(frames: &[ActionFrame]) -> Self {
        Self::Answer { bytes: encode(frames), cut: false }
    }

    pub(super) fn frames_then_cut(frames: &[ActionFrame]) -> Self {
        Self::bytes_then_cut(&encode(frames))
    }

    pub(super) fn bytes_then_cut(bytes: &[u8]) -> Self {
        Self::Answer { bytes: bytes.to_vec(), cut: true }
    }

    pub(super) fn refuse(status: u16, code: &str) -> Self {
        let body = serde_json::json!({"code": code, "detail": "because \u{1b}[31m"});
        Self::Refuse { status, body: body.to_string().into() }
    }
}

fn encode(frames: &[ActionFrame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes).unwrap());
    bytes
}

/// The server; clones are the same one.
#[derive(Clone)]
pub(super) struct FakeServer(Arc<Mutex<State>>);

struct State {
    boot_id: Option<&'static str>,
    script: VecDeque<(String, Act)>,
    connections: usize,
    paused: usize,
    forgotten: usize,
}

impl FakeServer {
    pub(super) fn new(boot_id: &'static str) -> Self {
        Self(Arc::new(Mutex::new(State {
            boot_id: Some(boot_id),
            script: VecDeque::new(),
            connections: 0,
            paused: 0,
            forgotten: 0,
        })))
    }

    /// Expects this request next.
    pub(super) fn on(self, request: &str, act: Act) -> Self {
        self.0.lock().unwrap().script.push_back((request.to_owned(), act));
        self
    }

    /// How many were opened.
    pub(super) fn connections(&self) -> usize {
        self.0.lock().unwrap().connections
    }

    pub(super) fn connector(&self) -> impl Connector + use<> {
        self.clone()
    }

    fn answer(
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
            return respond(200, serde_json::to_vec(&info(state.boot_id.unwrap())).unwrap());
        }
        let asked = format!("{} {}", request.method(), request.uri().path_and_query().unwrap());
        let (expected, act) = state.script.pop_front().unwrap_or_else(|| panic!("not expected: {asked}"));
        assert_eq!(asked, expected);
        match act {
            Act::Answer { bytes, cut: false } => return respond(200, bytes),
            Act::Answer { bytes, cut: true } => return respond_then_cut(bytes, cut.clone()),
            Act::Refuse { status, body } => return respond(status, body),
            Act::Cut => {}
            Act::CutAndStartAgain(boot_id) => state.boot_id = Some(boot_id),
            Act::CutForEver => state.boot_id = None,
            Act::CutAndPause(attempts) => state.paused = attempts,
            Act::CutAndForget(attempts) => state.forgotten = attempts,
        }
        cut.cancel();
        respond(500, Vec::new())
    }
}

#[async_trait]
impl Connector for FakeServer {
    async fn connect(&self) -> Result<Box<dyn ByteStream>, ConnectError> {
        {
            let mut state = self.0.lock().unwrap();
            if state.boot_id.is_none() {
                let source = io::ErrorKind::ConnectionReset.into();
                return Err(ConnectError::Failed { doing: "connecting".into(), source });
            }
            if let Some(rest) = state.paused.checked_sub(1) {
                state.paused = rest;
                return Err(ConnectError::Paused("frozen".into()));
            }
            if let Some(rest) = state.forgotten.checked_sub(1) {
                state.forgotten = rest;
                return Err(ConnectError::Unknown("the engine is away".into()));
            }
            state.connections += 1;
        }
        let (near, far) = tokio::io::duplex(64 << 10);
        let (server, cut) = (self.clone(), CancellationToken::new());
        // Ends with the stream's other end, or when a test cuts it.
        tokio::spawn(async move {
            let answering = cut.clone();
            let service = service_fn(move |request| {
                let response = server.answer(&request, &answering);
                async move { Ok::<_, Infallible>(response) }
            });
            let serving =
                http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(far), service);
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

/// The bytes arrive, and then the connection ends in the middle of the body.
fn respond_then_cut(bytes: Vec<u8>, cut: CancellationToken) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let first = futures_util::stream::once(async { Ok(hyper::body::Frame::data(Bytes::from(bytes))) });
    let then = futures_util::stream::once(async move {
        // The client reads what was written before it sees the end; a few turns let the server write it.
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
        limits: ServerLimits { body_bytes: 0, output_bytes: 0, ended_actions: 0, retention_seconds: 0 },
    }
}

/// Ends of streams that do not speak HTTP/2 as they should.
pub(super) mod raw {
    use async_trait::async_trait;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use crate::connect::{ByteStream, ConnectError};

    /// Every connection gets these bytes, and then silence.
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

    /// Headers that go on and on, in frames that never say that they end.
    pub(in super::super) fn endless_headers() -> Vec<u8> {
        let mut bytes = SETTINGS.to_vec();
        let block = [0u8; 16 << 10].map(|_| 0x82); // an indexed header field, again and again
        for kind in [1].into_iter().chain([9; 600]) {
            bytes.extend([0, 0x40, 0, kind, 0, 0, 0, 0, 1]);
            bytes.extend(block);
        }
        bytes
    }

    /// A frame that says it has sixteen million bytes.
    pub(in super::super) fn huge_http_frame() -> Vec<u8> {
        let mut bytes = SETTINGS.to_vec();
        bytes.extend([0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]);
        bytes
    }
}
