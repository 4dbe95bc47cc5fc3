//! Streams of a conversation, as server-sent events and as a WebSocket.

use std::process::Stdio;

use reqwest::Method;
use serde_json::{Value, json};
use tests::glovebox::{Home, TEST_TIMEOUT, bash, finish};
use tests::host_server::{HostServer, is_state};
use tests::server_sent_events::ServerSentEvents;

use crate::test_packages::pypi_packages;

/// Prints the messages of a stream as JSON lines until the agent has finished.
const WEBSOCKET_CLIENT: &str = r"
import asyncio, json, sys
import aiohttp
url, key = sys.argv[1:]

async def main():
    async with aiohttp.ClientSession(headers={'X-Session-API-Key': key}) as session:
        async with session.ws_connect(url) as socket:
            async for message in socket:
                print(message.data, flush=True)
                if json.loads(message.data)['type'] == 'waiting':
                    return

asyncio.run(main())
";

/// Reads server-sent events until the agent waits for the user. Returns `{type, id, data}` of each.
async fn server_sent_events(server: &HostServer, path: &str) -> Vec<Value> {
    let mut events = ServerSentEvents::new(server.request(Method::GET, path).send().await.unwrap());
    let mut messages = Vec::new();
    loop {
        messages.push(events.next().await);
        if messages
            .last()
            .is_some_and(|message| message["type"] == "waiting")
        {
            return messages;
        }
    }
}

#[tokio::test]
async fn stream_has_events_output_and_the_end_of_work() {
    let home = Home::new();
    let command = "printf 'a%.0s' 1 2 3; sleep 1; printf b";
    let server = HostServer::start(&home, &home.script(&json!([bash(command), finish()])), &[]);
    let id = server.create("Write.").await;
    let path = format!("/api/v2/conversations/{id}/stream");
    let messages = server_sent_events(&server, &path).await;
    let output = messages
        .iter()
        .filter(|message| message["type"] == "output");
    let output: Vec<_> = output
        .map(|message| (&message["data"]["offset"], &message["data"]["text"]))
        .collect();
    assert_eq!(
        output.last().unwrap(),
        &(&json!(3), &json!("b")),
        "{output:?}"
    );
    let ids: Vec<u64> = messages
        .iter()
        .filter_map(|message| message["id"].as_str()?.parse().ok())
        .collect();
    assert!(ids.is_sorted() && !ids.is_empty(), "{ids:?}");
    assert!(
        is_state(&messages[messages.len() - 2]["data"], "finished"),
        "{messages:#?}"
    );

    // A client continues after its last event.
    let last = ids[ids.len() - 3];
    let rest = server_sent_events(&server, &format!("{path}?after={last}")).await;
    let rest: Vec<u64> = rest
        .iter()
        .filter_map(|message| message["id"].as_str()?.parse().ok())
        .collect();
    assert_eq!(rest, ids[ids.len() - 2..]);
    assert_eq!(
        server
            .send(Method::GET, &format!("{path}?after=x"), None)
            .await
            .0,
        422
    );
    assert_eq!(
        server
            .send(Method::GET, "/api/v2/conversations/none/stream", None)
            .await
            .0,
        404
    );
}

#[tokio::test]
async fn websocket_has_the_same_messages() {
    let Some(packages) = pypi_packages() else {
        return;
    };
    let home = Home::new();
    let server = HostServer::start(
        &home,
        &home.script(&json!([bash("echo hello"), finish()])),
        &[],
    );
    let id = server.create("Say hello.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    let path = format!("/api/v2/conversations/{id}/stream");
    let mut client = tokio::process::Command::new("python3");
    client.args([
        "-c",
        WEBSOCKET_CLIENT,
        &format!("{}{path}", server.url),
        &server.key,
    ]);
    client
        .env("PYTHONPATH", packages)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(TEST_TIMEOUT, client.output())
        .await
        .expect("the client ends")
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let received: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let expected = server_sent_events(&server, &path).await;
    let key = |message: &Value| (message["type"].clone(), message["data"].clone());
    assert!(
        received.iter().map(key).eq(expected.iter().map(key)),
        "{received:#?} {expected:#?}"
    );
}
