//! The action server as a process: how soon it answers, how much memory it takes. Also how the others start one.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use sandbox::ServerBinary;
use tokio::net::UnixStream;

use super::figure::{Figure, quantile_ms};

const STARTS: usize = 30;

/// A server in a folder of its own, ended when it is dropped.
pub(crate) struct Server {
    child: Child,
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts one; it may not answer yet.
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Another build of the server can be compared without building the rest again.
        let binary = match std::env::var_os("GLOVEBOX_ACTION_SERVER") {
            Some(path) => ServerBinary::at(path),
            None => ServerBinary::embedded(folder.path().join("bin")),
        };
        let program: PathBuf = binary.path().await.unwrap();
        let child = Command::new(program)
            .args(["serve", "--socket"])
            .arg(folder.path().join("s/socket"))
            .arg("--working-dir")
            .arg(folder.path())
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, folder }
    }

    /// A connection, as soon as there can be one.
    pub(crate) async fn connect(&self) -> Client {
        let socket = self.folder.path().join("s/socket");
        loop {
            if let Some(client) = Client::connect(&socket).await {
                return client;
            }
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
    }

    /// Resident memory of the server and its supervisor, in MB; shells are not the server's.
    pub(crate) fn rss_mb(&self) -> f64 {
        let supervisor = self.child.id();
        let children = format!("/proc/{supervisor}/task/{supervisor}/children");
        let server = std::fs::read_to_string(children).unwrap();
        let server = server.split_whitespace().next().unwrap().parse().unwrap();
        [supervisor, server].into_iter().map(rss_mb).sum()
    }
}

fn rss_mb(process: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
}

impl Drop for Server {
    fn drop(&mut self) {
        let id = rustix::process::Pid::from_child(&self.child);
        // SIGTERM, so that it ends what it started.
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

/// One HTTP/1.1 connection that is kept.
pub(crate) struct Client {
    send: SendRequest<Full<Bytes>>,
}

impl Client {
    /// A connection to whatever listens on a socket.
    pub(crate) async fn connect(socket: &Path) -> Option<Self> {
        let stream = UnixStream::connect(socket).await.ok()?;
        let (send, connection) = handshake(TokioIo::new(stream)).await.ok()?;
        // Ends with the connection, which ends with the client.
        tokio::spawn(connection);
        Some(Self { send })
    }

    /// One request and its whole answer.
    pub(crate) async fn ask(&mut self, method: &str, path: &str, body: String) -> (StatusCode, Bytes) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "server")
            .header("content-type", "application/json")
            .body(Full::from(body))
            .unwrap();
        self.send.ready().await.unwrap();
        let response = self.send.send_request(request).await.unwrap();
        let status = response.status();
        (status, response.into_body().collect().await.unwrap().to_bytes())
    }
}

pub(crate) async fn measure() -> Vec<Figure> {
    let mut floors = Vec::new();
    let mut alive = Vec::new();
    for _ in 0..STARTS {
        let begin = Instant::now();
        Command::new("/bin/true").status().unwrap();
        floors.push(begin.elapsed());
        let begin = Instant::now();
        let server = Server::start().await;
        let (status, _) = server.connect().await.ask("GET", "/alive", String::new()).await;
        assert_eq!(status, StatusCode::OK);
        alive.push(begin.elapsed());
    }
    let floor = quantile_ms(&mut floors, 0.5);
    let server = Server::start().await;
    let _ = server.connect().await.ask("GET", "/alive", String::new()).await;
    vec![
        Figure::below(
            "exec to alive, p50 (floor: exec of /bin/true)",
            quantile_ms(&mut alive, 0.5),
            "ms",
            20.0,
        )
        .with_floor(floor),
        Figure::below(
            "idle RSS of a server that has just answered, supervisor too",
            server.rss_mb(),
            "MB",
            8.0,
        ),
    ]
}
