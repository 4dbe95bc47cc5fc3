//! Interactive terminals: keys, output, size and exit. No process survives the end of the stream.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper::ext::Protocol;
use hyper::upgrade::Upgraded;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use protocol::sandbox_api::{ExitReason, FrameDecoder, ProcessExit, TerminalInput, TerminalOutput};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::harness::{TEST_TIMEOUT, TestServer, pids, wait_until_dead};

struct TerminalStream {
    stream: TokioIo<Upgraded>,
    decoder: FrameDecoder<TerminalOutput>,
    shown: String,
}

impl TerminalStream {
    async fn open(server: &TestServer, query: &str) -> Self {
        let stream = TokioIo::new(UnixStream::connect(server.socket()).await.unwrap());
        let (mut client, connection) = http2::Builder::new(TokioExecutor::new())
            .handshake(stream)
            .await
            .unwrap();
        tokio::spawn(connection);
        // The client learns from the server's settings, which precede this response, that extended
        // CONNECT is supported.
        client
            .send_request(
                Request::get("http://sandbox/alive")
                    .body(Empty::<Bytes>::new())
                    .unwrap(),
            )
            .await
            .unwrap();
        let mut request = Request::connect(format!("http://sandbox/v1/terminal?{query}"))
            .body(Empty::new())
            .unwrap();
        request
            .extensions_mut()
            .insert(Protocol::from_static("terminal"));
        let response = client.send_request(request).await.unwrap();
        let status = response.status();
        if status != 200 {
            panic!(
                "{status}: {:?}",
                response.into_body().collect().await.unwrap().to_bytes()
            );
        }
        let stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        Self {
            stream,
            decoder: FrameDecoder::default(),
            shown: String::new(),
        }
    }

    async fn send(&mut self, frame: TerminalInput) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes).unwrap();
        self.stream.write_all(&bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    async fn type_text(&mut self, text: &str) {
        self.send(TerminalInput::Keys(text.into())).await;
    }

    async fn next(&mut self) -> Option<TerminalOutput> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return Some(frame);
            }
            match timeout(TEST_TIMEOUT, self.stream.read(&mut buffer))
                .await
                .expect("a frame in time")
                .unwrap()
            {
                0 => return None,
                count => self.decoder.push(&buffer[..count]),
            }
        }
    }

    /// Reads until the text is shown, and discards the output up to its end.
    async fn wait_until(&mut self, text: &str) {
        loop {
            if let Some(at) = self.shown.find(text) {
                self.shown.drain(..at + text.len());
                return;
            }
            match self.next().await {
                Some(TerminalOutput::Output(bytes)) => {
                    self.shown.push_str(&String::from_utf8_lossy(&bytes));
                }
                other => panic!("{other:?} before {text:?} in {:?}", self.shown),
            }
        }
    }

    async fn end(mut self) -> (String, ProcessExit) {
        loop {
            match self.next().await {
                Some(TerminalOutput::Output(bytes)) => {
                    self.shown.push_str(&String::from_utf8_lossy(&bytes));
                }
                Some(TerminalOutput::Exit(exit)) => {
                    assert_eq!(self.next().await, None, "the exit is the last");
                    return (self.shown, *exit);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn terminal_handles_keys_and_reports_the_exit() {
    let server = TestServer::start();
    let mut terminal = TerminalStream::open(&server, "columns=101&rows=33&term=vt100").await;
    terminal
        .type_text("stty size; echo $TERM $((40+2)); tty -s && echo on a tty; pwd\r")
        .await;
    terminal.wait_until("33 101").await;
    terminal.wait_until("vt100 42").await;
    terminal.wait_until("on a tty").await;
    let folder = server.dir.path().canonicalize().unwrap();
    terminal.wait_until(folder.to_str().unwrap()).await;
    terminal
        .send(TerminalInput::Resize {
            columns: 72,
            rows: 20,
        })
        .await;
    terminal.type_text("stty size\r").await;
    terminal.wait_until("20 72").await;
    // The key terminates the foreground process, not the shell. The process itself prints that it
    // started: only then is it certain that the shell has made it the terminal's foreground
    // process.
    terminal
        .type_text("sh -c \"echo started''; exec sleep 1000\"\r")
        .await;
    terminal.wait_until("started\r\n").await;
    let started = Instant::now();
    terminal.type_text("\x03").await;
    terminal.type_text("exit 7\r").await;
    let (_, exit) = terminal.end().await;
    assert_eq!((exit.code, exit.reason), (Some(7), ExitReason::Exited));
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_output_of_a_terminal_command_is_shown() {
    let server = TestServer::start();
    server
        .send(
            Method::PUT,
            "/v1/environment",
            json!({"COLOR": "green"}).to_string(),
        )
        .await;
    let command = "echo%20%24COLOR%3B%20seq%2020000%3B%20exit%203";
    let (shown, exit) = TerminalStream::open(&server, &format!("command={command}"))
        .await
        .end()
        .await;
    let lines: Vec<_> = shown.split("\r\n").collect();
    assert_eq!((lines[0], lines[1], lines[20000]), ("green", "1", "20000"));
    assert_eq!(exit.code, Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn process_tree_is_killed_when_the_stream_closes() {
    let server = TestServer::start();
    let mut terminal = TerminalStream::open(&server, "").await;
    let stubborn = "trap '' HUP TERM INT; (setsid sh -c 'echo $$ >>pids; sleep 1000' &); sleep 1001 & echo $! >>pids; echo $$ >>pids\r";
    terminal.type_text(stubborn).await;
    let running = pids(&server.file("pids"), 3);
    let started = Instant::now();
    drop(terminal);
    running.into_iter().for_each(wait_until_dead);
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn terminals_are_killed_when_the_server_ends() {
    let mut server = TestServer::start();
    let mut terminal = TerminalStream::open(&server, "").await;
    terminal
        .type_text("trap '' HUP TERM; echo $$ >>pids; sleep 1000\r")
        .await;
    let running = pids(&server.file("pids"), 1);
    nix::sys::signal::kill(server.pid(), nix::sys::signal::Signal::SIGTERM).unwrap();
    server.wait();
    running.into_iter().for_each(wait_until_dead);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_terminal_requests_are_refused() {
    let server = TestServer::start();
    let upgrade = |query: &str| {
        let request = Request::get(format!("/v1/terminal?{query}")).header("host", "sandbox");
        let request = request
            .header("connection", "upgrade")
            .header("upgrade", "terminal");
        request.body(http_body_util::Full::default()).unwrap()
    };
    for (query, word) in [
        ("columns=0", "columns"),
        ("rows=0", "rows"),
        ("rows=70000", "rows"),
        ("term=a%20b", "term"),
        ("command=a%00b", "command"),
        ("colour=1", "colour"),
    ] {
        let reply = server.send_request(upgrade(query)).await;
        assert_eq!(reply.status, 400, "{query}: {reply:?}");
        assert!(
            reply.json()["detail"].as_str().unwrap().contains(word),
            "{reply:?}"
        );
    }
    assert_eq!(
        server.send(Method::GET, "/v1/terminal", "").await.status,
        426
    );
}
