//! `dial`: it forwards both directions and exits, whichever side closes first.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::sandbox_api::DIAL_GREETING;

use crate::harness::{TestServer, program, wait_until};

/// A running `dial`, killed on drop.
struct DialProcess(Child);

impl DialProcess {
    /// Dials the server, whose socket the supervisor's process listens on.
    fn to(server: &TestServer) -> Self {
        let mut dial = program();
        dial.args([
            "dial",
            "--server-pid",
            &server.pid().to_string(),
            "--socket",
        ])
        .arg(server.socket());
        Self(
            dial.stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    }

    fn read_greeting(&mut self) {
        let mut greeting = vec![0; DIAL_GREETING.len()];
        self.0
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut greeting)
            .unwrap();
        assert_eq!(greeting, DIAL_GREETING);
    }
}

impl Drop for DialProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn dial_forwards_a_response_after_the_end_of_input() {
    let server = TestServer::start();
    let mut dial = DialProcess::to(&server);
    dial.read_greeting();
    let mut input = dial.0.stdin.take().unwrap();
    let body = format!(
        r#"{{"action":"run","args":{{"command":"true","thought":"{}"}}}}"#,
        "x".repeat(300_000)
    );
    let head = format!(
        "POST /v1/actions/a HTTP/1.1\r\nhost: s\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    input.write_all(head.as_bytes()).unwrap();
    input.write_all(body.as_bytes()).unwrap();
    let mut answer = Vec::new();
    dial.0
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut answer)
        .unwrap();
    assert!(
        answer.starts_with(b"HTTP/1.1 200 OK\r\n"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    assert!(
        answer.ends_with(br#""success":true}"#),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    assert!(dial.0.wait().unwrap().success());
}

#[test]
fn dial_exits_soon_after_the_end_of_input() {
    let server = TestServer::start();
    let mut dial = DialProcess::to(&server);
    dial.read_greeting();
    let closed = Instant::now();
    drop(dial.0.stdin.take());
    wait_until("the dial has exited", || {
        dial.0.try_wait().unwrap().is_some()
    });
    assert!(
        closed.elapsed() < Duration::from_millis(2_500),
        "{:?}",
        closed.elapsed()
    );
}

#[test]
fn dial_exits_when_its_socket_closes() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let server = TestServer::start();
        let mut dial = DialProcess::to(&server);
        dial.read_greeting();
        kill(server.pid(), signal).unwrap();
        wait_until("the dial has exited", || {
            dial.0.try_wait().unwrap().is_some()
        });
        assert!(dial.0.wait().unwrap().success());
    }
}

#[test]
fn dial_prints_only_an_error_when_there_is_no_server() {
    let output = program()
        .args(["dial", "--socket", "/nowhere/s"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        stderr,
        "action-server: cannot connect to /nowhere/s: No such file or directory (os error 2)\n"
    );
}

/// An attack from within: the server is suspended and its socket replaced by another.
#[test]
fn dial_sends_nothing_when_another_process_listens() {
    let server = TestServer::start();
    std::fs::rename(server.socket(), server.file("run/moved")).unwrap();
    let children =
        std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", server.pid())).unwrap();
    let stopped = Pid::from_raw(children.trim().parse().unwrap());
    kill(stopped, Signal::SIGSTOP).unwrap();
    let fake = UnixListener::bind(server.socket()).unwrap();
    fake.set_nonblocking(true).unwrap();

    let mut dial = DialProcess::to(&server);
    // It may have exited before.
    let _ = dial
        .0
        .stdin
        .take()
        .unwrap()
        .write_all(b"x-session-api-key: secret\n");
    let mut output = Vec::new();
    dial.0
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut output)
        .unwrap();
    assert_eq!(
        (dial.0.wait().unwrap().code(), &*output),
        (Some(1), &b""[..])
    );
    let (mut taken, _) = fake.accept().unwrap();
    let mut received = Vec::new();
    taken.set_nonblocking(false).unwrap();
    taken.read_to_end(&mut received).unwrap();
    assert_eq!(String::from_utf8_lossy(&received), "");
    assert_eq!(fake.accept().unwrap_err().kind(), ErrorKind::WouldBlock);

    // The renamed socket still belongs to the server.
    kill(stopped, Signal::SIGCONT).unwrap();
    std::fs::rename(server.file("run/moved"), server.socket()).unwrap();
    DialProcess::to(&server).read_greeting();
}
