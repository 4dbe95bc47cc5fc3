//! The audit log: who changed what, and that it has no content and no secret.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::glovebox::{Home, TEST_TIMEOUT, finish};
use tests::host_server::{HostServer, is_state};

/// Part of each secret and content of this test.
const NEEDLE: &str = "needle-in-the-log";

fn audit(home: &Home, arguments: &[&str]) -> Vec<Value> {
    let output = home
        .glovebox(&[&["audit", "--json"], arguments].concat())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && !text.contains(NEEDLE), "{text}");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn changes_and_sign_ins_are_recorded_without_content() {
    let home = Home::new();
    let folder = home.path().join("page");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("index.html"), "<p>page").unwrap();
    let arguments = [
        "--allow-host",
        "127.0.0.1",
        "--static",
        folder.to_str().unwrap(),
        "--trusted-proxy",
        "127.0.0.1",
    ];
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &arguments);
    let ada = home.add_user("ada");
    let send = async |key: &str, method: Method, path: &str, body: Value| {
        let request = server
            .request_without_key(method, path)
            .header("Authorization", format!("Bearer {key}"));
        let response = request
            .header("X-Forwarded-For", "1.2.3.4")
            .body(body.to_string())
            .send()
            .await
            .unwrap();
        (
            response.status().as_u16(),
            response.json::<Value>().await.unwrap_or_default(),
        )
    };
    let created = send(
        &ada,
        Method::POST,
        "/api/conversations",
        json!({"initial_user_msg": NEEDLE}),
    )
    .await
    .1;
    let id = created["conversation_id"].as_str().unwrap();
    server
        .wait_for_event(id, |event| is_state(event, "finished"))
        .await;
    let path = |end: &str| format!("/api/conversations/{id}{end}");
    assert_eq!(
        send(&ada, Method::GET, &path("/events"), Value::Null)
            .await
            .0,
        200
    );
    assert_eq!(
        send(
            &ada,
            Method::POST,
            &path("/message"),
            json!({"message": ""})
        )
        .await
        .0,
        400
    );
    let secret = json!({"name": "OWN", "value": NEEDLE});
    assert_eq!(
        send(&ada, Method::POST, "/api/secrets", secret).await.0,
        201
    );
    assert_eq!(
        send(
            &ada,
            Method::DELETE,
            &format!("/api/secrets/{NEEDLE}"),
            Value::Null
        )
        .await
        .0,
        404
    );
    assert_eq!(
        send(
            &server.key,
            Method::PATCH,
            &path(""),
            json!({"title": NEEDLE})
        )
        .await
        .0,
        200
    );
    assert_eq!(
        send(
            NEEDLE,
            Method::GET,
            &path("/events?q=needle-in-the-log"),
            Value::Null
        )
        .await
        .0,
        401
    );
    let sign_in = async |key: &str| {
        let form = server
            .request_without_key(Method::POST, "/sign-in")
            .body(format!("key={key}"));
        let form = form.header("Content-Type", "application/x-www-form-urlencoded");
        form.header("X-Forwarded-For", "1.2.3.4")
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    };
    assert_eq!((sign_in(NEEDLE).await, sign_in(&ada).await), (401, 303));
    let (packet, query) = server.connect_socket(&ada, id).await;
    assert!(packet.starts_with("40"), "{packet}");
    let action = r#"42["oh_user_action",{"action":"run","args":{"command":"needle-in-the-log"}}]"#;
    let action = server
        .request_without_key(Method::POST, &query)
        .header("X-Session-API-Key", &ada)
        .body(action);
    assert_eq!(action.send().await.unwrap().status(), 200);
    let is_socket = |entry: &Value| entry["action"] == "socket oh_user_action";
    let polling = async {
        while !audit(&home, &[]).iter().any(is_socket) {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, polling)
        .await
        .expect("the action is recorded");

    let entries = audit(&home, &[]);
    let found: Vec<_> = entries
        .iter()
        .map(|entry| {
            let conversation = if entry["conversation"] == id {
                "its"
            } else {
                ""
            };
            let who = entry["user"].as_str().or(entry["actor"].as_str()).unwrap();
            let status = entry["status"].as_u64().unwrap_or_default();
            (who, entry["action"].as_str().unwrap(), conversation, status)
        })
        .collect();
    let key_id = entries
        .iter()
        .find_map(|entry| entry["key"].as_str())
        .unwrap();
    let key_added = format!("user key add ada: {key_id} write");
    assert_eq!(
        found,
        [
            ("operator", "user add ada", "", 0),
            ("operator", key_added.as_str(), "", 0),
            ("ada", "POST /api/conversations", "its", 200),
            ("ada", "POST /api/conversations/{id}/message", "its", 400),
            ("ada", "POST /api/secrets", "", 201),
            ("ada", "DELETE /api/secrets/{id}", "", 404),
            ("operator", "PATCH /api/conversations/{id}", "its", 200),
            ("unknown", "GET /api/conversations/{id}/events", "its", 401),
            ("unknown", "POST /sign-in", "", 401),
            ("ada", "POST /sign-in", "", 303),
            ("ada", "socket oh_user_action", "its", 400),
        ]
    );
    let is_client = |entry: &&Value| entry["address"] == "1.2.3.4";
    assert_eq!(entries.iter().filter(is_client).count(), 8);
    assert_eq!(audit(&home, &["--user", "ada"]).len(), 6);
    assert_eq!(audit(&home, &["--conversation", id, "-n", "2"]).len(), 2);
    let table = home.glovebox(&["audit", "--user", "ada"]).output().unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(
        table.starts_with("TIME") && table.contains("1.2.3.4"),
        "{table}"
    );
}

