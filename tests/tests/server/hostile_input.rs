//! Bodies and messages of sockets that are long, have very many values, or never end: what they
//! cost, and what other users wait for.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::glovebox::{Home, TEST_TIMEOUT, finish};
use tests::host_server::{HostServer, is_state};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time in which other users are served while a client sends too much. A debug build on a busy
/// machine is slow.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Memory for what a user sends (64 MiB), for what is made of it, and for what the allocator keeps.
const MAX_INCREASE: usize = 256 << 20;

/// Number of connections that send what never ends.
const UNFINISHED: usize = 20;

/// Number of attackers' messages that arrive together.
const MESSAGES: usize = 4;

/// Starts a request, and sends the first bytes of its body.
async fn send_unfinished(
    server: &HostServer,
    head: &str,
    declared: usize,
    sent: usize,
) -> TcpStream {
    let host = server.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).await.unwrap();
    let head = format!("{head}\r\nHost: {host}\r\nContent-Length: {declared}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    // Fails if the server has responded already, and never ends while the server does not read.
    let _ = stream.write_all(&vec![b'A'; sent]).await;
    stream
}

/// A client of socket.io over a WebSocket.
struct Socket(TcpStream);

impl Socket {
    /// Connects to a conversation.
    async fn connect(server: &HostServer, key: &str, id: &str) -> Self {
        let host = server.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(host).await.unwrap();
        let head = format!(
            "GET /socket.io/?EIO=4&transport=websocket&conversation_id={id} HTTP/1.1\r\nHost: {host}\r\nX-Session-API-Key: \
             {key}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: \
             dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"\r\n\r\n") {
            received.push(stream.read_u8().await.unwrap());
        }
        let mut socket = Self(stream);
        socket.wait_for("0").await;
        socket.send("40").await.unwrap();
        socket.wait_for("40").await;
        socket
    }

    /// Sends a packet. Fails if the server closes the connection.
    async fn send(&mut self, packet: &str) -> std::io::Result<()> {
        self.start(packet.len()).await?;
        self.0.write_all(packet.as_bytes()).await
    }

    /// Sends the header of a frame, with an empty mask.
    async fn start(&mut self, length: usize) -> std::io::Result<()> {
        let mut header = vec![0x81, 0xff];
        header.extend((length as u64).to_be_bytes());
        header.extend([0; 4]);
        self.0.write_all(&header).await
    }

    /// Returns the next packet. `None` if the connection is closed.
    async fn next(&mut self) -> Option<String> {
        let length = match self.0.read_u16().await.ok()? {
            0x817f => self.0.read_u64().await.ok()?,
            0x817e => self.0.read_u16().await.ok()?.into(),
            head @ 0x8100..0x817e => u64::from(head & 0x7f),
            _ => return None,
        };
        let mut packet = vec![0; length as usize];
        self.0.read_exact(&mut packet).await.ok()?;
        Some(String::from_utf8(packet).unwrap())
    }

    async fn wait_for(&mut self, prefix: &str) -> String {
        let waiting = async {
            loop {
                let packet = self.next().await.expect("the connection is open");
                if packet.starts_with(prefix) {
                    return packet;
                }
            }
        };
        timeout(TEST_TIMEOUT, waiting).await.expect(prefix)
    }

    /// Sends a packet, and waits until the server closes the connection.
    async fn send_until_closed(&mut self, packet: &str) {
        let sending = async {
            if self.send(packet).await.is_ok() {
                while self.next().await.is_some() {}
            }
        };
        timeout(TEST_TIMEOUT, sending)
            .await
            .expect("the socket is closed");
    }
}

/// A server with the users ada and ben, each with a conversation.
struct Users {
    server: HostServer,
    ada: String,
    ben: String,
    id: String,
    id_of_ben: String,
}

impl Users {
    async fn start(home: &Home, arguments: &[&str]) -> Self {
        let server = HostServer::start(home, &home.script(&json!(vec![finish(); 8])), arguments);
        let [ada, ben] = ["ada", "ben"].map(|name| home.add_user(name));
        let mut ids = Vec::new();
        for key in [&ada, &ben] {
            let body = json!({"initial_user_msg": "Hello."});
            let (_, created) = server
                .send_as(key, Method::POST, "/api/conversations", Some(&body))
                .await;
            let id = created["conversation_id"].as_str().unwrap().to_owned();
            server
                .wait_for_event(&id, |event| is_state(event, "finished"))
                .await;
            ids.push(id);
        }
        let [id, id_of_ben] = ids.try_into().unwrap();
        Self {
            server,
            ada,
            ben,
            id,
            id_of_ben,
        }
    }

