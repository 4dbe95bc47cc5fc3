//! The MCP endpoint, with the client from PyPI.

use std::process::Stdio;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::glovebox::{Home, TEST_TIMEOUT, bash, finish};
use tests::host_server::{HostServer, is_state};

use crate::test_packages::pypi_packages;

/// Calls the tools in its last argument, a JSON list of names and arguments, and prints the results
/// as JSON lines. `ID` is the conversation of the first result, `DETAIL` the last detail of an
/// outcome.
const CLIENT: &str = r"
import asyncio, json, sys
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
url, key, mode, calls = sys.argv[1:]

async def main():
    http = httpx2.AsyncClient(headers={'Authorization': 'Bearer ' + key}, trust_env=False, timeout=60)
    async with Client(streamable_http_client(url + '/mcp', http_client=http), mode=mode) as client:
        known = {}
        for name, arguments in json.loads(calls):
            if name == 'list':
                print(json.dumps([tool.name for tool in (await client.list_tools()).tools]), flush=True)
                continue
            arguments = {key: known.get(value, value) for key, value in arguments.items()}
            result = await client.call_tool(name, arguments)
            assert json.loads(result.content[0].text) == result.structured_content
            known.setdefault('ID', result.structured_content.get('conversation_id'))
            known['DETAIL'] = result.structured_content.get('detail') or known.get('DETAIL')
            print(json.dumps({'is_error': result.is_error, **result.structured_content}), flush=True)

asyncio.run(main())
";

/// Calls tools with the client. Returns the results, or the last line of the error.
async fn call(
    server: &HostServer,
    key: &str,
    mode: &str,
    calls: Value,
) -> Result<Vec<Value>, String> {
    let mut command = tokio::process::Command::new("python3");
    command
        .args(["-c", CLIENT, &server.url, key, mode, &calls.to_string()])
        .stdin(Stdio::null());
    command.env("PYTHONPATH", pypi_packages().unwrap());
    let output = tokio::time::timeout(TEST_TIMEOUT, command.kill_on_drop(true).output());
    let output = output.await.expect("the client ends").unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8(output.stdout).unwrap();
    Ok(text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect())
}

/// Clients with and without the handshake of the older versions of the protocol.
#[tokio::test]
async fn other_agent_starts_watches_and_steers_a_conversation() {
    if pypi_packages().is_none() {
        return;
    }
    let home = Home::new();
    let model = home.script(&json!([{"text": "What is your name?"}, bash("echo hello"), finish()]));
    let server = HostServer::start(&home, &model, &[]);
    for mode in ["legacy", "auto"] {
        let calls = json!([
            ["list", {}],
            ["start_conversation", {"message": "Greet me.", "instructions": "Be brief."}],
            ["wait", {"conversation_id": "ID"}],
            ["send_message", {"conversation_id": "ID", "message": "Ada"}],
            ["wait", {"conversation_id": "ID", "timeout_secs": 30}],
            ["read_events", {"conversation_id": "ID", "limit": 100}],
            ["list_conversations", {"limit": 1}],
            ["stop_conversation", {"conversation_id": "ID"}],
            ["wait", {"conversation_id": "ID"}],
        ]);
        let results = call(&server, &server.key, mode, calls).await.unwrap();
        let names = results[0].as_array().unwrap();
        assert_eq!((names.len(), &names[0]), (7, &json!("start_conversation")));
        let id = results[1]["conversation_id"].as_str().unwrap();
        assert_eq!(
            (&results[2]["outcome"], &results[2]["answer"]),
            (&json!("awaiting_message"), &json!("What is your name?")),
            "{results:#?}"
        );
        assert_eq!(results[3]["last_event_id"], results[2]["last_event_id"]);
        assert_eq!(
            (&results[4]["outcome"], &results[4]["answer"]),
            (&json!("finished"), &json!("Done."))
        );
        let events = results[5]["events"].as_array().unwrap();
        assert!(
            events
                .iter()
                .any(|event| event["observation"] == "run" && event["content"] == "hello")
        );
        assert_eq!(
            (&results[5]["has_more"], &results[5]["last_event_id"]),
            (&json!(false), &results[4]["last_event_id"])
        );
        let listed = &results[6]["conversations"][0];
        assert_eq!(
            (&listed["conversation_id"], &listed["agent_state"]),
            (&json!(id), &json!("finished"))
        );
        assert_eq!(results[7]["status"], "STOPPED");
        assert!(
            ["stopped", "finished"]
                .iter()
                .any(|outcome| results[8]["outcome"] == *outcome),
            "{results:#?}"
        );
        assert!(
            results[1..]
                .iter()
                .all(|result| result["is_error"] == false),
            "{results:#?}"
        );
    }
    server.terminate();
    home.assert_nothing_runs();
}

