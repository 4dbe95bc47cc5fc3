//! `glovebox serve` as a user runs it, and a client of its API.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use reqwest::{Method, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use rustls::RootCertStore;
use serde_json::Value;

use crate::glovebox::Home;

/// A running server of one home. Drop kills it.
pub struct HostServer {
    child: Child,
    /// Its address, such as `http://127.0.0.1:3000`.
    pub url: String,
    /// Its key.
    pub key: String,
    client: reqwest::Client,
}

impl HostServer {
    /// Starts the server with local sandboxes and without a limit of requests, and waits until it
    /// listens.
    pub fn start(home: &Home, model: &str, arguments: &[&str]) -> Self {
        Self::start_with_rate(home, model, "off", arguments)
    }

    /// Starts the server with local sandboxes and a limit of requests, and waits until it listens.
    pub fn start_with_rate(home: &Home, model: &str, rate: &str, arguments: &[&str]) -> Self {
        let own = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--runtime",
            "local",
            "--rate-limit",
            rate,
            "-l",
            model,
        ];
        Self::from_command(home, &mut home.glovebox(&[&own, arguments].concat()))
    }

    /// Starts the server with this command.
    pub fn from_command(home: &Home, command: &mut Command) -> Self {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(home.path().join("serve.log"));
        Self::with_log(home, command, log.unwrap())
    }

    /// Starts the server with this command, and its log in this file.
    pub fn with_log(home: &Home, command: &mut Command, log: File) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines
            .next()
            .expect("the server writes its address")
            .unwrap();
        let url = line.strip_prefix("listening on ").unwrap().to_owned();
        let key = std::fs::read_to_string(home.path().join(".glovebox/server-key")).unwrap();
        // A closed pipe would end the server.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            child,
            url,
            key: key.trim().to_owned(),
            client: client(RootCertStore::empty()),
        }
    }

    /// Makes requests trust these roots.
    pub fn trusting(mut self, roots: RootCertStore) -> Self {
        self.client = client(roots);
        self
    }

    /// Returns the port that it listens on.
    pub fn port(&self) -> u16 {
        self.url.rsplit(':').next().unwrap().parse().unwrap()
    }

    /// Starts a request with the key.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.request_without_key(method, path)
            .header("X-Session-API-Key", &self.key)
    }

    /// Returns the status of a request with another key, or none.
    pub async fn status_with_key(&self, path: &str, key: Option<&str>) -> StatusCode {
        let request = self.request_without_key(Method::GET, path);
        let request = key.into_iter().fold(request, |request, key| {
            request.header("X-Session-API-Key", key)
        });
        request.send().await.unwrap().status()
    }

    /// Starts a request without the key.
    pub fn request_without_key(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    /// Gets a JSON value. Panics on an error status.
    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.send(Method::GET, path, None).await;
        assert!(status.is_success(), "{path}: {status} {body}");
        body
    }

    /// Posts a JSON value. Panics on an error status.
    pub async fn post(&self, path: &str, body: &Value) -> Value {
        let (status, body) = self.send(Method::POST, path, Some(body)).await;
        assert!(status.is_success(), "{path}: {status} {body}");
        body
    }

    /// Sends a request with the key. Returns the status and the JSON of the response.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> (StatusCode, Value) {
        self.send_as(&self.key, method, path, body).await
    }

    /// Sends a request with another key. Returns the status and the JSON of the response.
    pub async fn send_as(
        &self,
        key: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> (StatusCode, Value) {
        let request = self
            .request_without_key(method, path)
            .header("X-Session-API-Key", key);
        let request = body
            .into_iter()
            .fold(request, |request, body| request.body(body.to_string()));
        let response = request.send().await.unwrap();
        let (status, text) = (response.status(), response.text().await.unwrap());
        (
            status,
            serde_json::from_str(&text).unwrap_or(Value::String(text)),
        )
    }

    /// Creates a conversation with a first message, and returns its id.
    pub async fn create(&self, message: &str) -> String {
        let created = self
            .post(
                "/api/conversations",
                &serde_json::json!({"initial_user_msg": message}),
            )
            .await;
        created["conversation_id"].as_str().unwrap().to_owned()
    }

    /// Connects to a conversation by socket.io. Returns the first packets of the server, which
    /// start with `40` and the id of the connection, or `44` and the reason of the rejection; and
    /// the query of further requests.
    pub async fn connect_socket(&self, key: &str, id: &str) -> (String, String) {
        let query = format!("/socket.io/?EIO=4&transport=polling&conversation_id={id}");
        let send = async |request: reqwest::RequestBuilder| {
            let response = request
                .header("X-Session-API-Key", key)
                .send()
                .await
                .unwrap();
            let status = response.status();
            let text = response.text().await.unwrap();
            assert!(status.is_success(), "{status} {text}");
            text
        };
        let opened = send(self.request_without_key(Method::GET, &query)).await;
        let opened: Value = serde_json::from_str(opened.strip_prefix('0').unwrap()).unwrap();
        let query = format!("{query}&sid={}", opened["sid"].as_str().unwrap());
        send(self.request_without_key(Method::POST, &query).body("40")).await;
        loop {
            let packets = send(self.request_without_key(Method::GET, &query)).await;
            // Events may follow in the same response.
            let packets: Vec<_> = packets
                .split('\u{1e}')
                .skip_while(|packet| !packet.starts_with('4'))
                .collect();
            match packets.first() {
                Some(rejection) if rejection.starts_with("44") => {
                    return ((*rejection).to_owned(), query);
                }
                Some(_) => return (packets.join("\u{1e}"), query),
                None => {}
            }
        }
    }

    /// Polls the events of a conversation until one matches. Returns all of them.
    pub async fn wait_for_event(&self, id: &str, is_it: impl Fn(&Value) -> bool) -> Vec<Value> {
        let path = format!("/api/conversations/{id}/events?limit=100");
        let polling = async {
            loop {
                let page = self.get(&path).await;
                let events = page["events"].as_array().unwrap().clone();
                if events.iter().any(&is_it) {
                    return events;
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        match tokio::time::timeout(crate::glovebox::TEST_TIMEOUT, polling).await {
            Ok(events) => events,
            Err(_) => panic!("the event is not appended: {:#?}", self.get(&path).await),
        }
    }

    /// Returns the id of its process.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the memory of its process now, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process_id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        line.trim()
            .strip_suffix(" kB")
            .unwrap()
            .trim()
            .parse::<usize>()
            .unwrap()
            << 10
    }

    /// Kills the server, as a crash does.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal to the server.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends the server with SIGTERM, and waits for its exit.
    pub fn terminate(mut self) {
        self.signal(Signal::TERM);
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for HostServer {
    fn drop(&mut self) {
        // Fails if it has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn client(roots: RootCertStore) -> reqwest::Client {
    let tls = tls::client(roots, &[b"http/1.1"]).unwrap();
    // Shorter than the server keeps an idle connection: a request that meets the end of its
    // connection fails.
    let client = reqwest::Client::builder().pool_idle_timeout(Duration::from_secs(10));
    let client = client
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none());
    client.tls_backend_preconfigured(tls).build().unwrap()
}

/// Whether an event reports that the agent has this state.
pub fn is_state(event: &Value, state: &str) -> bool {
    event["observation"] == "agent_state_changed" && event["extras"]["agent_state"] == state
}