    /// Runs an attack while ben sends requests. Fails if they wait.
    async fn attack<T>(&self, attack: impl Future<Output = T>) -> T {
        let is_over = tokio_util::sync::CancellationToken::new();
        let requests = async {
            let mut waits = Vec::new();
            loop {
                tokio::time::sleep(Duration::from_millis(10)).await;
                let started = Instant::now();
                let events = format!("/api/conversations/{}/events?limit=1", self.id_of_ben);
                for path in ["/alive", &events] {
                    let (status, _) = self
                        .server
                        .send_as(&self.ben, Method::GET, path, None)
                        .await;
                    assert_eq!(status, StatusCode::OK, "{path}");
                }
                // The last one is counted too: it may have waited for the end of the attack.
                waits.push(started.elapsed());
                if is_over.is_cancelled() {
                    return waits;
                }
            }
        };
        let attack = async {
            let result = attack.await;
            is_over.cancel();
            result
        };
        let (result, mut waits) = tokio::join!(attack, requests);
        // Nine of ten: a busy machine delays some in any case.
        waits.sort_unstable();
        let slow = waits[(waits.len() * 9 / 10).min(waits.len() - 1)];
        assert!(slow < MAX_WAIT, "{slow:?}, {} requests", waits.len());
        result
    }

    /// Returns how much memory the server takes while connections are open.
    async fn max_increase(&self, before: usize) -> usize {
        let mut max = 0;
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            max = max.max(self.server.memory_bytes().saturating_sub(before));
        }
        max
    }
}

/// Before they were counted, a frame of 28 MiB took seconds on a thread that serves all clients,
/// and a gigabyte.
#[tokio::test]
async fn frames_with_many_values_delay_no_other_user() {
    let home = Home::new();
    let users = Users::start(&home, &[]).await;
    let reader = home.add_key("ada", &["--scope", "read"]).0;
    let before = users.server.memory_bytes();
    let packet = |bytes: usize| {
        let values = "[],".repeat(bytes / 3);
        format!(
            r#"42["oh_user_action",{{"action":"message","args":{{"content":"x"}},"zz":[{values}0]}}]"#
        )
    };
    for (key, packet) in [
        (&reader, packet(28 << 20)),
        (&users.ada, packet(28 << 20)),
        (&users.ada, packet(9 << 20)),
    ] {
        let attack = (0..MESSAGES).map(|_| async {
            let mut socket = Socket::connect(&users.server, key, &users.id).await;
            socket.send_until_closed(&packet).await;
        });
        users.attack(futures_util::future::join_all(attack)).await;
    }
    let increase = users.max_increase(before).await;
    assert!(increase < MAX_INCREASE, "{} MiB", increase >> 20);
    users.server.terminate();
}

#[tokio::test]
async fn bodies_with_many_values_delay_no_other_user() {
    let home = Home::new();
    let users = Users::start(&home, &[]).await;
    let reader = home.add_key("ada", &["--scope", "read"]).0;
    let before = users.server.memory_bytes();
    let values = |bytes: usize| "[],".repeat(bytes / 3);
    let event = format!(
        r#"{{"action":"message","args":{{"content":"x"}},"zz":[{}0]}}"#,
        values(28 << 20)
    );
    let settings = format!(r#"{{"zz":[{}0]}}"#, values(1 << 19));
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"zz":[{}0]}}}}"#,
        values(3 << 19)
    );
    let trajectory = json!({"replay_json": format!("[{}0]", values(28 << 20))}).to_string();
    let events = format!("/api/conversations/{}/events", users.id);
    for (key, path, body, problem) in [
        (
            &users.ada,
            events.as_str(),
            &event,
            "body: must have at most 100000 values",
        ),
        (
            &users.ada,
            "/api/settings",
            &settings,
            "body: must have at most 100000 values",
        ),
        (
            &users.ada,
            "/api/conversations",
            &trajectory,
            "replay_json: must have at most 500000 values",
        ),
        (
            &reader,
            "/mcp",
            &call,
            "body: must have at most 10000 values",
        ),
    ] {
        let attack = (0..MESSAGES).map(|_| async {
            let request = users.server.request_without_key(Method::POST, path);
            let request = request
                .header("X-Session-API-Key", key)
                .header("Content-Type", "application/json");
            let request = request.header("Accept", "application/json, text/event-stream");
            let response = request.body(body.clone()).send().await.unwrap();
            (response.status(), response.text().await.unwrap())
        });
        for (status, text) in users.attack(futures_util::future::join_all(attack)).await {
            assert!(
                status == StatusCode::BAD_REQUEST && text.contains(problem),
                "{path}: {status} {text:.200}"
            );
        }
    }
    let increase = users.max_increase(before).await;
    assert!(increase < MAX_INCREASE, "{} MiB", increase >> 20);
    users.server.terminate();
}

