//! The clients of socket.io from npm and PyPI.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::glovebox::{Home, bash, finish, tool_call};
use tests::host_server::{HostServer, is_state};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::sleep;

use crate::test_packages::{npm_packages, pypi_packages};

/// Sends the message in its last argument once it is connected, and prints what it receives as JSON
/// lines until the agent has finished.
const NODE_CLIENT: &str = r"
const { io } = require('socket.io-client');
const [url, id, key, latest, message] = process.argv.slice(1);
const query = { conversation_id: id, latest_event_id: latest, session_api_key: key };
const socket = io(url, { transports: ['websocket'], query, reconnection: false });
socket.on('connect', () => {
  if (message) socket.emit('oh_user_action', JSON.parse(message));
});
socket.on('connect_error', (error) => {
  console.log(JSON.stringify({ connect_error: error.message }));
  process.exit(0);
});
socket.on('oh_event', (event) => {
  console.log(JSON.stringify(event));
  if (event.error || event.extras?.agent_state === 'finished') process.exit(0);
});
";

/// Not the client of threads, which calls its handlers in any order.
const PYTHON_CLIENT: &str = r"
import asyncio, json, os, sys, urllib.parse
import socketio
url, id, key, latest, message = sys.argv[1:]
query = urllib.parse.urlencode({'conversation_id': id, 'latest_event_id': latest, 'session_api_key': key})

async def main():
    client = socketio.AsyncClient(reconnection=False)

    @client.on('connect')
    async def connect():
        if message:
            await client.emit('oh_user_action', json.loads(message))

    @client.on('oh_event')
    async def event(event):
        print(json.dumps(event), flush=True)
        if event.get('error') or event.get('extras', {}).get('agent_state') == 'finished':
            os._exit(0)

    await client.connect(url + '?' + query, transports=['websocket'])
    await client.wait()

asyncio.run(main())
";

/// A client of socket.io.
#[derive(Clone, Copy)]
enum SocketClient {
    Node,
    Python,
}

impl SocketClient {
    /// Returns the folder of the client. `None`, and the test is skipped, if it is not installed.
    fn packages(self) -> Option<PathBuf> {
        match self {
            Self::Node => npm_packages(),
            Self::Python => pypi_packages(),
        }
    }

