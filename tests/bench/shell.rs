//! `echo hi`: through a bare terminal, and through the action server on a unix socket.
//!
//! Where one round of 430 µs goes, read from the processes' own accounts over 5,000 rounds on two virtual cores: bash
//! 128 µs in itself and 104 µs in the system (a bare one: about 70 together), the server 84 µs and 136 µs with eight
//! context switches. Of bash's share much is its reading of our own text anew for every command: the first line with its
//! two functions, the tail, the prompt (`action-server/src/shell/prompt.rs`), and the three times that each opens
//! `/dev/null` and `/dev/tty`. One thread or two in the server makes no difference; answering in one write made 5 %.

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
    let mut client = server.connect();
    let mut served = tokio::task::spawn_blocking(move || served_echoes(&mut client)).await.unwrap();
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

fn served_echoes(client: &mut Client) -> Vec<Duration> {
    let body = json!({"action": "run", "args": {"command": "echo hi"}}).to_string();
    let rounds = (0..ROUNDS).map(|round| {
        let begin = Instant::now();
        let answer = client.ask("POST", &format!("/v1/actions/echo-{round}"), &body);
        assert!(answer.windows(3).any(|window| window == b"hi\n"), "{answer:?}");
        begin.elapsed()
    });
    rounds.collect()
}

/// The least that a round trip over HTTP costs: axum on a unix socket, the same client.
async fn bare_http() -> Vec<Duration> {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let router = Router::new().fallback(|body: String| async move { body });
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let asked = tokio::task::spawn_blocking(move || {
        let mut client = Client::connect(&socket).unwrap();
        let rounds = (0..ROUNDS).map(|_| {
            let begin = Instant::now();
            assert!(client.ask("POST", "/", "echo hi").ends_with(b"echo hi"));
            begin.elapsed()
        });
        rounds.collect()
    });
    let samples = asked.await.unwrap();
    server.abort();
    samples
}