#[tokio::test]
async fn wait_ends_at_its_time_and_for_a_decision() {
    if pypi_packages().is_none() {
        return;
    }
    let home = Home::new();
    let server = HostServer::start(
        &home,
        &home.script(&json!([bash("sleep 2; echo hello"), finish()])),
        &[],
    );
    server
        .post("/api/settings", &json!({"confirmation_mode": true}))
        .await;
    let calls = json!([
        ["start_conversation", {"message": "Say hello."}],
        ["wait", {"conversation_id": "ID"}],
        ["decide", {"conversation_id": "ID", "action_id": 0, "decision": "confirm"}],
        ["decide", {"conversation_id": "ID", "action_id": "DETAIL", "decision": "confirm"}],
        ["wait", {"conversation_id": "ID", "timeout_secs": 0}],
        ["wait", {"conversation_id": "ID"}],
        ["decide", {"conversation_id": "ID", "action_id": "DETAIL", "decision": "reject"}],
    ]);
    let results = call(&server, &server.key, "auto", calls).await.unwrap();
    assert_eq!(results[1]["outcome"], "awaiting_confirmation");
    let id = results[0]["conversation_id"].as_str().unwrap();
    let events = server
        .wait_for_event(id, |event| is_state(event, "finished"))
        .await;
    let run = events
        .iter()
        .find(|event| event["action"] == "run")
        .unwrap();
    assert_eq!(results[1]["detail"], run["id"]);
    assert_eq!(
        (&results[4]["outcome"], &results[5]["outcome"]),
        (&json!("working"), &json!("finished"))
    );
    for refused in [&results[2], &results[6]] {
        assert_eq!(
            (&refused["is_error"], &refused["code"]),
            (&json!(true), &json!("CONVERSATION$CONFLICT"))
        );
    }
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    server.terminate();
}