    /// Connects, sends the message if there is one, and returns what is received until the agent
    /// has finished.
    async fn receive(
        self,
        server: &HostServer,
        id: &str,
        key: &str,
        latest: i64,
        message: Option<Value>,
    ) -> Vec<Value> {
        let packages = self.packages().unwrap();
        let mut command = match self {
            Self::Node => Command::new("node"),
            Self::Python => Command::new("python3"),
        };
        match self {
            Self::Node => command.args(["-e", NODE_CLIENT]).env("NODE_PATH", packages),
            Self::Python => command
                .args(["-c", PYTHON_CLIENT])
                .env("PYTHONPATH", packages),
        };
        let message = message
            .map(|message| message.to_string())
            .unwrap_or_default();
        command
            .args([&server.url, id, key, &latest.to_string(), &message])
            .stdin(Stdio::null());
        let mut command = tokio::process::Command::from(command);
        let output = tokio::time::timeout(
            tests::glovebox::TEST_TIMEOUT,
            command.kill_on_drop(true).output(),
        );
        let output = output.await.expect("the client ends").unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// A client receives the stored events, then those that follow its own message, each once and in
/// order.
async fn conversation_is_followed(client: SocketClient) {
    if client.packages().is_none() {
        return;
    }
    let home = Home::new();
    let server = HostServer::start(
        &home,
        &home.script(&json!([bash("echo hello"), finish()])),
        &[],
    );
    let created = server.post("/api/conversations", &json!({})).await;
    let id = created["conversation_id"].as_str().unwrap();
    server
        .wait_for_event(id, |event| is_state(event, "awaiting_user_input"))
        .await;
    let message = json!({"action": "message", "args": {"content": "Say hello."}});
    let received = client
        .receive(&server, id, &server.key, -1, Some(message))
        .await;
    let ids: Vec<_> = received
        .iter()
        .filter_map(|event| event["id"].as_u64())
        .collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
    let own = received
        .iter()
        .find(|event| event["action"] == "message")
        .unwrap();
    assert_eq!(
        (&own["source"], &own["args"]["content"]),
        (&json!("user"), &json!("Say hello."))
    );
    assert!(
        received
            .iter()
            .any(|event| event["observation"] == "run" && event["content"] == "hello")
    );
    // As V0, whose page shows what was recalled.
    assert!(!received.iter().any(|event| event["action"] == "recall"));
    assert!(
        received
            .iter()
            .any(|event| event["observation"] == "recall")
    );

    // Everything is stored now: of the states, only the last one is sent, at the end.
    let replayed = client.receive(&server, id, &server.key, -1, None).await;
    let states = replayed
        .iter()
        .filter(|event| event["observation"] == "agent_state_changed");
    assert_eq!(states.count(), 1);
    assert!(is_state(replayed.last().unwrap(), "finished"));
    let rest = client
        .receive(
            &server,
            id,
            &server.key,
            ids[ids.len() - 2].cast_signed(),
            None,
        )
        .await;
    assert_eq!(
        rest.iter()
            .filter_map(|event| event["id"].as_u64())
            .collect::<Vec<_>>(),
        ids[ids.len() - 1..]
    );
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    server.terminate();
    home.assert_nothing_runs();
}

#[tokio::test]
async fn conversation_is_followed_by_the_client_from_npm() {
    conversation_is_followed(SocketClient::Node).await;
}

#[tokio::test]
async fn conversation_is_followed_by_the_client_from_pypi() {
    conversation_is_followed(SocketClient::Python).await;
}

/// V0's page asks the user when it shows such an action.
#[tokio::test]
async fn action_that_awaits_confirmation_follows_the_state() {
    const ACTIONS: usize = 6;
    // A question that follows a decision is sent to a client a second after it.
    const UNTIL_SENT: Duration = Duration::from_millis(1500);
    if npm_packages().is_none() {
        return;
    }
    let home = Home::new();
    home.write(
        ".glovebox/config.toml",
        "[security]\nconfirmation_mode = true\n",
    );
    let action = |number: usize| {
        let file = home.workspace().join(number.to_string());
        let edit = json!({"command": "create", "path": file, "file_text": "text"});
        if number.is_multiple_of(2) {
            tool_call("str_replace_editor", &edit)
        } else {
            bash("true")
        }
    };
    let script: Vec<_> = [json!({"text": "Hello."})]
        .into_iter()
        .chain((0..ACTIONS).map(action))
        .chain([finish()])
        .collect();
    let server = HostServer::start(&home, &home.script(&json!(script)), &[]);
    let id = server.create("Hello.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "awaiting_user_input"))
        .await;
    let message = json!({"action": "message", "args": {"content": "Write it."}});
    let confirm = async {
        let mut last = 0;
        for number in 0..ACTIONS {
            let asked = |event: &Value| {
                is_state(event, "awaiting_user_confirmation") && event["id"].as_u64() > Some(last)
            };
            let events = server.wait_for_event(&id, asked).await;
            last = events.iter().rfind(|event| asked(event)).unwrap()["id"]
                .as_u64()
                .unwrap();
            if number == 0 {
                assert_action_follows_the_state_for_a_late_client(&server, &id).await;
            }
            sleep(UNTIL_SENT).await;
            // The action precedes the state.
            let events = server
                .get(&format!(
                    "/api/conversations/{id}/events?source=agent&limit=100"
                ))
                .await;
            let mut actions = events["events"].as_array().unwrap().iter();
            let action_id = actions
                .rfind(|event| event["id"].as_u64() < Some(last) && event["action"].is_string());
            let action_id = &action_id.unwrap()["id"];
            let args = json!({"agent_state": "user_confirmed", "action_id": action_id});
            let confirmed = json!({"action": "change_agent_state", "args": args});
            server
                .post(&format!("/api/conversations/{id}/events"), &confirmed)
                .await;
        }
    };
    let receive = SocketClient::Node.receive(&server, &id, &server.key, -1, Some(message));
    let (received, ()) = tokio::join!(receive, confirm);
    let mut asked = 0;
    for pair in received.windows(2) {
        if is_state(&pair[0], "awaiting_user_confirmation") {
            let is_shown = pair[1]["args"]["confirmation_state"] == "awaiting_confirmation";
            assert!(is_shown, "{received:#?}");
            asked += 1;
        }
    }
    assert_eq!(asked, ACTIONS, "{received:#?}");
    server.terminate();
}

/// Confirms the first action three times, and the second one once. Prints the time in milliseconds
/// from the first decision to the second question.
const IMPATIENT_CLIENT: &str = r"
const { io } = require('socket.io-client');
const [url, id, key] = process.argv.slice(1);
const query = { conversation_id: id, latest_event_id: -1, session_api_key: key };
const socket = io(url, { transports: ['websocket'], query, reconnection: false });
const confirm = () =>
  socket.emit('oh_user_action', { action: 'change_agent_state', args: { agent_state: 'user_confirmed' } });
let questions = 0, decided, time;
socket.on('oh_event', (event) => {
  if (event.error) {
    console.log(JSON.stringify(event));
    process.exit(1);
  }
  if (event.args?.confirmation_state === 'awaiting_confirmation') {
    questions += 1;
    confirm();
    if (questions === 1) {
      decided = Date.now();
      for (const delay of [0, 150, 600]) setTimeout(confirm, delay);
    } else {
      time = Date.now() - decided;
    }
  }
  if (event.observation === 'run' && questions === 2) {
    console.log(time);
    process.exit(0);
  }
});
";

/// A second click must not approve an action that the user has not seen.
#[tokio::test]
async fn decision_counts_for_an_action_that_was_shown() {
    let Some(packages) = npm_packages() else {
        return;
    };
    let home = Home::new();
    home.write(
        ".glovebox/config.toml",
        "[security]\nconfirmation_mode = true\n",
    );
    let script = json!([
        bash("echo one"),
        bash("echo two"),
        bash("echo three"),
        finish()
    ]);
    let server = HostServer::start(&home, &home.script(&script), &[]);
    let id = server.create("Say it.").await;
    let mut client = tokio::process::Command::new("node");
    client
        .args(["-e", IMPATIENT_CLIENT, &server.url, &id, &server.key])
        .env("NODE_PATH", packages);
    client.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(tests::glovebox::TEST_TIMEOUT, client.output());
    let output = output.await.expect("the client ends").unwrap();
    let time = String::from_utf8(output.stdout).unwrap();
    assert!(
        time.trim().parse::<u64>().is_ok_and(|time| time >= 900),
        "{time}"
    );

    // The same by REST, which may name the action.
    let is_action = |event: &Value, text: &str| event["args"]["command"] == text;
    let events = server
        .wait_for_event(&id, |event| is_action(event, "echo three"))
        .await;
    let [first, third] = ["echo one", "echo three"]
        .map(|text| events.iter().find(|event| is_action(event, text)).unwrap()["id"].clone());
    let asked = |event: &Value| {
        is_state(event, "awaiting_user_confirmation") && event["id"].as_u64() > third.as_u64()
    };
    server.wait_for_event(&id, asked).await;
    let path = format!("/api/conversations/{id}/events");
    let decide = async |action: &Value| {
        let args = json!({"agent_state": "user_confirmed", "action_id": action});
        let decision = json!({"action": "change_agent_state", "args": args});
        server.send(Method::POST, &path, Some(&decision)).await.0
    };
    assert_eq!(
        (decide(&first).await, decide(&third).await),
        (StatusCode::CONFLICT, StatusCode::OK)
    );
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    assert_eq!(decide(&third).await, StatusCode::CONFLICT);
    server.terminate();
}

/// Polls a socket until a text is received. Returns everything received.
async fn poll_until(server: &HostServer, session: &str, received: String, text: &str) -> String {
    poll_until_as(server, &server.key, session, received, text).await
}

/// Polls the socket of a key.
async fn poll_until_as(
    server: &HostServer,
    key: &str,
    session: &str,
    mut received: String,
    text: &str,
) -> String {
    let polling = async {
        while !received.contains(text) {
            let request = server
                .request_without_key(Method::GET, session)
                .header("X-Session-API-Key", key);
            // Between packets, as within a response.
            received.push('\u{1e}');
            received += &request.send().await.unwrap().text().await.unwrap();
        }
        received
    };
    let received = tokio::time::timeout(tests::glovebox::TEST_TIMEOUT, polling).await;
    received.unwrap_or_else(|_| panic!("{text} is not received"))
}

/// V0's page shows its old title until it receives another one.
#[tokio::test]
async fn socket_and_stream_have_the_title_that_is_found() {
    let home = Home::new();
    let agent = home.script(&json!([finish()]));
    let clerk = json!({"model": "clerk", "responses": [{"text": "Repair the login"}]});
    let clerk = home.write("clerk.json", clerk.to_string());
    let config = format!(
        "[core]\ntitle_llm_config = \"clerk\"\n[llm.clerk]\nmodel = \"scripted:{}\"\n",
        clerk.display()
    );
    home.write(".glovebox/config.toml", config);
    let server = HostServer::start(&home, &agent, &[]);
    let created = server.post("/api/conversations", &json!({})).await;
    let id = created["conversation_id"].as_str().unwrap();
    server
        .wait_for_event(id, |event| is_state(event, "awaiting_user_input"))
        .await;
    let (received, session) = server.connect_socket(&server.key, id).await;
    server
        .post(
            &format!("/api/conversations/{id}/message"),
            &json!({"message": "fix login"}),
        )
        .await;
    // The first message is the title until a model has found one, which may be before it is sent.
    let received = poll_until(&server, &session, received, r#""conversation_title":""#).await;
    poll_until(
        &server,
        &session,
        received,
        r#""conversation_title":"Repair the login""#,
    )
    .await;
    let path = format!("/api/v2/conversations/{id}/stream");
    let mut events = tests::server_sent_events::ServerSentEvents::new(
        server.request(Method::GET, &path).send().await.unwrap(),
    );
    while events.next().await["data"]["title"] != "Repair the login" {}
}

#[tokio::test]
async fn stop_disconnects_the_sockets_of_its_conversation() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish(), finish()])), &[]);
    let (id, other) = (
        server.create("Finish.").await,
        server.create("Finish.").await,
    );
    for id in [&id, &other] {
        server
            .wait_for_event(id, |event| is_state(event, "finished"))
            .await;
    }
    let (received, session) = server.connect_socket(&server.key, &id).await;
    let received = poll_until(&server, &session, received, "finished").await;
    let (other_received, other_session) = server.connect_socket(&server.key, &other).await;
    poll_until(&server, &other_session, other_received, "finished").await;
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    // The packet of a disconnection.
    poll_until(&server, &session, received, "\u{1e}41").await;
    let count = async |id: &str| {
        server.get(&format!("/api/conversations/{id}")).await["num_connections"].clone()
    };
    assert_eq!(
        (count(&id).await, count(&other).await),
        (json!(0), json!(1))
    );
}

