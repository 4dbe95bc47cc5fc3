//! Requests that a long log or a hostile workspace makes expensive: what they cost, and what other
//! users wait for.

use std::time::{Duration, Instant};

use engine::events::EventStore as _;
use protocol::action::MessageAction;
use protocol::record::ConversationStarted;
use protocol::{Action, Event, EventBody, EventId, EventSource, Record, Timestamp};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use storage::{Durability, SqliteStore};
use tests::glovebox::{Home, TEST_TIMEOUT, bash, finish};
use tests::host_server::{HostServer, is_state};

/// Events of the log, each with two megabytes of JSON: together more than the buffers of a
/// connection hold.
const LONG: u64 = 6;
const EVENT_BYTES: usize = 1 << 20;

/// Number of expensive requests of a user that are served concurrently.
const MAX_WORK_PER_USER: usize = 4;

const TRAJECTORY: &str = "/api/conversations/long/trajectory";

/// Appends a long conversation of the user ada.
async fn fill(home: &Home) {
    fill_with(home, LONG, EVENT_BYTES).await;
}

/// Appends a conversation with this number of messages of this length.
async fn fill_with(home: &Home, count: u64, length: usize) {
    let file = home
        .write(".glovebox/empty", "")
        .with_file_name("glovebox.db");
    let store = SqliteStore::open(file, Durability::default())
        .await
        .unwrap();
    let timestamp = Timestamp::try_from("2026-01-02T03:04:05.678901".to_owned()).unwrap();
    for id in 0..=count {
        let body: EventBody = match id {
            0 => {
                let owner = Some("ada".parse().unwrap());
                Record::from(ConversationStarted {
                    owner,
                    ..ConversationStarted::default()
                })
                .into()
            }
            _ => {
                let content = format!("{id} {}", "Xx ".repeat(length / 3));
                Action::from(MessageAction {
                    content,
                    ..MessageAction::default()
                })
                .into()
            }
        };
        let event = Event::new(EventId(id), timestamp.clone(), EventSource::User, body);
        store
            .append(&"long".parse().unwrap(), &[event])
            .await
            .unwrap();
    }
}

/// Starts a response, and reads its first part.
async fn start(server: &HostServer, key: &str, path: &str) -> (Response, Vec<u8>) {
    let request = server
        .request_without_key(Method::GET, path)
        .header("X-Session-API-Key", key);
    let mut response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let first = response.chunk().await.unwrap().unwrap();
    (response, first.to_vec())
}

/// In memory, the log and its JSON would have 18 MiB for each of them.
#[tokio::test]
async fn slow_readers_of_a_long_log_use_little_memory() {
    const READERS: usize = 8;
    const MAX_INCREASE: usize = 80 << 20;
    let home = Home::new();
    fill(&home).await;
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let before = server.memory_bytes();
    let starting = (0..READERS).map(|_| start(&server, &server.key, TRAJECTORY));
    let mut responses = futures_util::future::join_all(starting).await;
    let increase = server.memory_bytes().saturating_sub(before);
    assert!(increase < MAX_INCREASE, "{} MiB", increase >> 20);
    let (mut response, mut json) = responses.remove(0);
    while let Some(part) = response.chunk().await.unwrap() {
        json.extend_from_slice(&part);
    }
    let export: Value = serde_json::from_slice(&json).unwrap();
    let ids: Vec<_> = export["trajectory"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| &event["id"])
        .collect();
    assert_eq!(ids, (1..=LONG).collect::<Vec<_>>());
    server.terminate();
}

#[tokio::test]
async fn export_without_events_is_an_empty_list() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let created = server.post("/api/conversations", &json!({})).await;
    let id = created["conversation_id"].as_str().unwrap();
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    let database = rusqlite::Connection::open(home.path().join(".glovebox/glovebox.db")).unwrap();
    // Only the record of the start, which V0 does not know.
    database
        .execute_batch("DELETE FROM events WHERE id > 0; UPDATE conversations SET events = 1")
        .unwrap();
    let path = format!("/api/conversations/{id}/trajectory");
    assert_eq!(server.get(&path).await, json!({"trajectory": []}));
    server.terminate();
}

/// A client must not take the events before the damage for all of them.
#[tokio::test]
async fn connection_breaks_when_a_part_cannot_be_read() {
    let home = Home::new();
    fill(&home).await;
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let (mut response, mut json) = start(&server, &server.key, TRAJECTORY).await;
    let database = rusqlite::Connection::open(home.path().join(".glovebox/glovebox.db")).unwrap();
    database
        .execute_batch(&format!("UPDATE events SET json = '{{' WHERE id = {LONG}"))
        .unwrap();
    let error = loop {
        match response.chunk().await {
            Ok(Some(part)) => json.extend_from_slice(&part),
            Ok(None) => panic!("the response ends after {} bytes", json.len()),
            Err(error) => break error,
        }
    };
    assert!(error.is_body() || error.is_decode(), "{error:?}");
    assert!(json.len() > EVENT_BYTES && serde_json::from_slice::<Value>(&json).is_err());
    // The next client gets an error.
    assert_eq!(
        server.send(Method::GET, TRAJECTORY, None).await.0,
        StatusCode::INTERNAL_SERVER_ERROR
    );
    server.terminate();
}