#[tokio::test]
async fn wrong_key_of_a_port_is_recorded() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let ada = home.add_user("ada");
    let id = "0".repeat(32);
    let send = async |key: &str| {
        let request =
            server.request_without_key(Method::GET, "/needle-in-the-log?a=needle-in-the-log");
        let request = request
            .header("Host", format!("80-{id}.localhost"))
            .header("X-Session-API-Key", key);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    // The response does not reveal whether the key is valid.
    let (wrong, of_ada) = (send(NEEDLE).await, send(&ada).await);
    assert_eq!((wrong.0, &wrong), (401, &of_ada));
    let entries = audit(&home, &["--conversation", &id]);
    let found: Vec<_> = entries
        .iter()
        .map(|entry| (&entry["actor"], &entry["action"], &entry["status"]))
        .collect();
    assert_eq!(
        found,
        [(&json!("unknown"), &json!("GET port"), &json!(401))]
    );
}

#[tokio::test]
async fn change_is_recorded_when_its_client_is_gone() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let key = home.add_user("ada");
    let address = server.url.strip_prefix("http://").unwrap();
    let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
    // The body does not end.
    let head = format!(
        "POST /api/conversations HTTP/1.1\r\nHost: localhost\r\nX-Session-API-Key: {key}\r\nContent-Length: 9\r\n\r\n{{"
    );
    tokio::io::AsyncWriteExt::write_all(&mut client, head.as_bytes())
        .await
        .unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(1), client.readable())
        .await
        .ok();
    drop(client);
    let polling = async {
        loop {
            if let [entry] = audit(&home, &["--user", "ada"]).as_slice() {
                return entry.clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let entry = tokio::time::timeout(TEST_TIMEOUT, polling)
        .await
        .expect("the request is recorded");
    assert_eq!(entry["action"], "POST /api/conversations");
    assert!(
        [400, 499].contains(&entry["status"].as_u64().unwrap()),
        "{entry}"
    );
}

#[tokio::test]
async fn encoded_conversation_of_a_path_is_recorded() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let id = server.create("Finish.").await;
    let path = format!("/api/conversations/%{:x}{}", id.as_bytes()[0], &id[1..]);
    let (status, body) = server
        .send(Method::PATCH, &path, Some(&json!({"title": "New"})))
        .await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let entries = audit(&home, &["--conversation", &id]);
    assert!(
        entries
            .iter()
            .any(|entry| entry["action"] == "PATCH /api/conversations/{id}"),
        "{entries:?}"
    );
}