/// V0's page offers its input again.
#[tokio::test]
async fn stopped_conversation_awaits_input_once_it_is_started() {
    let home = Home::new();
    let server = HostServer::start(
        &home,
        &home.script(&json!([bash("sleep 60"), {"text": "Again."}])),
        &[],
    );
    let id = server.create("Work.").await;
    server
        .wait_for_event(&id, |event| event["action"] == "run")
        .await;
    let path = format!("/api/conversations/{id}");
    server.post(&format!("{path}/stop"), &json!({})).await;
    server
        .post(&format!("{path}/start"), &json!({"providers_set": []}))
        .await;
    let events = server
        .wait_for_event(&id, |event| is_state(event, "awaiting_user_input"))
        .await;
    let last = events
        .iter()
        .rfind(|event| event["observation"] == "agent_state_changed")
        .unwrap();
    assert_eq!(last["extras"]["agent_state"], "awaiting_user_input");
    // Its sandbox is started, so that files can be uploaded before the next message.
    let files = format!("{path}/list-files");
    let has_files = async || server.send(Method::GET, &files, None).await.0 == StatusCode::OK;
    let deadline = Instant::now() + Duration::from_secs(60);
    while !has_files().await {
        assert!(Instant::now() < deadline, "there is no sandbox");
        sleep(Duration::from_millis(50)).await;
    }
    server
        .post(&format!("{path}/message"), &json!({"message": "Go on."}))
        .await;
    let events = server
        .wait_for_event(&id, |event| event["args"]["content"] == "Again.")
        .await;
    // The notice of the new sandbox precedes the message, and V0's page shows it as no error.
    let position = |is_it: &dyn Fn(&Value) -> bool| events.iter().position(is_it).unwrap();
    let notice = position(&|event| event["observation"] == "success");
    assert!(
        notice < position(&|event| event["args"]["content"] == "Go on."),
        "{events:#?}"
    );
    server.terminate();
}

