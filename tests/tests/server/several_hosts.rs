//! Servers that share conversations in PostgreSQL. Those of one home stand for hosts whose
//! sandboxes all of them reach.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::{Method, StatusCode};
use rustix::process::Signal;
use serde_json::{Value, json};
use tests::glovebox::{Home, TEST_TIMEOUT, bash, finish, wait_until};
use tests::host_server::{HostServer, is_state};
use tests::postgres::PostgresServer;

/// Conversations that run when a host ends. More of them than the machine has processors.
const RUNNING: usize = 50;

/// Servers of one database and one home, whose agents append to a file and wait until they may go
/// on.
struct Hosts {
    home: Home,
    model: String,
    database: PostgresServer,
    address: String,
}

impl Hosts {
    /// `None` without PostgreSQL.
    fn new() -> Option<Self> {
        let database = PostgresServer::start()?;
        let address = database.address(&database.create_database());
        let home = Home::new();
        // Each conversation has its own folder, which is the working directory of its commands.
        // They print, because the time without output is limited.
        let command = format!(
            "echo waiting; echo run >> runs; until [ -e {} ]; do sleep 0.5; echo waiting; done; echo done",
            home.workspace().join("gate").display()
        );
        home.write(
            ".glovebox/config.toml",
            format!(
                "[sandbox]\nvolumes = \"{0}:{0}:ro\"\n[store]\nlease_duration = 6\n",
                home.workspace().display()
            ),
        );
        let model = home.script(&json!([bash(&command), finish()]));
        Some(Self {
            home,
            model,
            database,
            address,
        })
    }

    fn start(&self) -> HostServer {
        let maximum = (2 * RUNNING).to_string();
        let options = [
            "--store",
            &self.address,
            "--log-level",
            "info",
            "--max-running",
            &maximum,
        ];
        HostServer::start(&self.home, &self.model, &options)
    }

    fn runs(&self, id: &str) -> PathBuf {
        self.home
            .path()
            .join(".glovebox/workspaces")
            .join(id)
            .join("runs")
    }

    /// Creates conversations, and waits until their commands run and have printed.
    async fn create_running(&self, server: &HostServer, count: usize) -> Vec<String> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(server.create("Work.").await);
        }
        for id in &ids {
            wait_until("the command runs", || self.runs(id).exists());
        }
        ids
    }

    /// Lets all commands end.
    fn open_gate(&self) {
        std::fs::write(self.home.workspace().join("gate"), "").unwrap();
    }

    async fn end(self, servers: impl IntoIterator<Item = HostServer>, ids: &[String]) {
        let servers: Vec<_> = servers.into_iter().collect();
        for id in ids {
            servers[0]
                .post(&format!("/api/conversations/{id}/stop"), &json!({}))
                .await;
        }
        servers.into_iter().for_each(HostServer::terminate);
        self.home.assert_nothing_runs();
    }
}

/// Checks that a conversation has finished, and that its command ran once.
async fn assert_ran_once(server: &HostServer, id: &str, runs: &Path) {
    let events = server
        .wait_for_event(id, |event| is_state(event, "finished"))
        .await;
    let results: Vec<_> = events
        .iter()
        .filter(|event| event["observation"] == "run")
        .collect();
    assert_eq!(results.len(), 1, "{events:#?}");
    assert!(
        results[0]["content"]
            .as_str()
            .unwrap()
            .ends_with("waiting\ndone"),
        "{:?}",
        results[0]
    );
    assert_eq!(std::fs::read_to_string(runs).unwrap(), "run\n");
    let numbers: Vec<_> = events
        .iter()
        .map(|event| event["id"].as_u64().unwrap())
        .collect();
    assert!(
        numbers.is_sorted_by(|before, after| before < after),
        "{numbers:?}"
    );
}

/// Waits until a request has this answer.
async fn wait_for(is_so: impl AsyncFn() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, waiting)
        .await
        .expect("the condition holds before the timeout");
}

async fn is_running(server: &HostServer, id: &str) -> bool {
    let status = server.get(&format!("/api/conversations/{id}")).await["status"].clone();
    ["STARTING", "RUNNING"]
        .iter()
        .any(|running| status == *running)
}

#[tokio::test]
async fn conversations_of_a_killed_host_are_taken_over_once() {
    let Some(hosts) = Hosts::new() else { return };
    let (first, second, third) = (hosts.start(), hosts.start(), hosts.start());
    let ids = hosts.create_running(&first, RUNNING).await;
    first.kill();
    hosts.open_gate();
    for id in &ids {
        assert_ran_once(&second, id, &hosts.runs(id)).await;
    }
    hosts.end([third, second], &ids).await;
}

