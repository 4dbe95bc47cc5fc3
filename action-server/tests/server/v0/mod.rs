//! The API for clients of OpenHands V0: each line of `reference/v0-action-server.md`.

mod actions;
mod commands;
mod files;
mod start;

use std::net::{Ipv4Addr, TcpListener, TcpStream as StdTcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::harness::{HttpReply, TEST_TIMEOUT, program};

/// The key of requests to a server without a key.
pub(super) const KEY: &str = "canary-7d21c4";

/// A running server, terminated on drop.
pub(crate) struct V0Sandbox {
    pub(super) child: Child,
    pub(super) dir: TempDir,
    /// Unique, because tests search for it in all processes, which include those of other tests.
    pub(super) key: String,
    port: u16,
}

impl V0Sandbox {
    /// Starts a server with V0's arguments and a short silence timeout.
    pub(super) fn start() -> Self {
        Self::start_with(
            &[
                "--plugins",
                "agent_skills",
                "jupyter",
                "vscode",
                "--no-enable-browser",
            ],
            Some(&format!("canary-{}", uuid::Uuid::now_v7().simple())),
        )
    }

    pub(crate) fn start_with(more: &[&str], key: Option<&str>) -> Self {
        // Another process may take the port in between.
        (0..5)
            .find_map(|_| Self::try_start(more, key))
            .expect("the server starts")
    }

    fn try_start(more: &[&str], key: Option<&str>) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let mut command = program();
        command
            .args(["v0", &port.to_string(), "--working-dir"])
            .arg(dir.path())
            .args(more)
            .env("HOME", dir.path())
            .env("NO_CHANGE_TIMEOUT_SECONDS", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        match key {
            Some(key) => command.env("SESSION_API_KEY", key),
            None => command.env_remove("SESSION_API_KEY"),
        };
        let key = key.unwrap_or(KEY).to_owned();
        let mut sandbox = Self {
            child: command.spawn().unwrap(),
            dir,
            key,
            port,
        };
        let deadline = Instant::now() + TEST_TIMEOUT;
        while StdTcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if sandbox.child.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(Instant::now() < deadline, "the server does not listen");
            std::thread::sleep(Duration::from_millis(2));
        }
        Some(sandbox)
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.dir
            .path()
            .canonicalize()
            .unwrap()
            .join(name)
            .display()
            .to_string()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> HttpReply {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))
            .await
            .unwrap();
        HttpReply::receive(stream, request).await
    }

    pub(super) fn request(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Request<Full<Bytes>> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "sandbox");
        request
            .header("X-Session-API-Key", &self.key)
            .body(Full::new(body.into()))
            .unwrap()
    }

    pub(super) async fn get(&self, path: &str) -> HttpReply {
        self.send(self.request(Method::GET, path, "")).await
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> HttpReply {
        self.send(self.request(Method::POST, path, body.to_string()))
            .await
    }

    /// Sends an action as V0's client does, which treats every other status than 200 as a broken
    /// sandbox.
    pub(super) async fn act(&self, action: Value) -> Value {
        let reply = self
            .post("/execute_action", json!({"action": action}))
            .await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    pub(super) async fn run(&self, command: &str) -> Value {
        self.act(json!({"action": "run", "args": {"command": command}, "timeout": 120}))
            .await
    }

    pub(super) async fn run_with(&self, timeout: f64, args: Value) -> Value {
        self.act(json!({"action": "run", "args": args, "timeout": timeout}))
            .await
    }
}

impl Drop for V0Sandbox {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let deadline = Instant::now() + TEST_TIMEOUT;
        while Instant::now() < deadline && self.child.try_wait().is_ok_and(|ended| ended.is_none())
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

pub(super) fn content(observation: &Value) -> &str {
    observation["content"].as_str().unwrap()
}

pub(super) fn metadata<'a>(observation: &'a Value, name: &str) -> &'a str {
    observation["extras"]["metadata"][name]
        .as_str()
        .unwrap_or_else(|| panic!("{observation}"))
}

pub(super) fn exit_code(observation: &Value) -> i64 {
    observation["extras"]["metadata"]["exit_code"]
        .as_i64()
        .unwrap()
}