/// As in V0, whose page sends `undefined` if it has no event.
#[tokio::test]
async fn latest_event_that_is_no_number_replays_all() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let id = server.create("Finish.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    for latest in ["undefined", "null", "", "NaN", "1.5", "-7"] {
        let query = format!("{id}&latest_event_id={latest}&latest_event_id=100");
        let (mut received, session) = server.connect_socket(&server.key, &query).await;
        while !received.contains("finished") {
            received += &server
                .request(Method::GET, &session)
                .send()
                .await
                .unwrap()
                .text()
                .await
                .unwrap();
        }
        assert!(received.contains("Finish."), "{latest}: {received}");
    }
    // One beyond the end leaves out what there is, and nothing that follows.
    let query = format!("{id}&latest_event_id=1000000");
    let (received, session) = server.connect_socket(&server.key, &query).await;
    let message = json!({"message": "Later."});
    server
        .post(&format!("/api/conversations/{id}/message"), &message)
        .await;
    let received = poll_until(&server, &session, received, "Later.").await;
    // The title has the same text.
    let first = r#""content":"Finish.""#;
    assert!(!received.contains(first), "{received}");
}

async fn assert_action_follows_the_state_for_a_late_client(server: &HostServer, id: &str) {
    let (mut received, session) = server.connect_socket(&server.key, id).await;
    let action = |received: &str| received.find(r#""confirmation_state":"awaiting_confirmation""#);
    while action(&received).is_none() {
        received += &server
            .request(Method::GET, &session)
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
    }
    let state = received.find(r#""agent_state":"awaiting_user_confirmation""#);
    assert!(state.is_some() && state < action(&received), "{received}");
}

#[tokio::test]
async fn connection_is_rejected_without_key_or_conversation() {
    if npm_packages().is_none() {
        return;
    }
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let id = server.create("Finish.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    for (id, key, problem) in [
        // The response 401 to the handshake.
        (id.as_str(), "wrong", "websocket error"),
        (id.as_str(), "", "websocket error"),
        ("none", server.key.as_str(), "no conversation none"),
        ("", server.key.as_str(), "conversation_id"),
    ] {
        let received = SocketClient::Node.receive(&server, id, key, -1, None).await;
        let error = received[0]["connect_error"].as_str().unwrap();
        assert!(
            received.len() == 1 && error.contains(problem),
            "{id} {key}: {error}"
        );
    }
}

/// Sends the actions in its last argument at once, and prints the acknowledgement of each.
const ACKNOWLEDGED_CLIENT: &str = r"
const { io } = require('socket.io-client');
const [url, id, key, actions] = process.argv.slice(1);
const query = { conversation_id: id, session_api_key: key };
const socket = io(url, { transports: ['websocket'], query, reconnection: false });
socket.on('connect', async () => {
  const sent = JSON.parse(actions).map((action) => socket.emitWithAck('oh_user_action', action));
  console.log(JSON.stringify(await Promise.all(sent)));
  process.exit(0);
});
";

#[tokio::test]
async fn actions_of_a_socket_are_applied_in_order() {
    let Some(packages) = npm_packages() else {
        return;
    };
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!(vec![finish(); 40])), &[]);
    let created = server.post("/api/conversations", &json!({})).await;
    let id = created["conversation_id"].as_str().unwrap();
    let names: Vec<_> = (0..20).map(|number| format!("message {number}")).collect();
    let message = |name: &String| json!({"action": "message", "args": {"content": name}});
    let actions: Vec<_> = names
        .iter()
        .map(message)
        .chain([json!("text"), json!(null)])
        .collect();
    let mut client = tokio::process::Command::new("node");
    client.args([
        "-e",
        ACKNOWLEDGED_CLIENT,
        &server.url,
        id,
        &server.key,
        &json!(actions).to_string(),
    ]);
    client
        .env("NODE_PATH", packages)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(tests::glovebox::TEST_TIMEOUT, client.output()).await;
    let output = output.expect("all actions are acknowledged").unwrap();
    let results: Vec<Value> = serde_json::from_slice(&output.stdout).expect("acknowledgements");
    let is_applied: Vec<_> = results
        .iter()
        .map(|result| result["success"] == true)
        .collect();
    assert_eq!(
        is_applied,
        [[true; 20].as_slice(), &[false; 2]].concat(),
        "{results:?}"
    );
    let events = server
        .get(&format!(
            "/api/conversations/{id}/events?source=user&limit=100"
        ))
        .await;
    let events = events["events"].as_array().unwrap();
    let contents = events
        .iter()
        .filter_map(|event| event["args"]["content"].as_str());
    assert_eq!(contents.collect::<Vec<_>>(), names);
}