/// Hosts with state folders of their own, except for the keys.
#[tokio::test]
async fn users_and_their_settings_are_those_of_all_hosts() {
    let Some(database) = PostgresServer::start() else {
        return;
    };
    let address = database.address(&database.create_database());
    let store = ["--store", &address];
    let (home, other_home) = (Home::new(), Home::new());
    let model = home.script(&json!([finish()]));
    let first = HostServer::start(&home, &model, &store);
    for file in ["server-key", "secrets-key"] {
        let key = std::fs::read(home.path().join(".glovebox").join(file)).unwrap();
        other_home.write(&format!(".glovebox/{file}"), key);
    }
    let second = HostServer::start(&other_home, &other_home.script(&json!([finish()])), &store);

    other_home
        .run(&[&["user", "add", "ada"], &store[..]].concat())
        .expect(0);
    let (key, _) = other_home.add_key("ada", &store);
    let settings = json!({"language": "de"});
    let (status, body) = first
        .send_as(&key, Method::POST, "/api/settings", Some(&settings))
        .await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let (_, found) = second
        .send_as(&key, Method::GET, "/api/settings", None)
        .await;
    assert_eq!(found["language"], "de");
    let entries = home
        .run(&[&["audit", "--json"], &store[..]].concat())
        .expect(0)
        .stdout;
    assert!(
        entries.contains("user add ada") && entries.contains("POST /api/settings"),
        "{entries}"
    );

    home.run(&[&["user", "rm", "ada"], &store[..]].concat())
        .expect(0);
    let (status, _) = second
        .send_as(&key, Method::GET, "/api/settings", None)
        .await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    [first, second].into_iter().for_each(HostServer::terminate);
}

#[tokio::test]
async fn conversations_of_a_terminated_host_are_taken_over() {
    let Some(hosts) = Hosts::new() else { return };
    let (first, second) = (hosts.start(), hosts.start());
    let ids = hosts.create_running(&first, 2).await;
    first.terminate();
    hosts.open_gate();
    for id in &ids {
        assert_ran_once(&second, id, &hosts.runs(id)).await;
    }
    hosts.end([second], &ids).await;
}

#[tokio::test]
async fn frozen_host_writes_nothing_when_it_continues() {
    let Some(hosts) = Hosts::new() else { return };
    let (first, second) = (hosts.start(), hosts.start());
    let ids = hosts.create_running(&first, 2).await;
    first.signal(Signal::STOP);
    hosts.open_gate();
    for id in &ids {
        assert_ran_once(&second, id, &hosts.runs(id)).await;
    }
    first.signal(Signal::CONT);
    // The first host has the result of the command too, and forwards requests now.
    for id in &ids {
        let path = format!("/api/conversations/{id}/message");
        let message = json!({"message": "Go on."});
        // Until it notices that it was frozen.
        while first.send(Method::POST, &path, Some(&message)).await.0
            == StatusCode::SERVICE_UNAVAILABLE
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let is_message = |event: &Value| event["args"]["content"] == "Go on.";
        second.wait_for_event(id, is_message).await;
        let events = first.wait_for_event(id, is_message).await;
        let results = events
            .iter()
            .filter(|event| event["observation"] == "run")
            .count();
        assert_eq!(results, 1, "{events:#?}");
        assert_eq!(std::fs::read_to_string(hosts.runs(id)).unwrap(), "run\n");
    }
    hosts.end([second, first], &ids).await;
}