#[tokio::test]
async fn search_finds_the_same_in_both_directions() {
    let home = Home::new();
    // So long that a page of the store has few of them.
    fill_with(&home, 16, 100_000).await;
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let found = async |query: &str| {
        let page = server
            .get(&format!("/api/conversations/long/events?{query}"))
            .await;
        let ids = page["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["id"].as_u64().unwrap());
        (ids.collect::<Vec<_>>(), page["has_more"] == true)
    };
    // Each event has its id, and only the ones from 10 on have this text.
    assert_eq!(found("query=%221&limit=2").await, (vec![1, 10], true));
    assert_eq!(
        found("query=%221&limit=2&reverse=true").await,
        (vec![16, 15], true)
    );
    assert_eq!(
        found("query=%221&limit=100&end_id=11").await,
        (vec![1, 10, 11], false)
    );
    assert_eq!(
        found("query=%221&limit=100&end_id=11&reverse=true").await,
        (vec![11, 10, 1], false)
    );
    assert_eq!(found("query=nowhere&end_id=3").await, (vec![], false));
    server.terminate();
}

/// Those that are not read keep their permits, until the client is gone.
#[tokio::test]
async fn expensive_requests_of_a_user_have_a_maximum() {
    let home = Home::new();
    fill(&home).await;
    let server = HostServer::start(&home, &home.script(&json!([{"text": "Hello."}])), &[]);
    let [ada, ben] = ["ada", "ben"].map(|name| home.add_user(name));
    let body = json!({"initial_user_msg": "Hello."});
    let (_, created) = server
        .send_as(&ben, Method::POST, "/api/conversations", Some(&body))
        .await;
    let of_ben = format!(
        "/api/conversations/{}/events",
        created["conversation_id"].as_str().unwrap()
    );
    let mut open = Vec::new();
    for _ in 0..MAX_WORK_PER_USER {
        open.push(start(&server, &ada, TRAJECTORY).await);
    }
    let next = server.send_as(
        &ada,
        Method::GET,
        "/api/conversations/long/events?limit=1",
        None,
    );
    let mut next = Box::pin(next);
    let waiting = tokio::time::timeout(Duration::from_secs(1), &mut next).await;
    assert!(waiting.is_err(), "{waiting:?}");
    // Neither another user waits, nor the operator, nor what is cheap.
    for (key, path) in [
        (&ben, of_ben.as_str()),
        (&server.key, "/api/conversations/long/events?limit=1"),
        (&ada, "/api/conversations"),
    ] {
        let served = tokio::time::timeout(
            Duration::from_secs(5),
            server.send_as(key, Method::GET, path, None),
        )
        .await;
        assert_eq!(served.expect(path).0, StatusCode::OK, "{path}");
    }
    drop(open.pop());
    let (status, page) = tokio::time::timeout(TEST_TIMEOUT, next)
        .await
        .expect("the permit is free again");
    assert_eq!(
        (status, page["events"].as_array().unwrap().len()),
        (StatusCode::OK, 1)
    );
    server.terminate();
}

/// A user with a hostile `.gitignore`, a long log and searches in it; and another user who asks for
/// little meanwhile.
#[tokio::test]
async fn expensive_requests_of_a_user_delay_no_other() {
    let home = Home::new();
    fill(&home).await;
    // 61 KB of patterns that take time with each of the 10,000 names.
    let make = "for n in $(seq 1000); do echo \"*a*a*a*a*a*a*a*a*a*a*b*c*d*e*f*g*h*i*j*k*l*m$n\"; done > .gitignore; \
                long=$(printf 'a%.0s' $(seq 200)); seq -f \"$long%.0f\" 10000 | xargs touch";
    let server = HostServer::start(&home, &home.script(&json!([bash(make), finish()])), &[]);
    let [ada, ben] = ["ada", "ben"].map(|name| home.add_user(name));
    let body = json!({"initial_user_msg": "Work."});
    let (_, created) = server
        .send_as(&ada, Method::POST, "/api/conversations", Some(&body))
        .await;
    let id = created["conversation_id"].as_str().unwrap();
    server
        .wait_for_event(id, |event| is_state(event, "finished"))
        .await;
    let get = async |key: &str, path: &str| {
        let started = Instant::now();
        let (status, body) = server.send_as(key, Method::GET, path, None).await;
        // On a busy machine, a search takes so long that it ends without a result.
        let is_expected = status == StatusCode::OK || body["msg_id"] == "API$SEARCH_TIMEOUT";
        assert!(is_expected, "{path}: {status} {body}");
        (started.elapsed(), body)
    };
    let list = format!("/api/conversations/{id}/list-files");
    let search = "/api/conversations/long/events?query=nowhere&limit=10";
    let expensive = async {
        let all = [list.as_str(), TRAJECTORY, search, search].map(|path| get(&ada, path));
        futures_util::future::join_all(all).await
    };
    let mut expensive = Box::pin(expensive);
    let mut waits = Vec::new();
    let results = loop {
        tokio::select! {
            results = &mut expensive => break results,
            (wait, _) = async {
                tokio::time::sleep(Duration::from_millis(10)).await;
                get(&ben, "/api/conversations").await
            } => waits.push(wait),
        }
    };
    drop(expensive);
    let total = results.iter().map(|(time, _)| *time).max().unwrap();
    // Nine of ten: a busy machine delays some in any case.
    waits.sort_unstable();
    let slow = waits[waits.len() * 9 / 10];
    assert!(
        slow * 4 < total,
        "{slow:?} of {total:?}, {} requests",
        waits.len()
    );
    let (names, exported) = (
        results[0].1.as_array().unwrap(),
        results[1].1["trajectory"].as_array().unwrap(),
    );
    assert!(
        names.len() > 1000 && exported.len() as u64 == LONG,
        "{} {}",
        names.len(),
        exported.len()
    );
    server.terminate();
}
