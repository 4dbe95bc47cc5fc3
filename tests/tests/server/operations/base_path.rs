//! A server below a path, as behind a reverse proxy that forwards a folder of its host.

use reqwest::Method;
use reqwest::header::{LOCATION, SET_COOKIE};
use serde_json::{Value, json};
use tests::glovebox::{Home, finish};
use tests::host_server::{HostServer, is_state};
use tests::postgres::PostgresServer;

/// Starts a server with a page below `/tools/glovebox`, which is part of its URL.
fn start(home: &Home) -> HostServer {
    home.write("page/index.html", "<p>page");
    let page = home.path().join("page");
    let arguments = [
        "--base-path",
        "/tools/glovebox",
        "--allow-host",
        "127.0.0.1",
        "--static",
        page.to_str().unwrap(),
    ];
    HostServer::start(home, &home.script(&json!([finish()])), &arguments)
}

#[tokio::test]
async fn all_routes_are_below_the_base_path() {
    let home = Home::new();
    let mut server = start(&home);
    assert!(server.url.ends_with("/tools/glovebox"), "{}", server.url);
    let id = server.create("Finish.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    let (connected, _) = server.connect_socket(&server.key, &id).await;
    assert!(connected.starts_with("40"), "{connected}");
    for path in ["/alive", "/ready", "/metrics", "/api/docs"] {
        assert_eq!(
            server.status_with_key(path, Some(&server.key)).await,
            200,
            "{path}"
        );
    }
    let document = server.get("/api/openapi.json").await;
    assert_eq!(document["servers"], json!([{"url": "/tools/glovebox"}]));
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;

    let below = std::mem::take(&mut server.url);
    server.url = below.strip_suffix("/tools/glovebox").unwrap().to_owned();
    for path in [
        "/alive",
        "/",
        "/api/conversations",
        "/sign-in",
        "/tools",
        "/tools/gloveboxes",
        "/socket.io/?EIO=4&transport=polling",
    ] {
        let response = server.request(Method::GET, path).send().await.unwrap();
        assert_eq!(response.status(), 404, "{path}");
        assert_eq!(
            response.json::<Value>().await.unwrap()["msg_id"],
            "API$NO_ROUTE",
            "{path}"
        );
    }
    server.terminate();
    home.assert_nothing_runs();
}

#[tokio::test]
async fn session_of_a_page_is_below_the_base_path() {
    let home = Home::new();
    let server = start(&home);
    let get = |path: &str| server.request_without_key(Method::GET, path);
    for path in ["", "/", "/conversations/a"] {
        let response = get(path).send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()[LOCATION]),
            (303, &"/tools/glovebox/sign-in".parse().unwrap())
        );
    }
    let form = server
        .request_without_key(Method::POST, "/sign-in")
        .body(format!("key={}", server.key));
    let form = form.header("Content-Type", "application/x-www-form-urlencoded");
    let signed_in = form.send().await.unwrap();
    assert_eq!(signed_in.headers()[LOCATION], "/tools/glovebox/");
    let cookie = signed_in.headers()[SET_COOKIE].to_str().unwrap();
    assert!(cookie.contains("; Path=/tools/glovebox;"), "{cookie}");
    let session = cookie.split(';').next().unwrap();
    let page = get("/").header("Cookie", session).send().await.unwrap();
    assert_eq!(page.text().await.unwrap(), "<p>page");
    let list = get("/api/conversations")
        .header("Cookie", session)
        .send()
        .await
        .unwrap();
    assert_eq!(list.status(), 200);
    let out = server
        .request_without_key(Method::POST, "/sign-out")
        .header("Cookie", session);
    let out = out.send().await.unwrap();
    let cookie = out.headers()[SET_COOKIE].to_str().unwrap();
    assert!(
        cookie.contains("; Path=/tools/glovebox;") && cookie.contains("Max-Age=0"),
        "{cookie}"
    );
    server.terminate();
}

#[tokio::test]
async fn other_host_is_reached_below_the_base_path() {
    let Some(database) = PostgresServer::start() else {
        return;
    };
    let address = database.address(&database.create_database());
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    let start = || {
        HostServer::start(
            &home,
            &model,
            &["--base-path", "/glovebox", "--store", &address],
        )
    };
    let [first, second] = [start(), start()];
    let id = first.create("Finish.").await;
    first
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    // Only the first one can stop it.
    let stopped = second
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    assert_eq!(stopped["conversation_status"], "STOPPED");
    first.terminate();
    second.terminate();
    home.assert_nothing_runs();
}

#[test]
fn invalid_base_path_is_refused() {
    let home = Home::new();
    for path in ["glovebox", "/../x", "/a b", "/a?b"] {
        let output = home
            .glovebox(&["serve", "--base-path", path])
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && error.contains("expected a path such as /glovebox"),
            "{error}"
        );
    }
}
