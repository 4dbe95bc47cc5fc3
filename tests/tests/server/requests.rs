//! Requests that the server answers or rejects.

use futures_util::future::{join_all, select_all};
use reqwest::Method;
use serde_json::{Value, json};
use tests::glovebox::{Home, TEST_TIMEOUT, bash, finish, tool_call};
use tests::host_server::{HostServer, is_state};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Starts a server whose model finishes at once.
fn start(home: &Home) -> HostServer {
    HostServer::start(home, &home.script(&json!([finish()])), &[])
}

#[tokio::test]
async fn only_health_routes_need_no_key() {
    let home = Home::new();
    let server = start(&home);
    for path in ["/alive", "/health", "/server_info"] {
        assert_eq!(server.status_with_key(path, None).await, 200, "{path}");
    }
    for path in [
        "/api/conversations",
        "/api/options/config",
        "/api/none",
        "/api/v2/conversations/a/stream",
    ] {
        assert_eq!(server.status_with_key(path, None).await, 401, "{path}");
        assert_eq!(
            server.status_with_key(path, Some("wrong")).await,
            401,
            "{path}"
        );
        assert_ne!(
            server.status_with_key(path, Some(&server.key)).await,
            401,
            "{path}"
        );
    }
}

#[tokio::test]
async fn pages_of_other_origins_are_rejected() {
    let home = Home::new();
    let server = start(&home);
    for (name, value) in [
        ("Host", "evil.example"),
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
    ] {
        let request = server
            .request(Method::GET, "/api/conversations")
            .header(name, value);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 403, "{name}: {value}");
        let expected = if name == "Host" {
            "--allow-host evil.example"
        } else {
            "a page of another origin"
        };
        let body = response.text().await.unwrap();
        assert!(body.contains(expected), "{body}");
    }
    let own = server
        .request(Method::GET, "/api/conversations")
        .header("Origin", &server.url);
    assert_eq!(own.send().await.unwrap().status(), 200);
}

/// A page of another origin shows pictures and frames whose addresses have wrong keys.
#[tokio::test]
async fn other_page_cannot_use_up_failed_attempts() {
    let home = Home::new();
    let server = start(&home);
    for number in 0..20 {
        let mode = if number % 2 == 0 {
            "no-cors"
        } else {
            "navigate"
        };
        let path = format!("/socket.io/?EIO=4&transport=polling&session_api_key=wrong{number}");
        let wrong = server
            .request_without_key(Method::GET, &path)
            .header("Sec-Fetch-Site", "cross-site");
        assert_eq!(
            wrong
                .header("Sec-Fetch-Mode", mode)
                .send()
                .await
                .unwrap()
                .status(),
            403,
            "{mode}"
        );
    }
    assert_eq!(
        server
            .status_with_key("/api/conversations", Some(&server.key))
            .await,
        200
    );
}