#[tokio::test]
async fn each_host_serves_the_conversations_of_all() {
    let Some(hosts) = Hosts::new() else { return };
    let (first, second) = (hosts.start(), hosts.start());
    let id = hosts.create_running(&first, 1).await.remove(0);
    let path = format!("/api/conversations/{id}");
    assert!(is_running(&second, &id).await);
    assert_eq!(
        second.get("/api/conversations").await["results"][0]["status"],
        "RUNNING"
    );
    // Only the first host has the sandbox.
    assert_eq!(
        second.get(&format!("{path}/list-files")).await,
        json!(["runs"])
    );
    let stream = format!("/api/v2/conversations/{id}/stream?after=0");
    let mut stream = second.request(Method::GET, &stream).send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    // So are its ports: no program listens on this one.
    let port = async |server: &HostServer| {
        let host = format!(
            "65000-{id}.localhost:{}",
            server.url.rsplit_once(':').unwrap().1
        );
        let response = server
            .request(Method::GET, "/")
            .header("Host", host)
            .send()
            .await
            .unwrap();
        (
            response.status(),
            response.json::<Value>().await.unwrap()["msg_id"].take(),
        )
    };
    assert_eq!(port(&second).await, port(&first).await);
    hosts.open_gate();
    let mut received = String::new();
    while !received.contains("\"finished\"") {
        received.push_str(std::str::from_utf8(&stream.chunk().await.unwrap().unwrap()).unwrap());
    }
    let stopped = second.post(&format!("{path}/stop"), &json!({})).await;
    assert_eq!(stopped["conversation_status"], "STOPPED");
    assert!(!is_running(&first, &id).await);
    // It runs on the host that receives the next message.
    second
        .post(&format!("{path}/message"), &json!({"message": "Go on."}))
        .await;
    assert!(is_running(&first, &id).await);
    assert_eq!(
        first.send(Method::DELETE, &path, None).await,
        (StatusCode::OK, json!(true))
    );
    assert_eq!(second.get(&path).await, Value::Null);
    hosts.end([first, second], &[]).await;
}

/// Their bodies name the conversation.
#[tokio::test]
async fn requests_of_agents_reach_the_host_of_a_conversation() {
    let Some(hosts) = Hosts::new() else { return };
    let (first, second) = (hosts.start(), hosts.start());
    let id = hosts.create_running(&first, 1).await.remove(0);
    let call = async |tool: &str| {
        let params = json!({"name": tool, "arguments": {"conversation_id": id}});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let request = second
            .request(Method::POST, "/mcp")
            .body(message.to_string());
        let request = request.header("Accept", "application/json, text/event-stream");
        let response = request
            .header("Content-Type", "application/json")
            .send()
            .await
            .unwrap();
        response.json::<Value>().await.unwrap()["result"]["structuredContent"].take()
    };
    let request = json!({
        "model": "glovebox", "conversation_id": id, "messages": [{"role": "user", "content": "Hurry."}],
    });
    let (answer, waited, ()) = tokio::join!(
        second.post("/v1/chat/completions", &request),
        call("wait"),
        async {
            first
                .wait_for_event(&id, |event| event["args"]["content"] == "Hurry.")
                .await;
            hosts.open_gate();
        }
    );
    assert_eq!(
        answer["choices"][0]["message"]["content"], "Done.",
        "{answer}"
    );
    assert_eq!(
        (&answer["conversation_id"], &waited["outcome"]),
        (&json!(id), &json!("finished"))
    );
    assert_ran_once(&first, &id, &hosts.runs(&id)).await;
    assert_eq!(call("stop_conversation").await["status"], "STOPPED");
    assert!(!is_running(&first, &id).await);
    hosts.end([first, second], &[]).await;
}

