//! `echo hi`: through a bare terminal, and through the action server on a unix socket.
//!
//! A round through the server is longer than a bare one: bash reports on a socket that it is ready,
//! reads the command from it byte by byte, and evaluates it without visible traces or errors of
//! ours. No program can forge such a report, which is worth these microseconds, and all commands
//! take this path: twice (bare PTY + bare HTTP) is allowed. After 32 commands the shell returns to
//! its prompt, and the line that makes it ready is typed again.
//!
//! The sum of the two bare round trips depends on the cores of the two sides of bare HTTP: 16 µs on
//! one core, 40 to 70 on two. Therefore a bare axum whose handler uses a bare terminal in the same
//! thread is measured too.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, MasterPty, PtySize, native_pty_system};
use rustix::io::ioctl_fionbio;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

use super::bare_http::BareHttp;
use super::figure::{Figure, quantile_ms};
use super::report::BenchmarkReport;
use super::server::{HttpClient, ServerProcess};

const ROUNDS: usize = 4000;
const TURNS: usize = 40;

/// The prompt that ends a command in the bare terminal.
const PROMPT: &str = "@@@";

pub(crate) async fn measure(report: BenchmarkReport) {
    let rounds = report.repetitions(ROUNDS / TURNS);
    let mut http = bare_http(rounds * TURNS).await;
    let server = ServerProcess::start().await;
    let client = server.connect();
    let terminals = BareHttp::with_terminals(1);
    let echoes = tokio::task::spawn_blocking(move || echoes(client, terminals.connect(), rounds));
    let EchoTimes {
        mut bare,
        mut behind_http,
        mut served,
    } = echoes.await.unwrap();
    let floor = quantile_ms(&mut bare, 0.5);
    let http = quantile_ms(&mut http, 0.5);
    let behind_http = quantile_ms(&mut behind_http, 0.5);
    let p50 = quantile_ms(&mut served, 0.5);
    report.add_all([
        Figure::plain("bare PTY round trip of `echo hi`, p50", floor, "ms"),
        Figure::plain("bare axum round trip on a unix socket, p50", http, "ms"),
        Figure::plain(
            "bare PTY behind bare axum, p50 (floor: PTY + axum)",
            behind_http,
            "ms",
        )
        .with_floor(floor + http),
        Figure::within(
            "`echo hi` through the action server, p50 (floor: PTY)",
            p50,
            "ms",
            floor,
            4.0,
        ),
        Figure::within("the same (floor: PTY + axum)", p50, "ms", floor + http, 2.0),
        Figure::plain("the same (floor: PTY behind axum)", p50, "ms").with_floor(behind_http),
        Figure::below("the same, p99", quantile_ms(&mut served, 0.99), "ms", 1.0),
        Figure::below("RSS of the server after that", server.rss_mb(), "MB", 6.0),
    ]);
}

/// Times of the echoes.
#[derive(Default)]
struct EchoTimes {
    bare: Vec<Duration>,
    behind_http: Vec<Duration>,
    served: Vec<Duration>,
}

/// Measures echoes in a bare terminal, in one behind HTTP and through the server, in turns, because
/// the speed of a shared machine changes within seconds.
fn echoes(mut client: HttpClient, mut http: HttpClient, rounds: usize) -> EchoTimes {
    let mut terminal = BareTerminal::start();
    let EchoTimes {
        mut bare,
        mut behind_http,
        mut served,
    } = EchoTimes::default();
    for turn in 0..TURNS {
        behind_http.extend((0..rounds).map(|_| {
            let started = Instant::now();
            let received = http.ask("POST", "/terminals/0", "echo hi\n");
            assert!(received.windows(3).any(|window| window == b"hi\n"));
            started.elapsed()
        }));
        bare.extend((0..rounds).map(|_| {
            let started = Instant::now();
            let received = terminal.ask("echo hi\n");
            assert!(
                received.starts_with(b"hi\n"),
                "{:?}",
                String::from_utf8_lossy(&received)
            );
            started.elapsed()
        }));
        served.extend((0..rounds).map(|round| {
            let body = json!({"action": "run", "args": {"command": "echo hi"}}).to_string();
            let started = Instant::now();
            let answer = client.ask("POST", &format!("/v1/actions/echo-{turn}-{round}"), &body);
            assert!(
                answer.windows(3).any(|window| window == b"hi\n"),
                "{answer:?}"
            );
            started.elapsed()
        }));
    }
    EchoTimes {
        bare,
        behind_http,
        served,
    }
}

/// bash on a terminal without echo. A command is typed and its output read up to the next prompt.
pub(crate) struct BareTerminal {
    master: Box<dyn MasterPty + Send>,
    shell: Box<dyn portable_pty::Child + Send + Sync>,
    reader: Box<dyn Read + Send>,
    writer: Box<dyn Write + Send>,
}

impl BareTerminal {
    pub(crate) fn start() -> Self {
        let pair = native_pty_system().openpty(PtySize::default()).unwrap();
        let mut command = CommandBuilder::new("bash");
        command.args(["--noprofile", "--norc", "--noediting", "-i"]);
        command.cwd("/");
        command.env("HOME", "/");
        command.env("PS1", PROMPT);
        let shell = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let reader = pair.master.try_clone_reader().unwrap();
        let writer = pair.master.take_writer().unwrap();
        let mut terminal = Self {
            master: pair.master,
            shell,
            reader,
            writer,
        };
        terminal.ask(""); // waits for the first prompt
        terminal.ask("stty -echo -opost\n");
        terminal
    }

    pub(crate) fn ask(&mut self, text: &str) -> Vec<u8> {
        self.writer.write_all(text.as_bytes()).unwrap();
        self.writer.flush().unwrap();
        let mut received = Vec::new();
        let mut chunk = [0; 4096];
        while !received.ends_with(PROMPT.as_bytes()) {
            let length = self.reader.read(&mut chunk).unwrap();
            received.extend_from_slice(&chunk[..length]);
        }
        received
    }

    /// Converts to an asynchronous terminal. Must be called in a runtime.
    pub(crate) fn into_async(self) -> AsyncTerminal {
        let master = self.master.as_raw_fd().unwrap();
        let this_process = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let master = pidfd_getfd(this_process, master, PidfdGetfdFlags::empty()).unwrap();
        ioctl_fionbio(&master, true).unwrap();
        let master = Receiver::from_file_unchecked(master.into()).unwrap(); // reads like a pipe
        AsyncTerminal {
            master,
            _terminal: self,
        }
    }
}

/// A [`BareTerminal`] that blocks no thread.
pub(crate) struct AsyncTerminal {
    master: Receiver,
    _terminal: BareTerminal,
}

impl AsyncTerminal {
    pub(crate) async fn ask(&mut self, text: &str) -> Vec<u8> {
        // Short enough to be written completely.
        assert_eq!(
            rustix::io::write(&self.master, text.as_bytes()),
            Ok(text.len())
        );
        let mut received = Vec::with_capacity(4096);
        while !received.ends_with(PROMPT.as_bytes()) {
            self.master.read_buf(&mut received).await.unwrap();
        }
        received
    }
}

impl Drop for BareTerminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// Measures bare round trips over HTTP.
async fn bare_http(rounds: usize) -> Vec<Duration> {
    let bare = BareHttp::start();
    let measure = move || {
        let mut client = bare.connect();
        let rounds = (0..rounds).map(|_| {
            let started = Instant::now();
            assert!(client.ask("POST", "/", "echo hi").ends_with(b"echo hi"));
            started.elapsed()
        });
        rounds.collect()
    };
    tokio::task::spawn_blocking(measure).await.unwrap()
}
