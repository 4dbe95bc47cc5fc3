//! The action server as a process: start time and memory. The other groups start theirs here too.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use sandbox_client::ServerBinary;
use tests::sandbox_contract::embedded_server;

use super::figure::{Figure, quantile_ms};
use super::report::BenchmarkReport;

const STARTS: usize = 30;

/// Minimum capacity for one read of a response.
const READ_BYTES: usize = 64 << 10;

/// A server with its own folder, terminated on drop.
pub(crate) struct ServerProcess {
    child: Child,
    folder: tempfile::TempDir,
}

impl ServerProcess {
    /// Starts a server, which may not be ready yet.
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = program(folder.path()).await;
        Self::start_program(&program, folder)
    }

    fn start_program(program: &Path, folder: tempfile::TempDir) -> Self {
        let child = Command::new(program)
            .args(["serve", "--socket"])
            .arg(folder.path().join("s/socket"))
            .arg("--working-dir")
            .arg(folder.path())
            // The start-up files of this user are not what is measured.
            .env("HOME", folder.path())
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, folder }
    }

    /// Connects as soon as the server listens.
    pub(crate) fn connect(&self) -> HttpClient {
        let socket = self.folder.path().join("s/socket");
        loop {
            if let Some(client) = HttpClient::connect(&socket) {
                return client;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn processes(&self) -> [u32; 2] {
        let supervisor = self.child.id();
        let children = format!("/proc/{supervisor}/task/{supervisor}/children");
        let server = std::fs::read_to_string(children).unwrap();
        [
            supervisor,
            server.split_whitespace().next().unwrap().parse().unwrap(),
        ]
    }

    /// Returns the processor time of the server and its supervisor.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.processes()
            .into_iter()
            .map(super::load::cpu_time)
            .sum()
    }

    /// Returns the number of children of the server and its shells that were not reaped.
    pub(crate) fn zombies(&self) -> usize {
        let [_, server] = self.processes();
        let children = |pid: u32| {
            let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
                .unwrap_or_default();
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<u32>>()
        };
        let shells = children(server);
        let all = shells
            .iter()
            .copied()
            .chain(shells.iter().copied().flat_map(children));
        let is_zombie = |pid: &u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.contains("State:\tZ")
        };
        all.filter(is_zombie).count()
    }

    /// Returns the resident memory of the server and the private memory of its supervisor in MB,
    /// because they share the program's pages. Shells are not included.
    pub(crate) fn rss_mb(&self) -> f64 {
        let [supervisor, server] = self.processes();
        let own = ["Private_Clean:", "Private_Dirty:"];
        memory_mb(server, &["Rss:"]) + memory_mb(supervisor, &own)
    }
}

/// Returns the sum of these kinds of a process's memory in MB.
pub(crate) fn memory_mb(process: u32, fields: &[&str]) -> f64 {
    let account = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap();
    let kilobytes = account.lines().filter_map(|line| {
        let field = fields.iter().find_map(|field| line.strip_prefix(field))?;
        field.trim().trim_end_matches(" kB").parse::<f64>().ok()
    });
    kilobytes.sum::<f64>() / 1024.0
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let id = rustix::process::Pid::from_child(&self.child);
        // SIGTERM, so that it terminates its processes.
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

/// A persistent HTTP/1.1 connection on the calling thread, like that of the bare terminal, so that
/// the server is measured and not the client.
pub(crate) struct HttpClient {
    stream: UnixStream,
}

impl HttpClient {
    /// Connects to a socket. `None` if no server listens.
    pub(crate) fn connect(socket: &Path) -> Option<Self> {
        UnixStream::connect(socket)
            .ok()
            .map(|stream| Self { stream })
    }

    /// Sends a request and returns the complete response with its head. Panics if it is not a
    /// success.
    pub(crate) fn ask(&mut self, method: &str, path: &str, body: &str) -> Vec<u8> {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: server\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(request.as_bytes()).unwrap();
        // Read in place, as the floors read a pipe: a copy of 10 MB would count for the server.
        let mut answer = Vec::with_capacity(READ_BYTES);
        while !is_complete(&answer) {
            answer.reserve(READ_BYTES);
            let length = rustix::io::read(&self.stream, spare_capacity(&mut answer)).unwrap();
            assert!(
                length > 0,
                "the server closed: {}",
                String::from_utf8_lossy(&answer)
            );
        }
        assert!(
            answer.starts_with(b"HTTP/1.1 20"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
        answer
    }
}

/// Whether a response is complete, according to its length or its last chunk.
fn is_complete(answer: &[u8]) -> bool {
    let Some(head_end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
        return false;
    };
    let (head, body) = answer.split_at(head_end + 4);
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    match head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
    {
        Some(length) => body.len() >= length.trim().parse().unwrap(),
        None => body.ends_with(b"0\r\n\r\n"),
    }
}

/// Returns the program, unpacked into `folder`.
async fn program(folder: &Path) -> PathBuf {
    // Another build of the server can be compared without building the rest again.
    let binary = match std::env::var_os("GLOVEBOX_ACTION_SERVER") {
        Some(path) => ServerBinary::from_file(path),
        None => embedded_server(folder.join("bin")),
    };
    binary.path().await.unwrap()
}

pub(crate) async fn measure(report: BenchmarkReport) {
    // Unpacked once: a host does that at its first start only.
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path()).await;
    let mut floors = Vec::new();
    let mut alive = Vec::new();
    for _ in 0..report.repetitions(STARTS) {
        let started = Instant::now();
        Command::new("/bin/true").status().unwrap();
        floors.push(started.elapsed());
        let folder = tempfile::tempdir().unwrap();
        let started = Instant::now();
        let server = ServerProcess::start_program(&program, folder);
        server.connect().ask("GET", "/alive", "");
        alive.push(started.elapsed());
    }
    let floor = quantile_ms(&mut floors, 0.5);
    let server = ServerProcess::start().await;
    server.connect().ask("GET", "/alive", "");
    report.add_all([
        Figure::below(
            "exec to alive, p50 (floor: exec of /bin/true)",
            quantile_ms(&mut alive, 0.5),
            "ms",
            10.0,
        )
        .with_floor(floor),
        Figure::below(
            "idle RSS of a server that has just answered, supervisor too",
            server.rss_mb(),
            "MB",
            6.0,
        ),
    ]);
}
