//! Users against each other: on every route, on sockets, and at the ports of a sandbox.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::header::{LOCATION, SET_COOKIE};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::glovebox::{Home, TEST_TIMEOUT, bash, finish};
use tests::host_server::{HostServer, is_state};
use tests::terminal::TestTerminal;

use super::ports;

/// The routes of a conversation, each with requests that differ in what is wrong with them.
const ROUTES: [(&str, &str, &[&str]); 23] = [
    ("GET", "", &[""]),
    (
        "PATCH",
        "",
        &[r#"{"title": "Mine"}"#, "[]", r#"{"title": ""}"#],
    ),
    ("DELETE", "", &[""]),
    ("POST", "/start", &["{}", "[]"]),
    ("POST", "/stop", &["{}"]),
    ("GET", "/config", &[""]),
    ("GET", "/events", &["", "?limit=x"]),
    (
        "POST",
        "/events",
        &[
            r#"{"action": "message", "args": {"content": "Hello."}}"#,
            "{}",
            "[",
        ],
    ),
    (
        "POST",
        "/message",
        &[r#"{"message": "Hello."}"#, r#"{"message": ""}"#],
    ),
    ("GET", "/trajectory", &[""]),
    ("GET", "/web-hosts", &[""]),
    ("GET", "/vscode-url", &[""]),
    ("GET", "/list-files", &["", "?path=.."]),
    ("GET", "/select-file", &["?file=a", ""]),
    ("GET", "/zip-directory", &[""]),
    ("POST", "/upload-files", &["", "x"]),
    ("GET", "/git/changes", &[""]),
    ("GET", "/git/diff", &["?path=a", ""]),
    ("GET", "/microagents", &[""]),
    ("GET", "/remember-prompt", &["?event_id=0", "?event_id=x"]),
    (
        "POST",
        "/submit-feedback",
        &[
            r#"{"email": "", "version": "", "permissions": "private", "polarity": "positive", "feedback": "positive", "token": ""}"#,
            "{}",
        ],
    ),
    ("POST", "/exp-config", &["{}", "[]"]),
    ("GET", "/security/{*path}", &[""]),
];

/// The same for Glovebox's own API.
const V2_ROUTES: [(&str, &str, &[&str]); 23] = [
    ("GET", "", &[""]),
    ("DELETE", "", &[""]),
    (
        "POST",
        "/fork",
        &["{}", r#"{"last_event": 100000}"#, r#"{"last": 1}"#, "["],
    ),
    (
        "POST",
        "/commands",
        &[
            r#"{"id": "1", "command": {"kind": "send_message", "content": "Hello."}}"#,
            r#"{"command": {"kind": "stop"}}"#,
            r#"{"command": {"kind": "set_confirmation", "policy": {"ask": "never"}}}"#,
            r#"{"command": {"kind": "none"}}"#,
            "[",
        ],
    ),
    ("GET", "/events", &["", "?limit=0", "?from=x"]),
    (
        "GET",
        "/trajectory",
        &["", "?with_screenshots=true", "?with_screenshots=x"],
    ),
    ("GET", "/files", &["", "?path=..", "?limit=0", "?x"]),
    (
        "DELETE",
        "/files",
        &["?path=a&recursive=true", "?path=", ""],
    ),
    (
        "GET",
        "/files/content",
        &["?path=a", "?path=a&offset=x", ""],
    ),
    ("PUT", "/files/content", &["?path=a", ""]),
    (
        "POST",
        "/files/folder",
        &[r#"{"path": "a"}"#, r#"{"path": ".."}"#, "{}", "["],
    ),
    (
        "POST",
        "/files/move",
        &[r#"{"from": "a", "to": "b"}"#, r#"{"from": "a"}"#, "["],
    ),
    ("GET", "/files/archive", &["", "?path=a", "?x=y"]),
    ("GET", "/git/changes", &["", "?base=head", "?base=x"]),
    ("GET", "/git/diff", &["", "?path=a&base=head", "?x=y"]),
    ("GET", "/git/versions", &["?path=a", ""]),
    ("GET", "/sandbox", &[""]),
    ("GET", "/sandbox/usage", &[""]),
    ("GET", "/sandbox/ports", &[""]),
    ("GET", "/sandbox/logs", &[""]),
    ("POST", "/sandbox/pause", &["", "{}"]),
    ("GET", "/stream", &["", "?after=x"]),
    ("POST", "/stream", &[""]),
];

/// Returns all routes, each with the version in its path.
fn routes() -> impl Iterator<
    Item = (
        &'static str,
        &'static (&'static str, &'static str, &'static [&'static str]),
    ),
> {
    let v2 = V2_ROUTES.iter().map(|route| ("/v2", route));
    ROUTES.iter().map(|route| ("", route)).chain(v2)
}

/// A server with the users ada and ben, and their keys.
struct Users {
    server: HostServer,
    ada: String,
    ben: String,
}

fn start(home: &Home, responses: &Value) -> Users {
    let server = HostServer::start(home, &home.script(responses), &[]);
    // While the server runs.
    let [ada, ben] = ["ada", "ben"].map(|name| home.add_user(name));
    Users { server, ada, ben }
}

impl Users {
    async fn create(&self, key: &str) -> String {
        let body = json!({"initial_user_msg": "Go."});
        let (status, created) = self
            .server
            .send_as(key, Method::POST, "/api/conversations", Some(&body))
            .await;
        assert_eq!(status, 200, "{created}");
        created["conversation_id"].as_str().unwrap().to_owned()
    }

    async fn ids(&self, key: &str) -> Vec<String> {
        let (_, page) = self
            .server
            .send_as(key, Method::GET, "/api/conversations", None)
            .await;
        let results = page["results"].as_array().unwrap();
        results
            .iter()
            .map(|info| info["conversation_id"].as_str().unwrap().to_owned())
            .collect()
    }

    async fn status(&self, key: &str, method: Method, path: &str) -> StatusCode {
        self.server
            .send_as(key, method, path, Some(&json!({})))
            .await
            .0
    }
}

/// Returns the paths of routes that name a conversation, from the source of the server.
fn conversation_routes(folder: &Path) -> Vec<String> {
    let mut routes = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            routes.extend(conversation_routes(&path));
        } else {
            let source = std::fs::read_to_string(&path).unwrap();
            let literals = source
                .split('"')
                .filter(|text| text.starts_with('/') && !text.contains('\n'));
            routes.extend(
                literals
                    .filter(|text| text.contains("conversations/{"))
                    .map(ToOwned::to_owned),
            );
        }
    }
    routes
}

#[test]
fn every_route_of_a_conversation_is_in_the_table() {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../orchestrator/server/src");
    let found = conversation_routes(&source);
    assert!(found.len() >= 20, "{found:?}");
    for route in found {
        let (start, end) = route.split_once("}").unwrap();
        let version = if start.contains("/v2/") { "/v2" } else { "" };
        assert!(
            routes().any(|(known, (_, path, _))| (known, *path) == (version, end)),
            "add {route} to the table"
        );
    }
}

#[tokio::test]
async fn conversation_of_another_user_is_like_none() {
    let home = Home::new();
    let users = start(&home, &json!([finish()]));
    let id = users.create(&users.ada).await;
    let events = format!("/api/conversations/{id}/events");
    let read = async || {
        users
            .server
            .send_as(&users.ada, Method::GET, &events, None)
            .await
            .1
    };
    users
        .server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    let before = read().await;
    let unknown = "0".repeat(id.len());
    for (version, (method, route, inputs)) in routes() {
        for input in *inputs {
            let send = async |id: &str| {
                let query = if input.starts_with('?') { input } else { "" };
                let path = format!("/api{version}/conversations/{id}{route}{query}");
                let request = users
                    .server
                    .request_without_key(method.parse().unwrap(), &path);
                let request = request.header("Authorization", format!("bearer {}", users.ben));
                let response = request.body(input.to_string()).send().await.unwrap();
                let (status, headers) = (response.status(), response.headers().clone());
                let text = response.text().await.unwrap().replace(id, "ID");
                let headers: Vec<_> = headers
                    .keys()
                    .map(|name| name.as_str().to_owned())
                    .collect();
                (status, headers, text)
            };
            let (found, expected) = (send(&id).await, send(&unknown).await);
            assert_eq!(found, expected, "{method} {route} {input}");
            let is_known_answer =
                found.0.is_client_error() || ["null", "false"].contains(&found.2.as_str());
            assert!(is_known_answer, "{method} {route} {input}: {found:?}");
        }
    }
    for key in [&users.ben, &users.server.key] {
        let (packet, _) = users.server.connect_socket(key, &id).await;
        assert_eq!(packet.starts_with("44"), key == &users.ben, "{packet}");
    }
    let of_unknown = users.server.connect_socket(&users.ben, &unknown).await.0;
    assert_eq!(
        users
            .server
            .connect_socket(&users.ben, &id)
            .await
            .0
            .replace(&id, &unknown),
        of_unknown
    );
    assert_eq!(read().await, before, "nothing has changed");

    let own = users.create(&users.ben).await;
    let mut all = vec![own.clone(), users.server.create("Go.").await];
    assert_eq!(
        (users.ids(&users.ada).await, users.ids(&users.ben).await),
        (vec![id.clone()], vec![own])
    );
    all.push(id.clone());
    let mut listed = users.ids(&users.server.key).await;
    listed.sort();
    all.sort();
    assert_eq!(listed, all, "the operator sees all");
    let path = format!("/api/conversations/{id}");
    let deleted = users
        .server
        .send_as(&users.ada, Method::DELETE, &path, None)
        .await;
    assert_eq!(deleted, (StatusCode::OK, json!(true)));
}

#[tokio::test]
async fn users_get_only_what_the_operator_shares() {
    let home = Home::new();
    home.write(
        ".glovebox/config.toml",
        "[core]\nshare_with_users = ['SHARED']\n[secrets]\nDEPLOY_KEY = 'the key for deploying'\n\
         [sandbox]\nruntime_startup_env_vars = { SHARED = '1', PRIVATE = '2' }\n",
    );
    let command = bash("echo ${SHARED:-none} ${PRIVATE:-none}; printf %s \"$DEPLOY_KEY\" | wc -c");
    let users = start(&home, &json!([command, finish()]));
    let output = async |id: &str| {
        let events = users
            .server
            .wait_for_event(id, |event| is_state(event, "finished"))
            .await;
        let run = events
            .iter()
            .find(|event| event["observation"] == "run")
            .unwrap();
        run["content"]
            .as_str()
            .unwrap()
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        output(&users.create(&users.ada).await).await,
        ["1", "none", "0"]
    );
    assert_eq!(
        output(&users.server.create("Go.").await).await,
        ["1", "2", "21"],
        "the operator's own"
    );
    users.server.terminate();
    drop(HostServer::start(
        &home,
        &home.script(&json!([finish()])),
        &[],
    ));
    let log = std::fs::read_to_string(home.path().join("serve.log")).unwrap();
    assert!(
        log.contains("users do not get DEPLOY_KEY, PRIVATE: share_with_users"),
        "{log}"
    );
}

#[tokio::test]
async fn conversation_has_the_secrets_of_its_owner() {
    let home = Home::new();
    let command = bash("printf %s \"$OWN\" | sha256sum");
    let responses = json!([command, finish(), command, finish()]);
    let mut users = start(&home, &responses);
    for key in [&users.ada, &users.ben] {
        let (status, _) = users
            .server
            .send_as(key, Method::GET, "/api/settings", None)
            .await;
        assert_eq!(status, 404, "no settings yet");
        let value = if key == &users.ada {
            "the value of ada"
        } else {
            "the value of ben"
        };
        let secret = json!({"name": "OWN", "value": value});
        let (status, created) = users
            .server
            .send_as(key, Method::POST, "/api/secrets", Some(&secret))
            .await;
        assert_eq!(status, 201, "{created}");
    }
    assert_eq!(
        users.server.get("/api/secrets").await,
        json!({"custom_secrets": []}),
        "the operator's"
    );
    let ada = users.ada.clone();
    let created = [users.create(&ada).await, users.create(&users.ben).await];
    let outputs = async |server: &HostServer, id: &str, finished: usize| {
        let polling = async {
            loop {
                let events = server
                    .wait_for_event(id, |event| is_state(event, "finished"))
                    .await;
                if events
                    .iter()
                    .filter(|event| is_state(event, "finished"))
                    .count()
                    == finished
                {
                    return events;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let events = tokio::time::timeout(TEST_TIMEOUT, polling)
            .await
            .expect("the agent finishes");
        let runs = events.iter().filter(|event| event["observation"] == "run");
        runs.map(|run| run["content"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let mut first = Vec::new();
    for id in &created {
        first.push(outputs(&users.server, id, 1).await.remove(0));
    }
    assert_ne!(first[0], first[1]);
    let Users { server, .. } = users;
    server.terminate();
    // Also when they are opened again, by the operator.
    users = Users {
        server: HostServer::start(&home, &home.script(&responses), &[]),
        ada: String::new(),
        ben: String::new(),
    };
    for (id, first) in created.iter().zip(&first) {
        users
            .server
            .post(
                &format!("/api/conversations/{id}/message"),
                &json!({"message": "Again."}),
            )
            .await;
        assert_eq!(
            outputs(&users.server, id, 2).await,
            [first.clone(), first.clone()]
        );
    }
    let mut asked = TestTerminal::start(&home.glovebox(&["user", "rm", "ada"]));
    asked.wait_for("Remove the user ada, with all keys, settings and secrets? [y/N] ");
    asked.type_text("\n");
    asked.wait_for_end(1);
    assert_eq!(users.status(&ada, Method::GET, "/api/secrets").await, 200);
    let removed = home.glovebox(&["user", "rm", "ada"]).output().unwrap();
    assert!(
        removed.status.success(),
        "{}",
        String::from_utf8_lossy(&removed.stderr)
    );
    assert_eq!(users.status(&ada, Method::GET, "/api/secrets").await, 401);
    let restored = home
        .glovebox(&["user", "add", "ada", "--restore"])
        .output()
        .unwrap();
    assert!(
        restored.status.success(),
        "{}",
        String::from_utf8_lossy(&restored.stderr)
    );
    let ada = home.add_key("ada", &[]).0;
    let secrets = users
        .server
        .send_as(&ada, Method::GET, "/api/secrets", None)
        .await
        .1;
    assert_eq!(
        secrets,
        json!({"custom_secrets": []}),
        "removed with the user"
    );
    assert_eq!(users.ids(&ada).await, [created[0].clone()]);
}

#[tokio::test]
async fn read_only_key_changes_nothing() {
    let home = Home::new();
    let users = start(&home, &json!([finish()]));
    let id = users.create(&users.ada).await;
    users
        .server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    let (reader, _) = home.add_key("ada", &["--scope", "read"]);
    let path = |route: &str| format!("/api/conversations/{id}{route}");
    for route in ["", "/events", "/trajectory", "/config", "/list-files"] {
        assert_eq!(
            users.status(&reader, Method::GET, &path(route)).await,
            200,
            "{route}"
        );
    }
    for (version, (method, route, _)) in routes().filter(|(_, (method, ..))| *method != "GET") {
        let path = format!("/api{version}/conversations/{id}{route}");
        let (status, error) = users
            .server
            .send_as(&reader, method.parse().unwrap(), &path, None)
            .await;
        assert_eq!(
            (status.as_u16(), &error["msg_id"]),
            (403, &json!("AUTH$READ_ONLY_KEY")),
            "{method} {route}"
        );
    }
    for (method, path) in [
        (Method::GET, path("/web-hosts")),
        (Method::POST, "/api/conversations".to_owned()),
        (Method::POST, "/api/settings".to_owned()),
        (Method::POST, "/api/secrets".to_owned()),
        (Method::DELETE, "/api/secrets/a".to_owned()),
        (Method::PATCH, "/api/v2/settings".to_owned()),
        (Method::PUT, "/api/v2/secrets/a".to_owned()),
        (Method::DELETE, "/api/v2/secrets/a".to_owned()),
    ] {
        assert_eq!(users.status(&reader, method, &path).await, 403, "{path}");
    }
    let (packet, query) = users.server.connect_socket(&reader, &id).await;
    assert!(packet.starts_with("40"), "{packet}");
    let message = r#"420["oh_user_action",{"action":"message","args":{"content":"Hello."}}]"#;
    let send = |method: Method, body: &'static str| {
        let request = users
            .server
            .request_without_key(method, &query)
            .header("X-Session-API-Key", &reader);
        request.body(body).send()
    };
    assert_eq!(send(Method::POST, message).await.unwrap().status(), 200);
    let acknowledged = async {
        loop {
            let packets = send(Method::GET, "").await.unwrap().text().await.unwrap();
            if let Some(ack) = packets
                .split('\u{1e}')
                .find(|packet| packet.starts_with("430"))
            {
                return ack.to_owned();
            }
        }
    };
    let ack = tokio::time::timeout(TEST_TIMEOUT, acknowledged)
        .await
        .expect("the action is acknowledged");
    assert!(ack.contains("may only read"), "{ack}");
}

#[tokio::test]
async fn revoked_key_ends_sessions_streams_and_ports() {
    let home = Home::new();
    let mut key_id = String::new();
    let running = ports::start_as(&home, |_| {
        home.add_user("ada");
        let (key, id) = home.add_key("ada", &["--expires", "1d"]);
        key_id = id;
        key
    });
    let Some(running) = running.await else { return };
    let ben = home.add_user("ben");
    let (server, ada) = (&running.server, running.server.key.clone());
    let get_port = |header: &str, value: &str| {
        running
            .request(Method::GET, "/")
            .header(header, value)
            .send()
    };
    let cookie = running.open().await;
    assert_eq!(get_port("Cookie", &cookie).await.unwrap().status(), 200);
    assert_eq!(
        get_port("X-Session-API-Key", &ada).await.unwrap().status(),
        200
    );
    // Another user's key opens neither this port nor one that does not exist.
    let of_none = running
        .server
        .request_without_key(Method::GET, "/")
        .header("X-Session-API-Key", &ben);
    let of_none = of_none
        .header("Host", format!("80-{}.localhost", "0".repeat(32)))
        .send()
        .await
        .unwrap();
    let of_ada = get_port("X-Session-API-Key", &ben).await.unwrap();
    assert_eq!(
        (of_ada.status().as_u16(), of_none.status().as_u16()),
        (401, 401)
    );
    assert_eq!(of_ada.text().await.unwrap(), of_none.text().await.unwrap());
    // The program does not see the key of a user.
    let seen: Value = get_port("Authorization", &format!("bearer {ada}"))
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(seen["authorization"], Value::Null);
    let several = running
        .request(Method::GET, "/")
        .header("Cookie", &cookie)
        .header("Authorization", "Bearer other");
    let several = several.header("Authorization", format!("Bearer\t{ada}"));
    let seen: Value = several.send().await.unwrap().json().await.unwrap();
    assert_eq!(seen["authorization"], Value::Null);

    let stream = format!("/api/v2/conversations/{}/stream", running.conversation);
    let mut stream = server.request(Method::GET, &stream).send().await.unwrap();
    assert!(stream.chunk().await.unwrap().is_some());
    let (packet, query) = server.connect_socket(&ada, &running.conversation).await;
    assert!(packet.starts_with("40"), "{packet}");

    let revoked = home
        .glovebox(&["user", "key", "revoke", &key_id])
        .output()
        .unwrap();
    assert!(
        revoked.status.success(),
        "{}",
        String::from_utf8_lossy(&revoked.stderr)
    );
    assert_eq!(
        server.send(Method::GET, "/api/conversations", None).await.0,
        401,
        "at once"
    );
    assert_eq!(get_port("Cookie", &cookie).await.unwrap().status(), 401);
    let path = running
        .link
        .split_once(".localhost")
        .unwrap()
        .1
        .split_once('/')
        .unwrap()
        .1;
    assert_eq!(
        running
            .request(Method::GET, &format!("/{path}"))
            .send()
            .await
            .unwrap()
            .status(),
        401
    );
    let socket = server
        .request_without_key(Method::GET, &query)
        .header("X-Session-API-Key", &ada);
    assert_eq!(socket.send().await.unwrap().status(), 401);
    let ended = async { while let Ok(Some(_)) = stream.chunk().await {} };
    tokio::time::timeout(TEST_TIMEOUT, ended)
        .await
        .expect("the stream ends");
}

/// Starts a server with a page, whose operator accepts sessions at `127.0.0.1`.
fn start_with_page(home: &Home) -> HostServer {
    let folder = home.path().join("page");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("index.html"), "<p>page").unwrap();
    let arguments = [
        "--allow-host",
        "127.0.0.1",
        "--static",
        folder.to_str().unwrap(),
    ];
    HostServer::start(home, &home.script(&json!([finish()])), &arguments)
}

/// A page of a sibling domain can set the cookie of another user, before or after that of the
/// browser's user.
#[tokio::test]
async fn sessions_of_several_users_are_none() {
    let home = Home::new();
    let server = start_with_page(&home);
    let sign_in = async |key: &str| {
        let form = server
            .request_without_key(Method::POST, "/sign-in")
            .body(format!("key={key}"));
        let form = form.header("Content-Type", "application/x-www-form-urlencoded");
        let response = form.send().await.unwrap();
        response.headers()[SET_COOKIE]
            .to_str()
            .unwrap()
            .split(';')
            .next()
            .unwrap()
            .to_owned()
    };
    let key = home.add_user("ada");
    let [ada, again] = [sign_in(&key).await, sign_in(&key).await];
    let ben = sign_in(&home.add_user("ben")).await;
    let status = async |cookies: &[&str]| {
        let request = server.request_without_key(Method::GET, "/api/secrets");
        request
            .header("Cookie", cookies.join("; "))
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    };
    let invalid = "glovebox-session=invalid";
    assert_eq!(
        (
            status(&[&ada, &again]).await,
            status(&[invalid, &ada]).await
        ),
        (200, 200)
    );
    assert_eq!(
        (status(&[&ben, &ada]).await, status(&[&ada, &ben]).await),
        (401, 401)
    );
    // The other user's is among those that are checked.
    assert_eq!(status(&[&ben, invalid, invalid, invalid, &ada]).await, 401);
    let out = server
        .request_without_key(Method::POST, "/sign-out")
        .header("Cookie", format!("{ben}; {ada}"));
    assert_eq!(out.send().await.unwrap().status(), 303);
    assert_eq!(
        (
            status(&[&ben]).await,
            status(&[&ada]).await,
            status(&[&again]).await
        ),
        (401, 401, 200)
    );
}

#[tokio::test]
async fn session_of_a_user_survives_a_restart_until_sign_out() {
    let home = Home::new();
    let server = start_with_page(&home);
    home.add_user("ada");
    let (key, key_id) = home.add_key("ada", &[]);
    let sign_in = async |server: &HostServer, key: &str| {
        let form = server
            .request_without_key(Method::POST, "/sign-in")
            .body(format!("key={key}"));
        let form = form.header("Content-Type", "application/x-www-form-urlencoded");
        let response = form.send().await.unwrap();
        let cookie = response
            .headers()
            .get(SET_COOKIE)
            .map(|cookie| cookie.to_str().unwrap().to_owned());
        cookie.map(|cookie| cookie.split(';').next().unwrap().to_owned())
    };
    assert_eq!(sign_in(&server, "wrong").await, None);
    let [first, second] = [
        sign_in(&server, &key).await.unwrap(),
        sign_in(&server, &key).await.unwrap(),
    ];
    let of_operator = sign_in(&server, &server.key).await.unwrap();
    server.kill();
    let server = start_with_page(&home);
    let list = async |cookie: &str| {
        let request = server
            .request_without_key(Method::GET, "/api/conversations")
            .header("Cookie", cookie);
        request.send().await.unwrap().status()
    };
    let out = server
        .request_without_key(Method::POST, "/sign-out")
        .header("Cookie", &first);
    assert_eq!(list(&first).await, 200);
    let out = out.send().await.unwrap();
    assert_eq!(
        (out.status().as_u16(), &out.headers()[LOCATION]),
        (303, &"/sign-in".parse().unwrap())
    );
    assert_eq!(
        (list(&first).await.as_u16(), list(&second).await.as_u16()),
        (401, 200)
    );
    let revoked = home
        .glovebox(&["user", "key", "revoke", &key_id])
        .output()
        .unwrap();
    assert!(revoked.status.success());
    assert_eq!(
        (
            list(&second).await.as_u16(),
            list(&of_operator).await.as_u16()
        ),
        (401, 200)
    );
    // A new key of the operator ends the sessions of the old one.
    drop(server);
    std::fs::write(
        home.path().join(".glovebox/server-key"),
        "another-key-of-the-operator",
    )
    .unwrap();
    let server = start_with_page(&home);
    let request = server
        .request_without_key(Method::GET, "/api/conversations")
        .header("Cookie", &of_operator);
    assert_eq!(request.send().await.unwrap().status(), 401);
}

#[test]
fn users_and_keys_are_administered_from_the_command_line() {
    let home = Home::new();
    let run = |arguments: &[&str]| {
        let output = home
            .glovebox(&[&["user"], arguments].concat())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code().unwrap(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    assert_eq!(
        run(&["ls", "--json"]),
        (0, "[]\n".to_owned(), String::new())
    );
    let (code, _, error) = run(&["key", "add", "ada"]);
    assert!(
        code == 2 && error.contains("there is no user ada"),
        "{code} {error}"
    );
    let (code, _, error) = run(&["add", "Ada"]);
    assert!(
        code == 2 && error.contains("cannot be the name of a user"),
        "{code} {error}"
    );
    assert_eq!(run(&["add", "ada"]).0, 0);
    let (code, key, note) = run(&["key", "add", "ada", "--scope", "read", "--expires", "90d"]);
    assert!(
        code == 0 && key.starts_with("glovebox_") && note.contains("not shown again"),
        "{key} {note}"
    );
    let (_, listed, _) = run(&["key", "ls", "ada", "--json"]);
    assert!(!listed.contains(key.trim()), "{listed}");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let row = &listed[0];
    assert_eq!(
        (&row["user"], &row["scope"], &row["last_used_at"]),
        (&json!("ada"), &json!("read"), &Value::Null)
    );
    assert!(
        row["expires_at"].as_str().unwrap() > row["created_at"].as_str().unwrap(),
        "{row}"
    );
    let id = row["id"].as_str().unwrap();
    assert!(run(&["key", "ls"]).1.contains(id));
    assert_eq!(run(&["key", "revoke", id]).0, 0);
    let (code, _, error) = run(&["key", "revoke", id]);
    assert!(
        code == 2 && error.contains("there is no key"),
        "{code} {error}"
    );
    assert_eq!(run(&["rm", "ada"]).0, 0);
    let (code, _, error) = run(&["add", "ada"]);
    assert!(code == 2 && error.contains("--restore"), "{code} {error}");
    assert_eq!(run(&["add", "ada", "--restore"]).0, 0);
    let (_, users, _) = run(&["ls"]);
    assert!(
        users.starts_with("NAME") && users.contains("ada"),
        "{users}"
    );
    let offered = home.completed("glovebox user rm", None);
    assert!(offered.lines().any(|name| name == "ada"), "{offered}");
}

/// A user who runs the maximum waits until an own conversation is idle. Other users do not.
#[tokio::test]
async fn user_waits_for_own_conversations_only() {
    let home = Home::new();
    home.write(
        ".glovebox/config.toml",
        "[core]\nmax_concurrent_conversations = 1\n",
    );
    let users = start(
        &home,
        &json!([bash("while [ ! -e stop ]; do sleep 0.1; done"), finish()]),
    );
    let first = users.create(&users.ada).await;
    users
        .server
        .wait_for_event(&first, |event| event["action"] == "run")
        .await;
    let folder = home.path().join(".glovebox/workspaces").join(&first);
    let (waited, other) = tokio::join!(users.create(&users.ada), async {
        let other = users.create(&users.ben).await;
        std::fs::write(folder.join("stop"), "").unwrap();
        other
    });
    let status = async |id: &str| {
        users.server.get(&format!("/api/conversations/{id}")).await["status"].clone()
    };
    assert_eq!(status(&first).await, "STOPPED");
    assert_ne!(
        (status(&waited).await, status(&other).await),
        (json!("STOPPED"), json!("STOPPED"))
    );
    for id in [&waited, &other] {
        let stop = users
            .server
            .post(&format!("/api/conversations/{id}/stop"), &json!({}))
            .await;
        assert_eq!(stop["conversation_status"], "STOPPED");
    }
}

#[tokio::test]
async fn user_has_a_maximum_of_streams() {
    let home = Home::new();
    let users = start(&home, &json!([{"text": "Hello."}]));
    let id = users.create(&users.ada).await;
    let path = format!("/api/v2/conversations/{id}/stream");
    let open = async || {
        let request = users.server.request_without_key(Method::GET, &path);
        request.bearer_auth(&users.ada).send().await.unwrap()
    };
    let mut streams = Vec::new();
    for _ in 0..256 {
        let stream = open().await;
        assert_eq!(stream.status(), StatusCode::OK);
        streams.push(stream);
    }
    assert_eq!(open().await.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(streams.pop());
    while open().await.status() != StatusCode::OK {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    users.server.terminate();
}
