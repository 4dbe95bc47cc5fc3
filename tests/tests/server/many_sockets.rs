//! Many sockets of one conversation, and one whose client does not read.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use engine::events::EventStore as _;
use protocol::action::ThinkAction;
use protocol::record::ConversationStarted;
use protocol::{Action, Event, EventBody, EventId, EventSource, Record, Timestamp};
use reqwest::Method;
use serde_json::json;
use storage::{Durability, SqliteStore};
use tests::glovebox::{Home, TEST_TIMEOUT, finish, tool_call};
use tests::host_server::{HostServer, is_state};
use tests::server_sent_events::ServerSentEvents;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::test_packages::pypi_packages;

const SOCKETS: usize = 1000;

/// Events of a conversation of 20 MB.
const LONG: u64 = 100;

/// Connects this many sockets, prints a line, and then how many of them have received each list of
/// actions. Observations can differ: of the states that are stored when a socket connects, only the
/// last one is sent. Speaks the packets of socket.io itself, because its own client needs more time
/// for 1,000 sockets than a test has.
const CLIENT: &str = r"
import asyncio, collections, json, sys
import aiohttp
url, key, count = sys.argv[1], sys.argv[2], int(sys.argv[3])

async def follow(session, connected):
    events = []
    async with session.ws_connect(url, max_msg_size=0) as socket:
        async for message in socket:
            packet = message.data
            if packet.startswith('0'):
                await socket.send_str('40')
            elif packet.startswith('40'):
                connected.release()
            elif packet == '2':
                await socket.send_str('3')
            elif packet.startswith('42'):
                event = json.loads(packet[2:])[1]
                if 'action' in event:
                    events.append(event['id'])
                if event.get('extras', {}).get('agent_state') == 'finished':
                    break
    return tuple(events)

async def main():
    connected = asyncio.Semaphore(0)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers={'X-Session-API-Key': key}, connector=connector) as session:
        following = [asyncio.create_task(follow(session, connected)) for _ in range(count)]
        for _ in range(count):
            await connected.acquire()
        print('connected', flush=True)
        lists = collections.Counter(await asyncio.gather(*following))
        print(json.dumps(list(lists.items())), flush=True)

asyncio.run(main())
";

#[tokio::test]
async fn thousand_sockets_receive_each_event_once() {
    const THOUGHTS: usize = 10;
    let Some(packages) = pypi_packages() else {
        return;
    };
    let home = Home::new();
    // The thoughts differ, because an agent that repeats itself is stopped.
    let think = |step| tool_call("think", &json!({"thought": format!("Thought {step}.")}));
    let script: Vec<_> = [json!({"text": "Ready."})]
        .into_iter()
        .chain((0..THOUGHTS).map(think))
        .chain([finish()])
        .collect();
    let server = HostServer::start(&home, &home.script(&json!(script)), &[]);
    let id = server.create("Get ready.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "awaiting_user_input"))
        .await;
    let socket = format!(
        "{}/socket.io/?EIO=4&transport=websocket&conversation_id={id}",
        server.url
    );
    let mut client = Command::new("python3");
    client
        .env("PYTHONPATH", packages)
        .args(["-c", CLIENT, &socket, &server.key]);
    client
        .arg(SOCKETS.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut client = tokio::process::Command::from(client)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    let mut line = async || {
        let line = tokio::time::timeout(TEST_TIMEOUT, lines.next_line()).await;
        line.expect("the client continues")
            .unwrap()
            .expect("the client has not failed")
    };
    assert_eq!(line().await, "connected");
    server
        .post(
            &format!("/api/conversations/{id}/message"),
            &json!({"message": "Think."}),
        )
        .await;
    let lists: Vec<(Vec<u64>, usize)> = serde_json::from_str(&line().await).unwrap();
    let [(ids, count)] = lists.as_slice() else {
        panic!("the sockets received different events: {lists:?}")
    };
    assert_eq!(*count, SOCKETS);
    assert!(ids.is_sorted_by(|before, after| before < after), "{ids:?}");
    let stored = server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    let thoughts = stored.iter().filter(|event| event["action"] == "think");
    let thoughts: Vec<_> = thoughts
        .map(|event| event["id"].as_u64().unwrap())
        .collect();
    assert_eq!(thoughts.len(), THOUGHTS);
    assert!(
        thoughts.iter().all(|id| ids.contains(id)),
        "{thoughts:?} {ids:?}"
    );
    server.terminate();
}

/// Connects a WebSocket and reads only the response to its upgrade.
fn connect_silent(server: &HostServer, path: &str) -> TcpStream {
    let host = server.url.strip_prefix("http://").unwrap();
    let mut socket = TcpStream::connect(host).unwrap();
    let key = &server.key;
    write!(
        socket,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nX-Session-API-Key: {key}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    .unwrap();
    let mut head = [0; 12];
    socket.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 101");
    socket
}

/// Appends a conversation whose events have more bytes than the buffers of a connection.
async fn fill(home: &Home) {
    let file = home
        .write(".glovebox/empty", "")
        .with_file_name("glovebox.db");
    let store = SqliteStore::open(file, Durability::default())
        .await
        .unwrap();
    let timestamp = Timestamp::try_from("2026-01-02T03:04:05.678901".to_owned()).unwrap();
    let thought = "x".repeat(200_000);
    for id in 0..LONG {
        let body: EventBody = match id {
            0 => Record::from(ConversationStarted::default()).into(),
            _ => Action::from(ThinkAction {
                thought: thought.clone(),
            })
            .into(),
        };
        let event = Event::new(EventId(id), timestamp.clone(), EventSource::Agent, body);
        store
            .append(&"long".parse().unwrap(), &[event])
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn sockets_that_never_read_delay_no_other_client() {
    let home = Home::new();
    fill(&home).await;
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let stream = "/api/v2/conversations/long/stream";
    let socket_io = "/socket.io/?EIO=4&transport=websocket&conversation_id=long";
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(connect_silent(&server, stream));
        let mut socket = connect_silent(&server, socket_io);
        // The masked text frame `40`, which connects to the name space.
        socket
            .write_all(&[0x81, 0x82, 0, 0, 0, 0, b'4', b'0'])
            .unwrap();
        silent.push(socket);
    }
    let response = server.request(Method::GET, stream).send().await.unwrap();
    let mut events = ServerSentEvents::new(response);
    for id in 1..LONG {
        assert_eq!(events.next().await["id"], id.to_string());
    }
    let created = server.create("Finish.").await;
    server
        .wait_for_event(&created, |event| is_state(event, "finished"))
        .await;
    server.terminate();
    drop(silent);
}