#[tokio::test]
async fn malformed_requests_name_their_field() {
    let home = Home::new();
    let server = start(&home);
    let cases: [(Value, &str, u16); 7] = [
        // As in V0, what cannot be parsed is 422.
        (json!({"unknown": 1}), "unknown", 422),
        (json!({"initial_user_msg": 1}), "initial_user_msg", 422),
        (json!({"image_urls": ["data:,", 1]}), "image_urls[1]", 422),
        (json!({"replay_json": "{"}), "replay_json", 400),
        (json!({"image_urls": ["data:,"]}), "image_urls", 400),
        (json!({"mcp_config": {}}), "mcp_config", 400),
        (json!([]), "body", 422),
    ];
    for (body, field, expected) in cases {
        let (status, response) = server
            .send(Method::POST, "/api/conversations", Some(&body))
            .await;
        assert_eq!(
            (status.as_u16(), &response["field"]),
            (expected, &json!(field)),
            "{body}: {response}"
        );
    }
    let (_, response) = server
        .send(
            Method::POST,
            "/api/conversations",
            Some(&json!({"image_urls": ["", 1]})),
        )
        .await;
    let problem = &response["detail"][0];
    assert_eq!(
        problem["loc"],
        json!(["body", "image_urls", 1]),
        "{response}"
    );
    assert!(
        problem["msg"].is_string() && problem["type"].is_string(),
        "{response}"
    );
    let unfinished = server
        .request(Method::POST, "/api/conversations")
        .body("{")
        .send()
        .await
        .unwrap();
    let response: Value = serde_json::from_str(&unfinished.text().await.unwrap()).unwrap();
    assert_eq!(response["field"], "body", "{response}");
    let id = server.create("Finish.").await;
    for (query, field, expected) in [
        ("reverse=maybe", "reverse", 422),
        ("start_date=tomorrow", "start_date", 400),
        ("limit=101", "limit", 400),
        ("limit=x", "limit", 422),
        ("source=nobody", "source", 400),
        ("start_id=undefined", "start_id", 422),
        ("end_id=", "end_id", 422),
        ("start_id=NaN", "start_id", 422),
    ] {
        let path = format!("/api/conversations/{id}/events?{query}");
        let (status, response) = server.send(Method::GET, &path, None).await;
        assert_eq!(
            (status.as_u16(), &response["field"]),
            (expected, &json!(field)),
            "{query}: {response}"
        );
    }
    let count = async |query: &str| {
        let page = server
            .get(&format!("/api/conversations/{id}/events?limit=100&{query}"))
            .await;
        page["events"].as_array().unwrap().len()
    };
    // As in V0, a negative id is the id of no event, and an empty filter is none.
    let all = count("").await;
    assert_eq!(
        count("start_id=-5&source=&start_date=&end_date=&query=&include_types=").await,
        all
    );
    assert_eq!(
        (
            count("end_id=-1").await,
            count("end_id=-1&reverse=true").await
        ),
        (0, 0)
    );
    let listed = server
        .get("/api/conversations?page_id=&selected_repository=")
        .await;
    assert_eq!(listed["results"][0]["conversation_id"], id);
    for event in [
        json!({}),
        json!({"action": "run", "args": {"command": "id"}}),
        json!({"observation": "run"}),
        json!({"action": "change_agent_state", "args": {"agent_state": "finished"}}),
        json!({"action": "change_agent_state", "args": {"agent_state": "asleep"}}),
    ] {
        let path = format!("/api/conversations/{id}/events");
        assert_eq!(
            server.send(Method::POST, &path, Some(&event)).await.0,
            400,
            "{event}"
        );
    }
    assert_eq!(
        server
            .send(Method::GET, "/api/conversations?page_id=x", None)
            .await
            .0,
        400
    );
    assert_eq!(
        server
            .send(Method::GET, "/api/conversations/none/events", None)
            .await
            .0,
        404
    );
    assert_eq!(
        server
            .send(Method::GET, "/api/conversations/a%2Fb/events", None)
            .await
            .0,
        400
    );
    assert_eq!(
        server
            .send(Method::POST, "/api/conversations/none/start", None)
            .await
            .0,
        404
    );
    assert_eq!(server.send(Method::GET, "/none", None).await.0, 404);
    for path in ["/api/conversations", "/alive"] {
        let (status, response) = server.send(Method::PUT, path, None).await;
        assert_eq!(
            (status.as_u16(), &response["msg_id"]),
            (405, &json!("API$NO_METHOD")),
            "{path}"
        );
    }
}

#[tokio::test]
async fn removed_routes_of_v0_are_answered_as_in_v0() {
    let home = Home::new();
    let server = start(&home);
    let (status, body) = server.send(Method::POST, "/api/reset-settings", None).await;
    assert_eq!(
        (status.as_u16(), body["error"].is_string()),
        (410, true),
        "{body}"
    );
    let id = server.create("Finish.").await;
    for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
        let path = format!("/api/conversations/{id}/security/policy");
        let (status, body) = server.send(method, &path, None).await;
        assert_eq!(
            (status.as_u16(), body["detail"].is_string()),
            (404, true),
            "{body}"
        );
    }
}

