//! Unauthenticated connections do not keep authenticated clients out, on any listener. An early
//! response reaches a client that is still sending.

use std::io::{Read as _, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use protocol::sandbox_api::KEY_HEADER;

use crate::harness::{TEST_TIMEOUT, TestServer, program, wait_until};
use crate::v0::{V0Sandbox, free_port};

const KEY: &str = "canary-f100d";

/// More than the server accepts, with or without a key.
const CONNECTIONS: usize = 450;

/// Shorter than the timeouts of the other connections, the shortest of which is 15 s.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(8);

const HALF_REQUESTS: [&[u8]; 5] = [
    b"",
    b"GET /v1/in",
    b"POST /v1/actions/a HTTP/1.1\r\nhost: x\r\ncontent-le",
    b"POST /execute_action HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

trait ByteStream: std::io::Read + Write {}

impl<S: std::io::Read + Write> ByteStream for S {}

/// Floods the listener with each kind of half request, and checks meanwhile that `request` is
/// answered.
fn assert_served_during_floods(connect: impl Fn() -> Box<dyn ByteStream>, request: &str) {
    for half_request in HALF_REQUESTS {
        let mut flood = Vec::new();
        for number in 0..CONNECTIONS {
            let mut stream = connect();
            // The server closes the oldest connections meanwhile.
            let _ = stream.write_all(half_request);
            flood.push(stream);
            if number % 150 == 149 {
                let requested = Instant::now();
                let answer = ask(&mut *connect(), request);
                assert!(
                    answer.starts_with("HTTP/1.1 200"),
                    "{half_request:?}: {answer}"
                );
                assert!(
                    requested.elapsed() < RESPONSE_TIMEOUT,
                    "{:?}: {:?}",
                    String::from_utf8_lossy(half_request),
                    requested.elapsed()
                );
            }
        }
    }
}

fn ask(stream: &mut dyn ByteStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn unix(server: &TestServer) -> Box<dyn ByteStream> {
    let stream = UnixStream::connect(server.socket()).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    Box::new(stream)
}

fn tcp(port: u16) -> Box<dyn ByteStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    Box::new(stream)
}

fn get(path: &str, key: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{KEY_HEADER}: {key}\r\n\r\n"
    )
}

/// Returns a command as V0's clients send it.
fn execute(key: &str) -> String {
    let body = r#"{"action":{"action":"run","args":{"command":"true"}}}"#;
    let length = body.len();
    format!(
        "POST /execute_action HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{KEY_HEADER}: {key}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// A server on a TCP port, killed on drop.
struct TcpServer(Child);

impl Drop for TcpServer {
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(self.0.id() as i32),
            nix::sys::signal::Signal::SIGTERM,
        );
        let _ = self.0.wait();
    }
}

#[test]
fn client_is_served_during_a_flood_of_a_unix_socket() {
    let server = TestServer::start_with_key(KEY);
    assert_served_during_floods(|| unix(&server), &get("/v1/info", KEY));
}

#[test]
fn client_is_served_during_a_flood_of_a_tcp_socket() {
    let port = free_port();
    let mut command = program();
    command.args([
        "serve",
        "--key-stdin",
        "--working-dir",
        "/",
        "--listen",
        &port.to_string(),
    ]);
    let mut server = TcpServer(command.stdin(Stdio::piped()).spawn().unwrap());
    server
        .0
        .stdin
        .take()
        .unwrap()
        .write_all(format!("{KEY}\n").as_bytes())
        .unwrap();
    wait_until("the server listens", || {
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
    });
    assert_served_during_floods(|| tcp(port), &get("/v1/info", KEY));
}

#[test]
fn client_is_served_during_a_flood_of_v0() {
    let sandbox = V0Sandbox::start_with(&[], Some(KEY));
    assert_served_during_floods(|| tcp(sandbox.port()), &execute(KEY));
}

/// Without a key, clients with a complete request take precedence over those without.
#[test]
fn client_is_served_during_a_flood_of_v0_without_a_key() {
    let sandbox = V0Sandbox::start_with(&[], None);
    assert_served_during_floods(|| tcp(sandbox.port()), &execute(""));
}

#[test]
fn silent_connection_is_closed_after_the_timeout() {
    let server = TestServer::start_with_key(KEY);
    let mut silent = UnixStream::connect(server.socket()).unwrap();
    silent
        .set_read_timeout(Some(Duration::from_secs(40)))
        .unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
}

/// The client sends its whole body before it reads. It must receive the response and not a reset.
#[test]
fn client_receives_an_early_refusal_while_it_still_sends() {
    let server = TestServer::start_with_key(KEY);
    let sandbox = V0Sandbox::start_with(&[], Some(KEY));
    let body = vec![b'x'; 8 << 20];
    for (connect, path, key, status) in [
        (
            &(|| unix(&server)) as &dyn Fn() -> Box<dyn ByteStream>,
            "/v1/files?path=/a",
            "wrong",
            "403",
        ),
        (
            &|| unix(&server),
            "/v1/files/tree?path=/proc/1/fd",
            KEY,
            "4",
        ),
        (&|| tcp(sandbox.port()), "/upload_file", "wrong", "403"),
        (&|| tcp(sandbox.port()), "/nowhere", KEY, "404"),
    ] {
        let mut stream = connect();
        let method = if path == "/upload_file" {
            "POST"
        } else {
            "PUT"
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{KEY_HEADER}: {key}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
            .write_all(&body)
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut answer = [0; 12];
        stream
            .read_exact(&mut answer)
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{path}: {answer}"
        );
    }
}
