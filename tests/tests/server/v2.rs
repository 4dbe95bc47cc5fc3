//! Glovebox's own API: commands and events.

use reqwest::Method;
use serde_json::{Value, json};
use tests::glovebox::{Home, bash, finish};
use tests::host_server::{HostServer, is_state};

/// Returns the ids of events.
fn ids(events: &Value) -> Vec<u64> {
    let events = events.as_array().unwrap().iter();
    events.map(|event| event["id"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn command_is_applied_once_across_a_crash_of_the_server() {
    let home = Home::new();
    let model = home.script(&json!([finish(), finish()]));
    let server = HostServer::start(&home, &model, &[]);
    let id = server.create("Go.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    let path = format!("/api/v2/conversations/{id}/commands");
    let message = json!({"id": "a", "command": {"kind": "send_message", "content": "Again."}});
    let (status, sent) = server.send(Method::POST, &path, Some(&message)).await;
    assert_eq!(status, 202, "{sent}");
    assert!(sent["event_id"].is_u64(), "{sent}");
    assert_eq!(server.post(&path, &message).await, sent);
    server.kill();
    let server = HostServer::start(&home, &model, &[]);
    assert_eq!(server.post(&path, &message).await, sent);
    let events = server
        .get(&format!(
            "/api/v2/conversations/{id}/events?kinds=message&source=user"
        ))
        .await;
    let messages: Vec<_> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| (&event["args"]["content"], &event["command"], &event["id"]))
        .collect();
    assert_eq!(
        messages[1..],
        [(&json!("Again."), &json!("a"), &sent["event_id"])]
    );
    let stop = json!({"command": {"kind": "stop"}});
    server.post(&path, &stop).await;
    let again = server.post(&path, &stop).await;
    assert_eq!(again, json!({"event_id": null}), "there is nothing to do");
    let title = json!({"command": {"kind": "set_title", "title": "Mine\nand more"}});
    server.post(&path, &title).await;
    let info = server.get(&format!("/api/conversations/{id}")).await;
    assert_eq!(info["title"], "Mine");
}

#[tokio::test]
async fn one_of_two_concurrent_decisions_counts() {
    let home = Home::new();
    let config = home.path().join("config.toml");
    std::fs::write(&config, "[security]\nconfirmation_policy = 'always'\n").unwrap();
    let model = home.script(&json!([bash("echo hello"), finish()]));
    let server = HostServer::start(&home, &model, &["--config-file", config.to_str().unwrap()]);
    let id = server.create("Go.").await;
    let events = server
        .wait_for_event(&id, |event| is_state(event, "awaiting_user_confirmation"))
        .await;
    let action = events.iter().find(|event| event["action"] == "run");
    let action = action.unwrap()["id"].clone();
    let path = format!("/api/v2/conversations/{id}/commands");
    let confirm = json!({"command": {"kind": "confirm", "action": action}});
    let reject = json!({"command": {"kind": "reject", "action": action, "reason": "No."}});
    let (first, second) = tokio::join!(
        server.send(Method::POST, &path, Some(&confirm)),
        server.send(Method::POST, &path, Some(&reject))
    );
    let mut statuses = [first.0.as_u16(), second.0.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [202, 409], "{first:?} {second:?}");
}

#[tokio::test]
async fn pages_of_events_join_in_either_direction() {
    let home = Home::new();
    let model = home.script(&json!([bash("echo Hello"), finish()]));
    let server = HostServer::start(&home, &model, &[]);
    let id = server.create("Go.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    let path = format!("/api/v2/conversations/{id}/events");
    let all = server.get(&path).await;
    assert!(all["next_id"].is_null() && ids(&all["events"]).is_sorted());
    for (reverse, next) in [("false", "from"), ("true", "until")] {
        let (mut found, mut query) = (Vec::new(), String::new());
        loop {
            let page = server
                .get(&format!("{path}?limit=2&reverse={reverse}{query}"))
                .await;
            found.extend(ids(&page["events"]));
            if page["next_id"].is_null() {
                break;
            }
            query = format!("&{next}={}", page["next_id"]);
        }
        if reverse == "true" {
            found.reverse();
        }
        assert_eq!(found, ids(&all["events"]), "{reverse}");
    }
    let run = server.get(&format!("{path}?kinds=run&text=HELLO")).await;
    assert_eq!(run["events"].as_array().unwrap().len(), 2, "{run}");
    for query in ["limit=0", "limit=1001", "source=none", "from=-1"] {
        let (status, error) = server
            .send(Method::GET, &format!("{path}?{query}"), None)
            .await;
        assert!(status.is_client_error(), "{query}: {error}");
    }
}

#[tokio::test]
async fn only_the_operator_changes_limits_and_the_policy() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let ada = home.add_user("ada");
    let body = json!({"initial_user_msg": "Go."});
    let (_, created) = server
        .send_as(&ada, Method::POST, "/api/conversations", Some(&body))
        .await;
    let id = created["conversation_id"].as_str().unwrap();
    let path = format!("/api/v2/conversations/{id}/commands");
    for (command, expected) in [
        (
            json!({"kind": "set_confirmation", "policy": {"ask": "never"}}),
            403,
        ),
        (json!({"kind": "resume", "more_budget": 1e9}), 403),
        (json!({"kind": "resume", "more_iterations": 1000}), 403),
        (json!({"kind": "resume"}), 202),
        (json!({"kind": "set_title", "title": ""}), 400),
        (json!({"kind": "send_message", "content": " "}), 400),
    ] {
        let body = json!({"command": command});
        let (status, reply) = server.send_as(&ada, Method::POST, &path, Some(&body)).await;
        assert_eq!(status, expected, "{command}: {reply}");
    }
}
