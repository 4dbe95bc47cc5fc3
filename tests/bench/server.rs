//! The action server as a process: how soon it answers, how much memory it takes. Also how the others start one.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use sandbox::ServerBinary;

use super::figure::{Figure, quantile_ms};
use super::report::BenchmarkReport;

const STARTS: usize = 30;

/// The least room for one read of an answer.
const READ_BYTES: usize = 64 << 10;

/// A server in a folder of its own, ended when it is dropped.
pub(crate) struct ServerProcess {
    child: Child,
    folder: tempfile::TempDir,
}

impl ServerProcess {
    /// Starts one; it may not answer yet.
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Another build of the server can be compared without building the rest again.
        let binary = match std::env::var_os("GLOVEBOX_ACTION_SERVER") {
            Some(path) => ServerBinary::from_file(path),
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
        [supervisor, server.split_whitespace().next().unwrap().parse().unwrap()]
    }

    /// The time that the server and its supervisor were run.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.processes().into_iter().map(super::load::cpu_time).sum()
    }

    /// Dead children of the server, or of its shells, that nobody has buried.
    pub(crate) fn zombies(&self) -> usize {
        let [_, server] = self.processes();
        let children = |pid: u32| {
            let list =
                std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
        };
        let shells = children(server);
        let all = shells.iter().copied().chain(shells.iter().copied().flat_map(children));
        let is_zombie = |pid: &u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.contains("State:\tZ")
        };
        all.filter(is_zombie).count()
    }

    /// Resident memory of the server and what its supervisor has beside that, in MB: their program's pages are the same
    /// ones. Shells are not the server's.
    pub(crate) fn rss_mb(&self) -> f64 {
        let [supervisor, server] = self.processes();
        let own = ["Private_Clean:", "Private_Dirty:"];
        memory_mb(server, &["Rss:"]) + memory_mb(supervisor, &own)
    }
}

/// What a process has of these kinds of memory.
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
        // SIGTERM, so that it ends what it started.
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

/// One HTTP/1.1 connection that is kept, on the thread that asks: what is measured is the server, and the bare terminal
/// is asked in the same way.
pub(crate) struct HttpClient {
    stream: UnixStream,
}

impl HttpClient {
    /// A connection to whatever listens on a socket.
    pub(crate) fn connect(socket: &Path) -> Option<Self> {
        UnixStream::connect(socket).ok().map(|stream| Self { stream })
    }

    /// One request; the whole answer, head and all, of a server that succeeds.
    pub(crate) fn ask(&mut self, method: &str, path: &str, body: &str) -> Vec<u8> {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: server\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(request.as_bytes()).unwrap();
        // Read where it stays, as a floor's reader of a pipe does: 10 MB more to copy would be the client's, not the server's.
        let mut answer = Vec::with_capacity(READ_BYTES);
        while !is_whole(&answer) {
            answer.reserve(READ_BYTES);
            let length = rustix::io::read(&self.stream, spare_capacity(&mut answer)).unwrap();
            assert!(length > 0, "the server closed: {}", String::from_utf8_lossy(&answer));
        }
        assert!(answer.starts_with(b"HTTP/1.1 20"), "{}", String::from_utf8_lossy(&answer));
        answer
    }
}

/// Whether an answer has come to its end, by its length or its last chunk.
fn is_whole(answer: &[u8]) -> bool {
    let Some(head_end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
    let (head, body) = answer.split_at(head_end + 4);
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    match head.lines().find_map(|line| line.strip_prefix("content-length: ")) {
        Some(length) => body.len() >= length.trim().parse().unwrap(),
        None => body.ends_with(b"0\r\n\r\n"),
    }
}

pub(crate) async fn measure(report: BenchmarkReport) {
    let mut floors = Vec::new();
    let mut alive = Vec::new();
    for _ in 0..report.repetitions(STARTS) {
        let started = Instant::now();
        Command::new("/bin/true").status().unwrap();
        floors.push(started.elapsed());
        let started = Instant::now();
        let server = ServerProcess::start().await;
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
