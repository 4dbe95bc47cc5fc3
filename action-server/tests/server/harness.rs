//! Starts the program, sends requests to it, and leaves nothing behind even if a test fails.

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::Observation;
use protocol::sandbox_api::{ActionFrame, ActionFrameDecoder, KEY_HEADER};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

/// Maximum time of any wait, far above the usual.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_action-server"))
}

/// A running server, terminated on drop.
pub(crate) struct TestServer {
    pub(crate) child: Child,
    pub(crate) dir: TempDir,
    key: Option<&'static str>,
}

impl TestServer {
    pub(crate) fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), None, &[])
    }

    pub(crate) fn start_with_key(key: &'static str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), Some(key), &[])
    }

    pub(crate) fn start_in(dir: TempDir, key: Option<&'static str>, more: &[&str]) -> Self {
        Self::start_with_stderr(dir, key, more, Stdio::null())
    }

    /// Starts a server whose log goes to `stderr`: a file or nothing, never a stream of this
    /// process, which a server that outlived its test would keep open.
    pub(crate) fn start_with_stderr(
        dir: TempDir,
        key: Option<&'static str>,
        more: &[&str],
        stderr: Stdio,
    ) -> Self {
        let mut command = program();
        command
            .arg("serve")
            .arg("--socket")
            .arg(socket_in(dir.path()))
            .arg("--working-dir")
            .arg(dir.path());
        // The start-up files of the tester must not change the result of a test.
        command.env("HOME", dir.path());
        command
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr);
        if key.is_some() {
            command.arg("--key-stdin").stdin(Stdio::piped());
        }
        let mut child = command.spawn().unwrap();
        if let Some(key) = key {
            child
                .stdin
                .take()
                .unwrap()
                .write_all(format!("{key}\n").as_bytes())
                .unwrap();
        }
        let server = Self { child, dir, key };
        wait_until("the server listens", || {
            StdUnixStream::connect(server.socket()).is_ok()
        });
        // The supervisor listens before the server starts.
        let children = format!("/proc/{0}/task/{0}/children", server.pid());
        wait_until("the server has started", || {
            fs::read_to_string(&children).is_ok_and(|pids| !pids.is_empty())
        });
        server
    }

    pub(crate) fn socket(&self) -> PathBuf {
        socket_in(self.dir.path())
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait_until("the server has exited", || {
            self.child.try_wait().unwrap().is_some()
        });
        self.child.wait().unwrap()
    }

    /// Creates a named pipe in the working directory. A command that reads it waits until the test
    /// writes to it.
    pub(crate) fn gate(&self, name: &str) -> PathBuf {
        nix::unistd::mkfifo(&self.file(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
        self.file(name)
    }

    pub(crate) async fn http2(&self) -> http2::SendRequest<Full<Bytes>> {
        let stream = TokioIo::new(UnixStream::connect(self.socket()).await.unwrap());
        let (client, connection) = http2::handshake(TokioExecutor::new(), stream)
            .await
            .unwrap();
        tokio::spawn(connection);
        client
    }

    /// Sends a request on a new connection.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> HttpReply {
        self.start_request(method, path, body).await.unwrap()
    }

    /// Sends a request in the background.
    pub(crate) fn start_request(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> JoinHandle<HttpReply> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "sandbox");
        if let Some(key) = self.key {
            request = request.header(KEY_HEADER, key);
        }
        tokio::spawn(send_to(
            self.socket(),
            request.body(Full::new(body.into())).unwrap(),
        ))
    }

    pub(crate) async fn send_request(&self, request: Request<Full<Bytes>>) -> HttpReply {
        send_to(self.socket(), request).await
    }

    pub(crate) async fn run(&self, id: &str, command: &str) -> CompletedAction {
        self.act(
            id,
            json!({"action": "run", "args": {"command": command, "blocking": true}}),
        )
        .await
    }

    pub(crate) async fn act(&self, id: &str, action: Value) -> CompletedAction {
        let reply = self
            .send(
                Method::POST,
                &format!("/v1/actions/{id}"),
                action.to_string(),
            )
            .await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.answer()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        let _ = kill(self.pid(), Signal::SIGTERM);
        let deadline = Instant::now() + TEST_TIMEOUT;
        while Instant::now() < deadline && self.child.try_wait().is_ok_and(|ended| ended.is_none())
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn send_to(socket: PathBuf, request: Request<Full<Bytes>>) -> HttpReply {
    HttpReply::receive(UnixStream::connect(socket).await.unwrap(), request).await
}

/// What came back.
#[derive(Debug)]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl HttpReply {
    /// Sends a request on a new connection and reads the response.
    pub(crate) async fn receive(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        request: Request<Full<Bytes>>,
    ) -> Self {
        let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let (head, body) = client.send_request(request).await.unwrap().into_parts();
        let body = tokio::time::timeout(TEST_TIMEOUT, body.collect())
            .await
            .unwrap()
            .unwrap()
            .to_bytes();
        drop(client);
        connection.abort();
        Self {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// Returns a header, or an empty text.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn answer(&self) -> CompletedAction {
        assert_eq!(
            self.header("content-type"),
            protocol::sandbox_api::FRAMES_MEDIA_TYPE
        );
        CompletedAction::decode(&self.body)
    }
}

/// The complete stream of an action.
#[derive(Debug, PartialEq)]
pub(crate) struct CompletedAction {
    pub(crate) output: Vec<u8>,
    pub(crate) gaps: Vec<(u64, u64)>,
    pub(crate) observation: Observation,
}

impl CompletedAction {
    fn decode(bytes: &[u8]) -> Self {
        let mut decoder = ActionFrameDecoder::default();
        decoder.push(bytes);
        let (mut output, mut gaps, mut observation) = (Vec::new(), Vec::new(), None);
        while let Some(frame) = decoder.next_frame().unwrap() {
            assert!(observation.is_none(), "a frame after the observation");
            match frame {
                ActionFrame::Output { bytes, .. } => output.extend(bytes),
                ActionFrame::Gap { from, to } => gaps.push((from, to)),
                ActionFrame::Observation(last) => observation = Some(*last),
            }
        }
        Self {
            output,
            gaps,
            observation: observation.expect("a stream ends with its observation"),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }
}

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "timeout: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a command wrote `count` pids to a file, and returns them.
pub(crate) fn pids(file: &Path, count: usize) -> Vec<i32> {
    let read = || -> Vec<i32> {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines()
            .filter_map(|line| line.trim().parse().ok())
            .collect()
    };
    wait_until("the pids are written", || read().len() == count);
    read()
}

/// Waits until a process has exited. It may be a zombie, because bash may reap it only at its next
/// command.
pub(crate) fn wait_until_dead(pid: i32) {
    let status = || fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let runs = |status: &str| !status.is_empty() && !status.contains("State:\tZ");
    wait_until(&format!("{pid} is dead"), || !runs(&status()));
}

/// Whether a process is neither running nor a zombie.
pub(crate) fn is_gone(pid: i32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

fn socket_in(dir: &Path) -> PathBuf {
    dir.join("run/server.sock")
}