#[tokio::test]
async fn keys_and_owners_hold_for_tools() {
    if pypi_packages().is_none() {
        return;
    }
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let [ada, ben] = ["ada", "ben"].map(|name| home.add_user(name));
    let (reader, _) = home.add_key("ada", &["--scope", "read"]);
    let refused = call(&server, "wrong", "auto", json!([["list", {}]]))
        .await
        .unwrap_err();
    assert!(
        refused.contains("Server returned an error response"),
        "{refused}"
    );
    for key in [None, Some("wrong")] {
        let request = server.request_without_key(Method::POST, "/mcp").body("{}");
        let request = key
            .into_iter()
            .fold(request, |request, key| request.bearer_auth(key));
        assert_eq!(
            request.send().await.unwrap().status(),
            StatusCode::UNAUTHORIZED
        );
    }
    let created = call(
        &server,
        &ada,
        "auto",
        json!([["start_conversation", {"message": "Go."}]]),
    )
    .await;
    let id = created.unwrap()[0]["conversation_id"]
        .as_str()
        .unwrap()
        .to_owned();
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;

    let of = |id: &str| {
        json!([
            ["send_message", {"conversation_id": id, "message": "Hi."}],
            ["stop_conversation", {"conversation_id": id}],
            ["decide", {"conversation_id": id, "action_id": 0, "decision": "confirm"}],
            ["read_events", {"conversation_id": id}],
            ["wait", {"conversation_id": id}],
        ])
    };
    let unknown = "0".repeat(id.len());
    let (of_ada, of_none) = (
        call(&server, &ben, "auto", of(&id)).await,
        call(&server, &ben, "auto", of(&unknown)).await,
    );
    let of_none = of_none.unwrap();
    assert_eq!(
        json!(of_ada.unwrap()).to_string().replace(&id, &unknown),
        json!(of_none).to_string()
    );
    for result in &of_none {
        assert_eq!(
            (&result["is_error"], &result["code"]),
            (&json!(true), &json!("CONVERSATION$NOT_FOUND"))
        );
    }
    let own = call(&server, &ben, "auto", json!([["list_conversations", {}]]))
        .await
        .unwrap();
    assert_eq!(own[0]["conversations"], json!([]));

    let mut calls = of(&id);
    calls
        .as_array_mut()
        .unwrap()
        .push(json!(["start_conversation", {"message": "Go."}]));
    let results = call(&server, &reader, "auto", calls).await.unwrap();
    let codes: Vec<_> = results
        .iter()
        .map(|result| result["code"].as_str())
        .collect();
    let refused = Some("AUTH$READ_ONLY_KEY");
    assert_eq!(codes, [refused, refused, refused, None, None, refused]);
    assert_eq!(results[4]["outcome"], "finished");

    let output = home
        .glovebox(&["audit", "--json", "--user", "ada"])
        .output()
        .unwrap();
    let rows = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Value> = rows
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let rows: Vec<_> = rows
        .iter()
        .filter(|row| row["action"].as_str().unwrap().starts_with("mcp "))
        .map(|row| {
            (
                row["action"].as_str().unwrap(),
                row["conversation"] == id,
                row["status"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("mcp start_conversation", true, 200),
            ("mcp send_message", true, 403),
            ("mcp stop_conversation", true, 403),
            ("mcp decide", true, 403),
            ("mcp start_conversation", false, 403),
        ]
    );
}

#[tokio::test]
async fn invalid_calls_are_errors_of_the_client() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let send = async |method: Method, body: String| {
        let request = server.request(method, "/mcp").body(body);
        let request = request.header("Accept", "application/json, text/event-stream");
        let response = request
            .header("Content-Type", "application/json")
            .send()
            .await
            .unwrap();
        let (status, text) = (response.status(), response.text().await.unwrap());
        (
            status,
            serde_json::from_str::<Value>(&text).unwrap_or(Value::String(text)),
        )
    };
    for (method, body, expected, code) in [
        (Method::GET, String::new(), 405, -32600),
        (Method::DELETE, String::new(), 405, -32600),
        (Method::POST, String::new(), 400, -32700),
        (Method::POST, "{".to_owned(), 400, -32700),
        (Method::POST, "[]".to_owned(), 400, -32600),
        (
            Method::POST,
            json!({"jsonrpc": "2.0", "id": 1}).to_string(),
            400,
            -32600,
        ),
    ] {
        let (status, response) = send(method.clone(), body.clone()).await;
        assert_eq!(
            (status.as_u16(), &response["error"]["code"]),
            (expected, &json!(code)),
            "{body}: {response}"
        );
        assert_eq!(response["jsonrpc"], "2.0");
    }
    for (header, value, expected) in [
        ("Accept", "text/html", 406),
        ("Content-Type", "text/plain", 415),
    ] {
        let request = server
            .request(Method::POST, "/mcp")
            .header("Content-Type", "application/json");
        let request = request.header("Accept", "application/json, text/event-stream");
        let headers = [(
            reqwest::header::HeaderName::try_from(header).unwrap(),
            value.parse().unwrap(),
        )];
        let response = request
            .headers(headers.into_iter().collect())
            .body("{}")
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), expected, "{header}: {value}");
        assert_eq!(
            response.json::<Value>().await.unwrap()["error"]["code"],
            -32600,
            "{header}: {value}"
        );
    }
    let call = async |name: &str, arguments: Value| {
        let params = json!({"name": name, "arguments": arguments});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let (status, response) = send(Method::POST, message.to_string()).await;
        assert_eq!(status, StatusCode::OK, "{response}");
        response
    };
    assert_eq!(call("none", json!({})).await["error"]["code"], -32602);
    for (tool, arguments, field) in [
        ("start_conversation", json!({}), "arguments"),
        ("start_conversation", json!({"message": " "}), "message"),
        (
            "start_conversation",
            json!({"message": "Go.", "agent": "none"}),
            "agent",
        ),
        (
            "start_conversation",
            json!({"message": "x".repeat(256 << 10) + "y"}),
            "message",
        ),
        (
            "start_conversation",
            json!({"message": "Go.", "instructions": "x".repeat(1 << 20)}),
            "instructions",
        ),
        (
            "start_conversation",
            json!({"message": "Go.", "volumes": "/:/host"}),
            "volumes",
        ),
        (
            "read_events",
            json!({"conversation_id": "../a"}),
            "conversation_id",
        ),
        ("list_conversations", json!({"limit": 0}), "limit"),
        ("list_conversations", json!({"limit": "x"}), "limit"),
        ("list_conversations", json!({"page_id": "x"}), "page_id"),
        (
            "decide",
            json!({"conversation_id": "a", "action_id": 0, "decision": "maybe"}),
            "decision",
        ),
    ] {
        let result = &call(tool, arguments.clone()).await["result"];
        let error = &result["structuredContent"];
        assert_eq!(
            (&result["isError"], &error["code"], &error["field"]),
            (&json!(true), &json!("API$INVALID_REQUEST"), &json!(field)),
            "{tool} {arguments:.100}: {result}"
        );
    }
    let foreign = server
        .request(Method::POST, "/mcp")
        .header("Origin", "http://evil.example");
    assert_eq!(
        foreign.send().await.unwrap().status(),
        StatusCode::FORBIDDEN
    );
    assert_eq!(server.get("/api/conversations").await["results"], json!([]));
    let long = server
        .request(Method::POST, "/mcp")
        .header("Accept", "application/json, text/event-stream");
    let long = long
        .header("Content-Type", "application/json")
        .body(" ".repeat(5 << 20))
        .send()
        .await;
    // The response may be sent, and the connection closed, before the end of the body.
    assert!(long.is_err() || long.unwrap().status() == StatusCode::PAYLOAD_TOO_LARGE);
}