/// A browser takes a time without a zone for its local time.
#[tokio::test]
async fn conversation_without_a_message_has_title_and_zones() {
    let home = Home::new();
    let server = start(&home);
    let id = server.post("/api/conversations", &json!({})).await["conversation_id"].clone();
    let id = id.as_str().unwrap();
    let single = server.get(&format!("/api/conversations/{id}")).await;
    let listed = server.get("/api/conversations").await["results"][0].clone();
    for info in [&single, &listed] {
        assert_eq!(info["title"], format!("Conversation {}", &id[..5]));
        for field in ["created_at", "last_updated_at"] {
            assert!(info[field].as_str().unwrap().ends_with('Z'), "{info}");
        }
    }
}

#[tokio::test]
async fn concurrent_requests_to_one_conversation_are_in_order() {
    let home = Home::new();
    let server = start(&home);
    let id = server.create("Finish.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    let path = format!("/api/conversations/{id}");
    let change = async |change: &str| {
        server
            .send(Method::POST, &format!("{path}/{change}"), None)
            .await
            .0
            .as_u16()
    };
    let requests = ["stop", "start", "stop", "start"].map(change);
    assert_eq!(futures_util::future::join_all(requests).await, [200; 4]);
    let (deleted, rest) = tokio::join!(
        server.send(Method::DELETE, &path, None),
        futures_util::future::join_all((0..8).map(|_| async {
            server
                .send(Method::POST, &format!("{path}/start"), None)
                .await
                .0
                .as_u16()
        }))
    );
    assert_eq!((deleted.0.as_u16(), deleted.1), (200, json!(true)));
    assert!(
        rest.iter().all(|status| [200, 404].contains(status)),
        "{rest:?}"
    );
    assert_eq!(server.get(&path).await, Value::Null);
}

#[tokio::test]
async fn key_that_can_be_guessed_is_rejected() {
    let home = Home::new();
    let state = home.path().join(".glovebox");
    std::fs::create_dir_all(&state).unwrap();
    for key in ["", "short\n", "sixteen letters and \u{fc}"] {
        std::fs::write(state.join("server-key"), key).unwrap();
        let output = home
            .glovebox(&["serve", "--listen", "127.0.0.1:0", "--runtime", "local"])
            .output();
        let output = output.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(
            error.contains("server-key must have at least 16 visible ASCII characters"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn log_that_cannot_be_written_stops_nothing() {
    let home = Home::new();
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let model = home.script(&json!([bash("echo hello"), finish()]));
    let arguments = [
        "--log-level",
        "debug",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--runtime",
        "local",
        "-l",
        &model,
    ];
    let server = HostServer::with_log(&home, &mut home.glovebox(&arguments), full);
    let id = server.create("Say hello.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
}

#[tokio::test]
async fn head_of_a_request_has_to_arrive_in_time() {
    let home = Home::new();
    let server = start(&home);
    let address = server.url.strip_prefix("http://").unwrap();
    let mut slow = tokio::net::TcpStream::connect(address).await.unwrap();
    slow.write_all(b"GET /alive HTTP/1.1\r\nHost: loc")
        .await
        .unwrap();
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(TEST_TIMEOUT, slow.read_to_end(&mut answer)).await;
    ended.expect("the server ends the connection").unwrap();
    assert_eq!(server.status_with_key("/alive", None).await, 200);
}

#[tokio::test]
async fn events_are_filtered_and_paged() {
    let home = Home::new();
    let server = HostServer::start(
        &home,
        &home.script(&json!([bash("echo needle"), finish()])),
        &[],
    );
    let id = server.create("Work.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    let select = async |query: &str| {
        let page = server
            .get(&format!("/api/conversations/{id}/events?{query}"))
            .await;
        let events = page["events"].as_array().unwrap();
        let ids: Vec<_> = events
            .iter()
            .map(|event| event["id"].as_u64().unwrap())
            .collect();
        (ids, page["has_more"].as_bool().unwrap())
    };
    let (all, has_more) = select("limit=100").await;
    assert!(!has_more && all.is_sorted());
    let (reversed, _) = select("limit=100&reverse=true").await;
    assert!(reversed.iter().rev().eq(&all), "{reversed:?} {all:?}");
    assert_eq!(select("limit=0").await, (Vec::new(), true));
    assert_eq!(select("limit=2").await, (all[..2].to_vec(), true));
    assert_eq!(
        select("limit=2&reverse=True").await,
        (reversed[..2].to_vec(), true)
    );
    let from = all[3];
    assert_eq!(
        select(&format!("start_id={from}&limit=100")).await.0,
        all[3..]
    );
    assert_eq!(
        select(&format!("end_id={from}&limit=100")).await.0,
        all[..4]
    );
    assert_eq!(
        select("query=NEEDLE").await.0.len(),
        2,
        "the command and its output"
    );
    assert_eq!(
        select("include_types=run").await,
        select("query=needle").await
    );
    let (without, _) = select("exclude_types=run,finish&limit=100").await;
    assert_eq!(without.len(), all.len() - 3);
    assert_eq!(select("source=user&include_types=message").await.0.len(), 1);
    for end in ["2001-01-01T00:00:00", "2001-01-01"] {
        assert_eq!(select(&format!("end_date={end}")).await.0, [] as [u64; 0]);
        assert_eq!(select(&format!("start_date={end}&limit=100")).await.0, all);
    }
    let trajectory = server
        .get(&format!("/api/conversations/{id}/trajectory"))
        .await;
    assert!(!trajectory["trajectory"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn conversations_are_listed_in_pages_and_renamed() {
    let home = Home::new();
    let server = start(&home);
    let mut ids = Vec::new();
    for number in 0..3 {
        let id = server.create(&format!("Task {number}")).await;
        server
            .wait_for_event(&id, |event| is_state(event, "finished"))
            .await;
        ids.insert(0, id);
    }
    let (mut listed, mut page_id) = (Vec::new(), String::new());
    loop {
        let page = server
            .get(&format!("/api/conversations?limit=2{page_id}"))
            .await;
        let results = page["results"].as_array().unwrap();
        listed.extend(
            results
                .iter()
                .map(|info| info["conversation_id"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next_page_id"].as_str() else {
            break;
        };
        page_id = format!("&page_id={next}");
    }
    assert_eq!(listed, ids);
    let path = format!("/api/conversations/{}", ids[0]);
    // Once while it runs, and once while it does not.
    for title in ["First title", "Second title"] {
        let (status, _) = server
            .send(Method::PATCH, &path, Some(&json!({"title": title})))
            .await;
        assert_eq!(status, 200);
        server.post(&format!("{path}/stop"), &json!({})).await;
        assert_eq!(server.get(&path).await["title"], title);
    }
    assert_eq!(
        server
            .send(Method::PATCH, &path, Some(&json!({"title": " "})))
            .await
            .0,
        400
    );
    assert_eq!(
        server
            .send(
                Method::PATCH,
                "/api/conversations/none",
                Some(&json!({"title": "x"}))
            )
            .await
            .0,
        404
    );
}

#[tokio::test]
async fn idle_conversation_makes_room_for_another() {
    let home = Home::new();
    let sleep = tool_call(
        "execute_bash",
        &json!({"command": "sleep 3600", "timeout": 600}),
    );
    let server = HostServer::start(
        &home,
        &home.script(&json!([sleep])),
        &["--max-running", "1"],
    );
    let waiting = server.post("/api/conversations", &json!({})).await;
    let waiting = waiting["conversation_id"].as_str().unwrap();
    server
        .wait_for_event(waiting, |event| is_state(event, "awaiting_user_input"))
        .await;
    let working = server.create("Sleep.").await;
    assert_eq!(
        server.get(&format!("/api/conversations/{waiting}")).await["status"],
        "STOPPED"
    );
    server
        .wait_for_event(&working, |event| event["action"] == "run")
        .await;
    // The queue of one owner is full with 16.
    let empty = json!({});
    let create = || Box::pin(server.send(Method::POST, "/api/conversations", Some(&empty)));
    let ((status, response), _, waiting) = select_all((0..17).map(|_| create())).await;
    assert_eq!(
        (status.as_u16(), &response["msg_id"]),
        (429, &json!("CONVERSATION$TOO_MANY_RUNNING"))
    );
    server
        .post(&format!("/api/conversations/{working}/stop"), &json!({}))
        .await;
    for (status, response) in join_all(waiting).await {
        assert_eq!(status, 200, "{response}");
    }
}
