//! `echo hi`: through a bare terminal, and through the action server on a unix socket.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use axum::Router;
use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use serde_json::json;

use super::figure::{Figure, quantile_ms};
use super::server::{Client, Server};

const ROUNDS: usize = 2000;

/// The prompt that ends a command in the bare terminal.
const PROMPT: &str = "@@@";

pub(crate) async fn measure() -> Vec<Figure> {
    let mut bare = tokio::task::spawn_blocking(bare_terminal).await.unwrap();
    let mut http = bare_http().await;
    let server = Server::start().await;
    let mut client = server.connect().await;
    let mut served = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let body = json!({"action": "run", "args": {"command": "echo hi"}}).to_string();
        let begin = Instant::now();
        let (status, answer) = client.ask("POST", &format!("/v1/actions/echo-{round}"), body).await;
        served.push(begin.elapsed());
        assert!(status.is_success(), "{status}");
        assert!(answer.windows(3).any(|window| window == b"hi\n"), "{answer:?}");
    }
    let floor = quantile_ms(&mut bare, 0.5);
    let http = quantile_ms(&mut http, 0.5);
    let p50 = quantile_ms(&mut served, 0.5);
    vec![
        Figure::plain("bare PTY round trip of `echo hi`, p50", floor, "ms"),
        Figure::plain("bare axum round trip on a unix socket, p50", http, "ms"),
        Figure::within("`echo hi` through the action server, p50 (floor: PTY)", p50, "ms", floor, 4.0),
        Figure::plain("the same (floor: PTY + axum)", p50, "ms").with_floor(floor + http),
        Figure::plain("the same, p99", quantile_ms(&mut served, 0.99), "ms"),
        Figure::below("RSS of the server after that", server.rss_mb(), "MB", 8.0),
    ]
}

/// bash on a terminal, its echo off, a command typed and its output read to the next prompt.
fn bare_terminal() -> Vec<Duration> {
    let pair = native_pty_system().openpty(PtySize::default()).unwrap();
    let mut command = CommandBuilder::new("bash");
    command.args(["--noprofile", "--norc", "--noediting", "-i"]);
    command.cwd("/");
    command.env("HOME", "/");
    command.env("PS1", PROMPT);
    let mut shell = pair.slave.spawn_command(command).unwrap();
    drop(pair.slave);
    let mut reader = pair.master.try_clone_reader().unwrap();
    let mut writer = pair.master.take_writer().unwrap();
    let mut ask = |text: &str| {
        writer.write_all(text.as_bytes()).unwrap();
        writer.flush().unwrap();
        let mut heard = Vec::new();
        let mut chunk = [0; 4096];
        while !heard.ends_with(PROMPT.as_bytes()) {
            let length = reader.read(&mut chunk).unwrap();
            heard.extend_from_slice(&chunk[..length]);
        }
        heard
    };
    ask(""); // its first prompt
    ask("stty -echo -opost\n");
    let samples = (0..ROUNDS).map(|_| {
        let begin = Instant::now();
        let heard = ask("echo hi\n");
        assert!(heard.starts_with(b"hi\n"), "{:?}", String::from_utf8_lossy(&heard));
        begin.elapsed()
    });
    let samples = samples.collect();
    shell.kill().unwrap();
    shell.wait().unwrap();
    samples
}

/// The least that a round trip over HTTP costs: axum, a unix socket, the same client.
async fn bare_http() -> Vec<Duration> {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let router = Router::new().fallback(|body: String| async move { body });
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let mut client = Client::connect(&socket).await.unwrap();
    let mut samples = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let (_, answer) = client.ask("POST", "/", "echo hi".to_owned()).await;
        samples.push(begin.elapsed());
        assert_eq!(&answer[..], b"echo hi");
    }
    server.abort();
    samples
}