#[tokio::test]
async fn changes_are_refused_while_a_killed_host_is_not_taken_over() {
    let Some(hosts) = Hosts::new() else { return };
    let (first, second) = (hosts.start(), hosts.start());
    let ids = hosts.create_running(&first, 1).await;
    first.signal(Signal::STOP);
    first.kill();
    let path = format!("/api/conversations/{}", ids[0]);
    let (status, body) = second
        .send(
            Method::POST,
            &format!("{path}/message"),
            Some(&json!({"message": "Go on."})),
        )
        .await;
    assert_eq!(
        (status, &body["msg_id"]),
        (
            StatusCode::SERVICE_UNAVAILABLE,
            &json!("CONVERSATION$HOST_UNREACHABLE")
        )
    );
    // What is stored can be read.
    assert!(
        !second.get(&format!("{path}/events")).await["events"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    hosts.open_gate();
    assert_ran_once(&second, &ids[0], &hosts.runs(&ids[0])).await;
    hosts.end([second], &ids).await;
}

#[tokio::test]
async fn work_continues_after_a_restart_of_the_database() {
    let Some(hosts) = Hosts::new() else { return };
    let server = hosts.start();
    let ids = hosts.create_running(&server, 2).await;
    hosts.database.stop(Signal::INT);
    tokio::time::sleep(Duration::from_secs(1)).await;
    hosts.database.restart();
    hosts.open_gate();
    for id in &ids {
        assert_ran_once(&server, id, &hosts.runs(id)).await;
    }
    hosts.end([server], &ids).await;
}

/// Its connections break while agents take steps, twice: once it shuts down, once it recovers from
/// a crash.
#[tokio::test]
async fn steps_continue_after_restarts_of_a_busy_database() {
    const STEPS: usize = 40;
    let Some(mut hosts) = Hosts::new() else {
        return;
    };
    let steps = (0..STEPS).map(|step| bash(&format!("echo {step} >> runs; sleep 0.1")));
    hosts.model = hosts
        .home
        .script(&json!(steps.chain([finish()]).collect::<Vec<_>>()));
    let server = hosts.start();
    let ids = hosts.create_running(&server, 6).await;
    for signal in [Signal::INT, Signal::QUIT] {
        let lines = || {
            ids.iter()
                .map(|id| {
                    std::fs::read_to_string(hosts.runs(id))
                        .unwrap()
                        .lines()
                        .count()
                })
                .sum::<usize>()
        };
        let before = lines();
        wait_until("steps are taken", || lines() > before);
        hosts.database.stop(signal);
        wait_for(async || {
            server.status_with_key("/ready", None).await == StatusCode::SERVICE_UNAVAILABLE
        })
        .await;
        hosts.database.restart();
    }
    for id in &ids {
        let finished = |event: &Value| is_state(event, "finished");
        let path = format!("/api/conversations/{id}/events?reverse=true");
        wait_for(async || {
            server.get(&path).await["events"]
                .as_array()
                .unwrap()
                .iter()
                .any(finished)
        })
        .await;
        let expected: String = (0..STEPS).map(|step| format!("{step}\n")).collect();
        assert_eq!(std::fs::read_to_string(hosts.runs(id)).unwrap(), expected);
    }
    hosts.end([server], &ids).await;
}

#[tokio::test]
async fn command_line_works_on_the_shared_conversations() {
    let Some(hosts) = Hosts::new() else { return };
    let server = hosts.start();
    let ids = hosts.create_running(&server, 1).await;
    let run = |arguments: &[&str]| {
        hosts
            .home
            .run(&[arguments, &["--store", &hosts.address]].concat())
    };
    let listed = run(&["conversations", "ls", "--json"]).expect(0).stdout;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(
        (&listed[0]["conversation_id"], &listed[0]["agent_state"]),
        (&json!(ids[0]), &json!("running"))
    );
    // It runs elsewhere.
    let refused = run(&["resume", &ids[0], "-t", "Go on."]).expect(1).stderr;
    assert!(
        refused.contains("is being run by another process"),
        "{refused}"
    );
    hosts.open_gate();
    server
        .wait_for_event(&ids[0], |event| is_state(event, "finished"))
        .await;
    hosts.end([server], &ids).await;
}

/// Calls a tool of the MCP endpoint for a conversation. Returns the status, and the result or the
/// body.
async fn call_tool(server: &HostServer, key: &str, tool: &str, id: &str) -> (StatusCode, Value) {
    let params = json!({"name": tool, "arguments": {"conversation_id": id}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let request = server
        .request_without_key(Method::POST, "/mcp")
        .bearer_auth(key)
        .body(message.to_string());
    let request = request.header("Accept", "application/json, text/event-stream");
    let response = request
        .header("Content-Type", "application/json")
        .send()
        .await
        .unwrap();
    let (status, mut body) = (response.status(), response.json::<Value>().await.unwrap());
    (
        status,
        if status.is_success() {
            body["result"]["structuredContent"].take()
        } else {
            body
        },
    )
}

/// Returns the entries of the audit log about a conversation: the action, the address and the
/// status.
fn audit(hosts: &Hosts, id: &str) -> Vec<(String, String, u64)> {
    let output = hosts
        .home
        .run(&["audit", "--json", "--store", &hosts.address])
        .expect(0)
        .stdout;
    let entries = output
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let own = entries.filter(|entry| entry["conversation"] == *id);
    own.map(|entry| {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        (
            text("action"),
            text("address"),
            entry["status"].as_u64().unwrap_or_default(),
        )
    })
    .collect()
}

#[tokio::test]
async fn conversation_of_a_killed_host_is_hidden_from_others() {
    let Some(hosts) = Hosts::new() else { return };
    let store = ["--store", &hosts.address];
    let add = |name: &str| {
        hosts
            .home
            .run(&[&["user", "add", name], &store[..]].concat())
            .expect(0);
        hosts.home.add_key(name, &store).0
    };
    let (ada, ben) = (add("ada"), add("ben"));
    let (first, second) = (hosts.start(), hosts.start());
    let request = json!({"initial_user_msg": "Work."});
    let (_, created) = first
        .send_as(&ada, Method::POST, "/api/conversations", Some(&request))
        .await;
    let id = created["conversation_id"].as_str().unwrap().to_owned();
    wait_until("the command runs", || hosts.runs(&id).exists());
    first.kill();

    let path = format!("/api/conversations/{id}/message");
    let message = json!({"message": "Go on."});
    let (status, _) = second
        .send_as(&ben, Method::POST, &path, Some(&message))
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, result) = call_tool(&second, &ben, "stop_conversation", &id).await;
    assert_eq!(
        (status, &result["code"]),
        (StatusCode::OK, &json!("CONVERSATION$NOT_FOUND"))
    );
    let (status, _) = second
        .send_as(&ada, Method::POST, &path, Some(&message))
        .await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let (status, _) = call_tool(&second, &ada, "stop_conversation", &id).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let (rest, tool) = (
        "POST /api/conversations/{id}/message",
        "mcp stop_conversation",
    );
    let recorded = audit(&hosts, &id);
    let recorded: Vec<_> = recorded
        .iter()
        .map(|(action, _, status)| (action.as_str(), *status))
        .collect();
    // The first one is the creation.
    assert_eq!(
        recorded[1..],
        [(rest, 404), (tool, 404), (rest, 503), (tool, 503)]
    );
    hosts.open_gate();
    assert_ran_once(&second, &id, &hosts.runs(&id)).await;
    hosts.end([second], &[id]).await;
}

#[tokio::test]
async fn forwarded_change_is_recorded_once_with_its_client() {
    let Some(hosts) = Hosts::new() else { return };
    let (first, second) = (hosts.start(), hosts.start());
    let id = hosts.create_running(&first, 1).await.remove(0);
    let client = reqwest::Client::builder()
        .no_proxy()
        .local_address("127.0.0.2".parse::<IpAddr>().ok());
    let client = client
        .tls_backend_preconfigured(tls::http_client("http").unwrap())
        .build()
        .unwrap();
    // What a client claims to have forwarded itself is not believed.
    for (server, forwarded) in [
        (&second, None),
        (&first, Some("192.0.2.1 https 4102444800.00")),
    ] {
        let request = client.patch(format!("{}/api/conversations/{id}", server.url));
        let request = request
            .header("X-Session-API-Key", &server.key)
            .body(r#"{"title": "New"}"#);
        let request = forwarded.into_iter().fold(request, |request, claim| {
            request.header("X-Glovebox-Forwarded", claim)
        });
        assert_eq!(request.send().await.unwrap().status(), StatusCode::OK);
    }
    hosts.open_gate();
    first
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    assert_eq!(
        call_tool(&second, &second.key, "stop_conversation", &id)
            .await
            .0,
        StatusCode::OK
    );
    let recorded = audit(&hosts, &id);
    let (rest, tool) = ("PATCH /api/conversations/{id}", "mcp stop_conversation");
    let expected = [
        (rest, "127.0.0.2"),
        (rest, "127.0.0.2"),
        (tool, "127.0.0.1"),
    ];
    let expected = expected.map(|(action, address)| (action.to_owned(), address.to_owned(), 200));
    assert_eq!(recorded[1..], expected, "{recorded:#?}");
    hosts.end([first, second], &[]).await;
}

#[tokio::test]
async fn message_right_after_a_stop_reaches_any_host() {
    let Some(database) = PostgresServer::start() else {
        return;
    };
    let address = database.address(&database.create_database());
    let home = Home::new();
    let model = home.script(&json!(vec![json!({"text": "Hello."}); 32]));
    let start = || HostServer::start(&home, &model, &["--store", &address]);
    let hosts = [start(), start()];
    let id = hosts[0].create("Say hello.").await;
    hosts[0]
        .wait_for_event(&id, |event| is_state(event, "awaiting_user_input"))
        .await;
    let path = format!("/api/conversations/{id}");
    let request = json!({"model": "glovebox", "conversation_id": id, "messages": [{"role": "user", "content": "Go."}]});
    for round in 0..8 {
        let [stopping, other] = [&hosts[round % 2], &hosts[(round / 2) % 2]];
        stopping.post(&format!("{path}/stop"), &json!({})).await;
        let sent = other
            .send(Method::POST, "/v1/chat/completions", Some(&request))
            .await;
        assert_eq!(sent.0, StatusCode::OK, "{round}: {}", sent.1);
    }
    hosts[0].post(&format!("{path}/stop"), &json!({})).await;
    hosts.into_iter().for_each(HostServer::terminate);
    home.assert_nothing_runs();
}
