//! A database that is unavailable for a while.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use rustix::process::Signal;
use serde_json::{Value, json};
use tests::glovebox::{Home, TEST_TIMEOUT, finish};
use tests::host_server::{HostServer, is_state};
use tests::postgres::PostgresServer;

const UNAVAILABLE: &str = "SERVER$STORE_UNAVAILABLE";

#[tokio::test]
async fn commands_find_the_store_of_the_running_server() {
    let Some(database) = PostgresServer::start() else {
        return;
    };
    let home = Home::new();
    let address = database.address(&database.create_database());
    let file = home.write("server.toml", format!("[store]\nurl = \"{address}\"\n"));
    let script = home.script(&json!([finish()]));
    let server = HostServer::start(&home, &script, &["--config-file", file.to_str().unwrap()]);
    let added = home.run(&["user", "add", "ada"]).expect(0);
    assert!(
        added.stderr.contains("the store of the server, from "),
        "{}",
        added.stderr
    );
    let (key, _) = home.add_key("ada", &[]);
    let status = server
        .status_with_key("/api/conversations", Some(&key))
        .await;
    assert_eq!(status, StatusCode::OK, "the server has the user");
    assert!(
        home.run(&["audit", "--json"])
            .expect(0)
            .stdout
            .contains("ada")
    );
    let backup = home.run(&["store", "backup", "backup.tar.gz"]).expect(0);
    assert!(
        backup.stderr.contains("the store of the server"),
        "{}",
        backup.stderr
    );
    // A store that the user names is not replaced.
    home.write("other.toml", "");
    let other = home
        .run(&["user", "ls", "--json", "--config-file", "other.toml"])
        .expect(0);
    assert!(
        other
            .stderr
            .contains("warning: the server of this state folder uses"),
        "{}",
        other.stderr
    );
    assert!(!other.stdout.contains("ada"), "{}", other.stdout);
    std::fs::remove_file(file).unwrap();
    // Without the address, a command warns, and refuses to change or copy the wrong store.
    std::fs::write(home.path().join("backup.tar.gz"), "good").unwrap();
    let refuse = || {
        for (arguments, code) in [
            (["user", "ls"].as_slice(), 0),
            (&["audit"], 0),
            (&["user", "add", "ben"], 2),
            (&["user", "rm", "ada", "-y"], 2),
            (&["user", "key", "add", "ada"], 2),
            (&["store", "backup", "--force", "backup.tar.gz"], 2),
            (&["store", "restore", "backup.tar.gz"], 2),
            (&["conversations", "ls"], 0),
            (&["conversations", "rm", "--older-than", "1s", "-y"], 2),
        ] {
            let unknown = home.run(arguments).expect(code);
            let expected = "give it the server's --store";
            assert!(unknown.stderr.contains(expected), "{unknown:?}");
        }
    };
    refuse();
    server.terminate();
    refuse();
    let backup = std::fs::read_to_string(home.path().join("backup.tar.gz"));
    assert_eq!(backup.unwrap(), "good");
    // A server does not go back to the file because nothing names the database any more.
    let serve = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--runtime",
        "local",
        "-l",
        &script,
    ];
    let lost = home.run(&serve).expect(2);
    assert!(
        lost.stderr.contains("has last used postgres://"),
        "{lost:?}"
    );
    home.run(&["user", "add", "ben", "--store", "file"])
        .expect(0);
    home.run(&["user", "key", "add", "ada", "--store", &address])
        .expect(0);
    HostServer::start(&home, &script, &["--store", "file"]).terminate();
    home.run(&["user", "key", "add", "ben"]).expect(0);
}

#[tokio::test]
async fn outage_of_the_store_is_reported_by_each_api() {
    let Some(database) = PostgresServer::start() else {
        return;
    };
    let address = database.address(&database.create_database());
    let store = ["--store", &address];
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &store);
    home.run(&[&["user", "add", "ada"], &store[..]].concat())
        .expect(0);
    let (user_key, _) = home.add_key("ada", &store);
    // As if it was killed.
    database.stop(Signal::QUIT);

    let chat = json!({"model": "glovebox", "messages": [{"role": "user", "content": "Hello."}]});
    let message = json!({"initial_user_msg": "Hello."});
    let params = json!({"name": "list_conversations", "arguments": {}});
    let call =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let call = server
        .request(Method::POST, "/mcp")
        .body(call)
        .header("Content-Type", "application/json");
    let call = call.header("Accept", "application/json, text/event-stream");
    let requests = async {
        tokio::join!(
            server.send(Method::GET, "/api/conversations", None),
            server.send(Method::POST, "/api/conversations", Some(&message)),
            server.send(Method::GET, "/api/settings", None),
            server.send_as(&user_key, Method::GET, "/api/conversations", None),
            server.send(Method::POST, "/v1/chat/completions", Some(&chat)),
            server.send_as(&user_key, Method::GET, "/v1", None),
            async { call.send().await.unwrap().json::<Value>().await.unwrap() },
        )
    };
    let requests = tokio::time::timeout(TEST_TIMEOUT, requests)
        .await
        .expect("all are answered");
    let (list, create, settings, user, chat, models, called) = requests;
    for (status, body) in [list, create, settings, user] {
        assert_eq!(
            (status, &body["msg_id"]),
            (StatusCode::SERVICE_UNAVAILABLE, &json!(UNAVAILABLE)),
            "{body}"
        );
    }
    for (status, body) in [chat, models] {
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
        assert_eq!(body["error"]["code"], UNAVAILABLE, "{body}");
    }
    let result = &called["result"];
    assert_eq!(
        (&result["isError"], &result["structuredContent"]["code"]),
        (&json!(true), &json!(UNAVAILABLE))
    );

    database.restart();
    recovered(&server).await;
    server.terminate();
}

/// Time after which each request is answered while the store hangs, as documented.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(60);

#[tokio::test]
async fn each_request_is_answered_in_time_while_the_store_hangs() {
    let Some(database) = PostgresServer::start() else {
        return;
    };
    let address = database.address(&database.create_database());
    let home = Home::new();
    let server = HostServer::start(
        &home,
        &home.script(&json!([finish()])),
        &["--store", &address],
    );
    let id = server.create("Hello.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    database.hang(true);
    let conversation = format!("/api/conversations/{id}");
    let (message, title) = (json!({"message": "more"}), json!({"title": "x"}));
    let [message_path, stop_path, events_path] =
        ["message", "stop", "events"].map(|name| format!("{conversation}/{name}"));
    let requests = async {
        tokio::join!(
            server.send(Method::GET, "/api/conversations", None),
            server.send(Method::POST, &message_path, Some(&message)),
            server.send(Method::POST, &stop_path, None),
            server.send(Method::PATCH, &conversation, Some(&title)),
            server.send(Method::GET, &events_path, None),
            server.send(Method::DELETE, &conversation, None),
        )
    };
    let requests = tokio::time::timeout(MAX_ANSWER_TIME, requests)
        .await
        .expect("all are answered");
    let (list, sent, stopped, renamed, events, deleted) = requests;
    for (status, body) in [list, sent, stopped, renamed, events, deleted] {
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    }
    database.hang(false);
    recovered(&server).await;
    server.terminate();
}

/// Waits until the server has its store again.
async fn recovered(server: &HostServer) {
    let recovered = async {
        while server.send(Method::GET, "/api/conversations", None).await.0 != StatusCode::OK {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, recovered)
        .await
        .expect("the server recovers");
}
