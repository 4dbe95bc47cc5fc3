//! Starts the program, speaks to it, and leaves nothing behind, also when a test fails.

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::Observation;
use protocol::sandbox_api::{ActionFrame, ActionFrameDecoder, KEY_HEADER};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

/// Nothing that is waited for takes this long on a machine that is not broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_action-server"))
}

/// A running server; ended when dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) dir: TempDir,
    key: Option<&'static str>,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), None, &[])
    }

    pub(crate) fn start_with_key(key: &'static str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), Some(key), &[])
    }

    pub(crate) fn start_in(dir: TempDir, key: Option<&'static str>, more: &[&str]) -> Self {
        Self::start_with_stderr(dir, key, more, Stdio::null())
    }

    /// Starts a server whose log goes to `stderr`: a file or nothing, never a stream of this process, which a server that
    /// outlived its test would keep open.
    pub(crate) fn start_with_stderr(
        dir: TempDir,
        key: Option<&'static str>,
        more: &[&str],
        stderr: Stdio,
    ) -> Self {
        let mut command = program();
        command.arg("serve").arg("--socket").arg(socket_in(dir.path())).arg("--working-dir").arg(dir.path());
        command.args(more).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        if key.is_some() {
            command.arg("--key-stdin").stdin(Stdio::piped());
        }
        let mut child = command.spawn().unwrap();
        if let Some(key) = key {
            child.stdin.take().unwrap().write_all(format!("{key}\n").as_bytes()).unwrap();
        }
        let server = Self { child, dir, key };
        until("the server listens", || StdUnixStream::connect(server.socket()).is_ok());
        // Its supervisor listens before it starts.
        let children = format!("/proc/{0}/task/{0}/children", server.pid());
        until("the server has started", || fs::read_to_string(&children).is_ok_and(|pids| !pids.is_empty()));
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
        until("the server has ended", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap()
    }

    /// A named pipe in the working directory: a command that reads it goes on when the test says so.
    pub(crate) fn gate(&self, name: &str) -> PathBuf {
        nix::unistd::mkfifo(&self.file(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
        self.file(name)
    }

    pub(crate) async fn http2(&self) -> http2::SendRequest<Full<Bytes>> {
        let stream = TokioIo::new(UnixStream::connect(self.socket()).await.unwrap());
        let (client, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// One request on a connection of its own.
    pub(crate) async fn send(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Reply {
        self.begin(method, path, body).await.unwrap()
    }

    /// The same, while the test goes on.
    pub(crate) fn begin(&self, method: Method, path: &str, body: impl Into<Bytes>) -> JoinHandle<Reply> {
        let mut request = Request::builder().method(method).uri(path).header("host", "sandbox");
        if let Some(key) = self.key {
            request = request.header(KEY_HEADER, key);
        }
        tokio::spawn(send_to(self.socket(), request.body(Full::new(body.into())).unwrap()))
    }

    pub(crate) async fn send_request(&self, request: Request<Full<Bytes>>) -> Reply {
        send_to(self.socket(), request).await
    }

    pub(crate) async fn run(&self, id: &str, command: &str) -> Answer {
        self.act(id, json!({"action": "run", "args": {"command": command, "blocking": true}})).await
    }

    pub(crate) async fn act(&self, id: &str, action: Value) -> Answer {
        let reply = self.send(Method::POST, &format!("/v1/actions/{id}"), action.to_string()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.answer()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        let _ = kill(self.pid(), Signal::SIGTERM);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn send_to(socket: PathBuf, request: Request<Full<Bytes>>) -> Reply {
    let stream = TokioIo::new(UnixStream::connect(socket).await.unwrap());
    let (mut client, connection) = http1::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let response = client.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    let media_type = response.headers().get("content-type").map(|value| value.to_str().unwrap().to_owned());
    let body = tokio::time::timeout(PATIENCE, response.into_body().collect()).await.unwrap().unwrap();
    drop(client);
    connection.abort();
    Reply { status, media_type, body: body.to_bytes() }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) media_type: Option<String>,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    pub(crate) fn answer(&self) -> Answer {
        assert_eq!(self.media_type.as_deref(), Some(protocol::sandbox_api::FRAMES_MEDIA_TYPE));
        Answer::decode(&self.body)
    }
}

/// An action's stream, read to its end.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) output: Vec<u8>,
    pub(crate) gaps: Vec<(u64, u64)>,
    pub(crate) observation: Observation,
}

impl Answer {
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
        Self { output, gaps, observation: observation.expect("a stream ends with its observation") }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }
}

/// Looks until it is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The pids in a file that a command has written, once there are `count`.
pub(crate) fn pids(file: &Path, count: usize) -> Vec<i32> {
    let read = || -> Vec<i32> {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines().filter_map(|line| line.trim().parse().ok()).collect()
    };
    until("the pids are written", || read().len() == count);
    read()
}

/// Looks until a process runs no more. A zombie is its parent's to bury: bash may leave that for its next command.
pub(crate) fn until_dead(pid: i32) {
    let status = || fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let runs = |status: &str| !status.is_empty() && !status.contains("State:\tZ");
    until(&format!("{pid} is dead"), || !runs(&status()));
}

/// Neither running nor a zombie.
pub(crate) fn is_gone(pid: i32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

fn socket_in(dir: &Path) -> PathBuf {
    dir.join("run/server.sock")
}
