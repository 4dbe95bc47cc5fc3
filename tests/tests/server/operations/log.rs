//! The log of a server, with the ids of requests and conversations.

use reqwest::Method;
use serde_json::{Value, json};
use tests::glovebox::{Home, finish, wait_until};
use tests::host_server::HostServer;

#[tokio::test]
async fn log_lines_of_a_request_have_its_id() {
    let home = Home::new();
    let arguments = [
        "--log-format",
        "json",
        "--log-level",
        "info,tower_http=debug",
    ];
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &arguments);
    let path = "/api/conversations/abc/events?start_id=0&session_api_key=secret";
    let response = server
        .request(Method::GET, path)
        .header("x-request-id", "chosen")
        .send()
        .await
        .unwrap();
    let id = response.headers()["x-request-id"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(
        id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{id}"
    );
    let log = || std::fs::read_to_string(home.path().join("serve.log")).unwrap();
    wait_until("the request is logged", || log().matches(&id).count() >= 2);
    assert!(
        !log().contains("secret") && !log().contains("chosen"),
        "{}",
        log()
    );
    server.terminate();
    let log = log();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let own: Vec<_> = lines
        .iter()
        .filter(|line| line["span"]["id"] == *id)
        .collect();
    let response = own
        .iter()
        .find(|line| line["fields"]["status"] == 404)
        .unwrap_or_else(|| panic!("{log}"));
    let span = &response["span"];
    assert_eq!(
        (&span["name"], &span["method"]),
        (&json!("request"), &json!("GET"))
    );
    assert_eq!(
        (&span["path"], &span["conversation"]),
        (&json!("/api/conversations/abc/events"), &json!("abc"))
    );
    assert_eq!(span["client"], "127.0.0.1");
}