/// Prints a line for each connection.
const RECONNECTING_NODE_CLIENT: &str = r"
const { io } = require('socket.io-client');
const [url, id, key, transport] = process.argv.slice(1);
const query = { conversation_id: id, session_api_key: key };
const socket = io(url, { transports: [transport], query, reconnectionDelay: 100, reconnectionDelayMax: 200 });
socket.on('connect', () => console.log('connected'));
";

/// Prints a line for each connection.
const RECONNECTING_PYTHON_CLIENT: &str = r"
import asyncio, sys, urllib.parse
import socketio
url, id, key, transport = sys.argv[1:]
query = urllib.parse.urlencode({'conversation_id': id, 'session_api_key': key})

async def main():
    client = socketio.AsyncClient(reconnection_delay=0.1, reconnection_delay_max=0.2)

    @client.on('connect')
    async def connect():
        print('connected', flush=True)

    await client.connect(url + '?' + query, transports=[transport])
    await asyncio.Event().wait()

asyncio.run(main())
";

/// Clients do not connect again after a packet of a disconnection, but after the end of their
/// transport.
#[tokio::test]
async fn clients_connect_again_after_a_restart() {
    let Some(npm_packages) = npm_packages() else {
        return;
    };
    let Some(pypi_packages) = pypi_packages() else {
        return;
    };
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    let server = HostServer::start(&home, &model, &[]);
    let id = server.create("Finish.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    let mut clients = Vec::new();
    for (program, option, client) in [
        ("node", "-e", RECONNECTING_NODE_CLIENT),
        ("python3", "-c", RECONNECTING_PYTHON_CLIENT),
    ] {
        for transport in ["websocket", "polling"] {
            let mut command = tokio::process::Command::new(program);
            command.args([option, client, &server.url, &id, &server.key, transport]);
            command
                .env("NODE_PATH", &npm_packages)
                .env("PYTHONPATH", &pypi_packages);
            command.env("NO_PROXY", "127.0.0.1");
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .kill_on_drop(true);
            let mut client = command.spawn().unwrap();
            let lines = BufReader::new(client.stdout.take().unwrap()).lines();
            clients.push((format!("{program} {transport}"), client, lines));
        }
    }
    let wait_for_connections =
        async |clients: &mut Vec<(String, Child, Lines<BufReader<ChildStdout>>)>| {
            for (name, _, lines) in clients {
                let line =
                    tokio::time::timeout(tests::glovebox::TEST_TIMEOUT, lines.next_line()).await;
                let line = line
                    .unwrap_or_else(|_| panic!("{name} does not connect"))
                    .unwrap();
                assert_eq!(line.as_deref(), Some("connected"), "{name}");
            }
        };
    wait_for_connections(&mut clients).await;
    let address = server.url.strip_prefix("http://").unwrap().to_owned();
    server.terminate();
    // The requests of the clients that poll have ended.
    let log = std::fs::read_to_string(home.path().join("serve.log")).unwrap();
    assert!(!log.contains("aborting requests"), "{log}");
    let arguments = [
        "serve",
        "--listen",
        &address,
        "--runtime",
        "local",
        "--rate-limit",
        "off",
        "-l",
        &model,
    ];
    let _server = HostServer::from_command(&home, &mut home.glovebox(&arguments));
    wait_for_connections(&mut clients).await;
}

/// Starts the server of a home again.
fn restart(server: HostServer, home: &Home, model: &str) -> HostServer {
    server.terminate();
    HostServer::start(home, model, &[])
}

/// V0's page disables its input while the conversation does not run.
#[tokio::test]
async fn socket_opens_its_conversation_if_its_key_may_write() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    let server = HostServer::start(&home, &model, &[]);
    let key = home.add_user("ada");
    let (reader, _) = home.add_key("ada", &["--scope", "read"]);
    let request = json!({"initial_user_msg": "Finish."});
    let (_, created) = server
        .send_as(&key, Method::POST, "/api/conversations", Some(&request))
        .await;
    let id = created["conversation_id"].as_str().unwrap();
    server
        .wait_for_event(id, |event| is_state(event, "finished"))
        .await;
    let server = restart(server, &home, &model);
    let path = format!("/api/conversations/{id}");
    let status = async || server.get(&path).await["status"].clone();
    for key in [&reader, &key] {
        assert_eq!(status().await, "STOPPED");
        let (received, session) = server.connect_socket(key, id).await;
        poll_until_as(&server, key, &session, received, "finished").await;
    }
    let opened = async {
        while status().await != "RUNNING" {
            sleep(Duration::from_millis(50)).await;
        }
    };
    let opened = tokio::time::timeout(tests::glovebox::TEST_TIMEOUT, opened).await;
    opened.expect("the conversation runs");
    server.post(&format!("{path}/stop"), &json!({})).await;
    assert_eq!(status().await, "STOPPED");
    server.terminate();
    home.assert_nothing_runs();
}