#[tokio::test]
async fn unfinished_bodies_and_frames_use_little_memory() {
    const LENGTH: usize = 32 << 20;
    const SENT: usize = 31 << 20;
    let home = Home::new();
    let folder = home.write("page/index.html", "<p>page").with_file_name("");
    let users = Users::start(&home, &["--static", folder.to_str().unwrap()]).await;
    let (server, ada) = (&users.server, &users.ada);
    let before = server.memory_bytes();
    let form = "POST /sign-in HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded";
    let create = format!("POST /api/conversations HTTP/1.1\r\nX-Session-API-Key: {ada}");
    let bodies = (0..UNFINISHED)
        .flat_map(|_| [form, &create])
        .map(|head| send_unfinished(server, head, LENGTH, SENT));
    let mut bodies = Box::pin(futures_util::future::join_all(bodies));
    let (_, increase) = tokio::join!(
        timeout(Duration::from_secs(3), &mut bodies),
        users.max_increase(before)
    );
    assert!(increase < MAX_INCREASE, "{} MiB of bodies", increase >> 20);
    // Small requests of the same user, and large ones of others, are served.
    assert_eq!(
        server
            .send_as(ada, Method::POST, "/api/settings", Some(&json!({})))
            .await
            .0,
        StatusCode::OK
    );
    let message = json!({"message": "x".repeat(1 << 20)});
    let path = format!("/api/conversations/{}/message", users.id_of_ben);
    assert_eq!(
        server
            .send_as(&users.ben, Method::POST, &path, Some(&message))
            .await
            .0,
        StatusCode::OK
    );
    drop(bodies);

    let mut sockets = Vec::new();
    for _ in 0..UNFINISHED {
        sockets.push(Socket::connect(server, ada, &users.id).await);
    }
    let frames = sockets.iter_mut().map(|socket| async {
        socket.start(10 << 20).await?;
        socket.0.write_all(&vec![b'A'; 9 << 20]).await
    });
    let mut frames = Box::pin(futures_util::future::join_all(frames));
    let (_, increase) = tokio::join!(
        timeout(Duration::from_secs(3), &mut frames),
        users.max_increase(before)
    );
    assert!(increase < MAX_INCREASE, "{} MiB of frames", increase >> 20);
    drop(frames);
    drop(sockets);

    // The memory is free again.
    let path = format!("/api/conversations/{}/message", users.id);
    assert_eq!(
        server
            .send_as(ada, Method::POST, &path, Some(&message))
            .await
            .0,
        StatusCode::OK
    );
    users.server.terminate();
}

#[tokio::test]
async fn form_of_the_sign_in_is_short() {
    let home = Home::new();
    let folder = home.write("page/index.html", "<p>page").with_file_name("");
    let arguments = ["--static", folder.to_str().unwrap()];
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &arguments);
    let sign_in = async |length: usize| {
        // The host name at which the page has its session.
        let host = server.url.replace("http://127.0.0.1", "glovebox.localhost");
        let request = server
            .request_without_key(Method::POST, "/sign-in")
            .header("Host", host);
        let request = request.header("Content-Type", "application/x-www-form-urlencoded");
        request
            .body(format!("key={}", "x".repeat(length)))
            .send()
            .await
            .unwrap()
            .status()
    };
    assert_eq!(sign_in(1000).await, StatusCode::UNAUTHORIZED);
    assert_eq!(sign_in(20_000).await, StatusCode::PAYLOAD_TOO_LARGE);
    server.terminate();
}

#[tokio::test]
async fn picture_of_a_message_arrives_by_socket() {
    let home = Home::new();
    let users = Users::start(&home, &[]).await;
    let image = format!("data:image/png;base64,{}", "A".repeat(7 << 20));
    let action = json!({"action": "message", "args": {"content": "See.", "image_urls": [image]}});
    let mut socket = Socket::connect(&users.server, &users.ada, &users.id).await;
    socket
        .send(&format!("421{}", json!(["oh_user_action", action])))
        .await
        .unwrap();
    assert_eq!(socket.wait_for("431").await, r#"431[{"success":true}]"#);
    // By polling too.
    let (connected, session) = users.server.connect_socket(&users.ada, &users.id).await;
    assert!(connected.starts_with("40"), "{connected}");
    let post = async |body: String| {
        let request = users.server.request_without_key(Method::POST, &session);
        request
            .header("X-Session-API-Key", &users.ada)
            .body(body)
            .send()
            .await
            .unwrap()
            .status()
    };
    assert_eq!(
        post(format!("422{}", json!(["oh_user_action", action]))).await,
        StatusCode::OK
    );
    let stored = async {
        loop {
            let path = format!(
                "/api/conversations/{}/events?source=user&query=See.",
                users.id
            );
            let (_, page) = users
                .server
                .send_as(&users.ada, Method::GET, &path, None)
                .await;
            if page["events"]
                .as_array()
                .is_some_and(|events| events.len() == 2)
            {
                return page;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let page: Value = timeout(TEST_TIMEOUT, stored)
        .await
        .expect("both messages are stored");
    assert_eq!(
        page["events"][0]["args"]["image_urls"][0]
            .as_str()
            .unwrap()
            .len(),
        image.len()
    );
    let packets = vec!["42[\"x\"]"; 1000].join("\u{1e}");
    assert_eq!(post(packets.clone()).await, StatusCode::TOO_MANY_REQUESTS);
    // Whatever its headers ask for.
    let request = users
        .server
        .request_without_key(Method::POST, &session)
        .header("Upgrade", "x");
    let request = request
        .header("Connection", "upgrade")
        .header("X-Session-API-Key", &users.ada);
    assert_eq!(
        request.body(packets).send().await.unwrap().status(),
        StatusCode::TOO_MANY_REQUESTS
    );
    users.server.terminate();
}
