//! Messages and pages are bounded by their length.

use reqwest::{Method, StatusCode};
use serde_json::json;
use tests::glovebox::Home;
use tests::host_server::{HostServer, is_state};

#[tokio::test]
async fn long_messages_are_rejected_with_their_field() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([{"text": "Hello."}])), &[]);
    let id = server.create("Hello.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "awaiting_user_input"))
        .await;
    let count = server.get(&format!("/api/conversations/{id}/events")).await["events"].clone();
    let text = "x".repeat((1 << 20) + 1);
    let image = format!("data:image/png;base64,{}", "x".repeat(8 << 20));
    let events = format!("/api/conversations/{id}/events");
    let message = format!("/api/conversations/{id}/message");
    let action = json!({"action": "message", "args": {"content": "See.", "image_urls": [image]}});
    let chat = json!({"model": "glovebox", "messages": [{"role": "user", "content": text}]});
    for (path, request, field) in [
        (message.as_str(), json!({"message": text}), "message"),
        (&events, action, "image_urls"),
        (
            "/api/conversations",
            json!({"initial_user_msg": text}),
            "initial_user_msg",
        ),
        (
            "/api/conversations",
            json!({"conversation_instructions": text}),
            "conversation_instructions",
        ),
        ("/v1/chat/completions", chat, "messages[0].content"),
    ] {
        let (status, body) = server.send(Method::POST, path, Some(&request)).await;
        let found = if path.starts_with("/v1") {
            &body["error"]["param"]
        } else {
            &body["field"]
        };
        assert_eq!(
            (status, found),
            (StatusCode::BAD_REQUEST, &json!(field)),
            "{path}: {body}"
        );
    }
    assert_eq!(server.get(&events).await["events"], count);
    assert_eq!(
        server.get("/api/conversations").await["results"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    server.terminate();
}

#[tokio::test]
async fn page_ends_before_it_is_too_long() {
    const MESSAGES: usize = 12;
    let home = Home::new();
    let server = HostServer::start(
        &home,
        &home.script(&json!(vec![json!({"text": "Hello."}); 64])),
        &[],
    );
    let id = server.create("Hello.").await;
    let message = json!({"message": "x".repeat(1 << 20)});
    for _ in 0..MESSAGES {
        server
            .post(&format!("/api/conversations/{id}/message"), &message)
            .await;
    }
    let (mut next, mut pages, mut ids, mut long) = (0, 0, Vec::new(), 0);
    loop {
        let path = format!("/api/conversations/{id}/events?start_id={next}&limit=100");
        let page = server.get(&path).await;
        assert!(page.to_string().len() < 10 << 20);
        let events = page["events"].as_array().unwrap();
        long += events
            .iter()
            .filter(|event| event.to_string().len() > 1 << 20)
            .count();
        ids.extend(events.iter().map(|event| event["id"].as_u64().unwrap()));
        (next, pages) = (ids.last().unwrap() + 1, pages + 1);
        if page["has_more"] == false {
            break;
        }
    }
    // A recall quotes its message.
    assert!(pages >= 2 && long >= MESSAGES, "{pages} {long}");
    assert!(ids.is_sorted_by(|before, after| before < after), "{ids:?}");
    server.terminate();
}