#[tokio::test]
async fn question_before_a_restart_is_decided_after_it() {
    let home = Home::new();
    home.write(
        ".glovebox/config.toml",
        "[security]\nconfirmation_mode = true\n",
    );
    let model = home.script(&json!([bash("echo approved"), finish()]));
    let server = HostServer::start(&home, &model, &[]);
    let id = server.create("Say it.").await;
    let events = server
        .wait_for_event(&id, |event| is_state(event, "awaiting_user_confirmation"))
        .await;
    let latest = &events.last().unwrap()["id"];
    let server = restart(server, &home, &model);
    let query = format!("{id}&latest_event_id={latest}");
    let (received, session) = server.connect_socket(&server.key, &query).await;
    // While the conversation is opened.
    let decision = r#"42["oh_user_action",{"action":"change_agent_state","args":{"agent_state":"user_confirmed"}}]"#;
    let request = server.request(Method::POST, &session).body(decision);
    assert_eq!(request.send().await.unwrap().status(), 200);
    poll_until(&server, &session, received, r#""content":"approved""#).await;
    server.terminate();
}

#[tokio::test]
async fn handshake_without_key_is_rejected_before_its_body() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let path = "/socket.io/?EIO=4&transport=polling";
    for path in [
        path.to_owned(),
        format!("{path}&session_api_key=wrong"),
        format!("{path}&sid=none"),
    ] {
        assert_eq!(server.status_with_key(&path, None).await, 401, "{path}");
    }
    assert_eq!(server.status_with_key(path, Some(&server.key)).await, 200);
    let query = format!("{path}&session_api_key={}", server.key);
    assert_eq!(server.status_with_key(&query, None).await, 200);
}

/// The id of a session is in the addresses of requests, which proxies write to their logs.
#[tokio::test]
async fn session_belongs_to_the_key_that_opened_it() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let other_key = home.add_user("ada");
    let id = server.create("Finish.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    let (connected, session) = server.connect_socket(&server.key, &id).await;
    assert!(connected.starts_with("40"), "{connected}");
    let send = async |method: Method, key: &str, session: &str| {
        let request = server
            .request_without_key(method, session)
            .header("X-Session-API-Key", key);
        let response = request.body("3").send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let unknown = send(Method::GET, &other_key, &format!("{session}x")).await;
    assert_eq!(unknown.0, 400, "{unknown:?}");
    for method in [Method::GET, Method::POST] {
        assert_eq!(
            send(method.clone(), &other_key, &session).await,
            unknown,
            "{method}"
        );
    }
    assert_eq!(send(Method::POST, &server.key, &session).await.0, 200);
    server.terminate();
}
