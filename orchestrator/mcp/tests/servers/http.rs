//! Servers behind HTTP: the API key is sent to their own origin only.

use std::sync::{Arc, Mutex};

use engine::tool_servers::ToolServers as _;
use mcp::Transport;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::fixture::{remote, server, servers};

/// Server that sends the same response to every request, and records the requests.
struct CannedServer {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl CannedServer {
    async fn start(response: impl Fn(&str) -> String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        // Each connection has one response: a client that reuses it would send into a closed one.
        let response = response(&url).replacen("\r\n", "\r\nconnection: close\r\n", 1);
        let requests = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        let received = Arc::clone(&requests);
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = vec![0; 64 << 10];
                let length = stream.read(&mut head).await.unwrap_or(0);
                received
                    .lock()
                    .unwrap()
                    .push(String::from_utf8_lossy(&head[..length]).to_lowercase());
                let _ = stream.write_all(response.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Self {
            url,
            requests,
            _tasks: tasks,
        }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn with_key(url: &str) -> mcp::Remote {
    let mut remote = remote(url);
    remote.api_key = Some("key-of-the-server".into());
    remote
}

#[tokio::test(flavor = "multi_thread")]
async fn redirect_to_another_origin_does_not_send_the_key() {
    let other_origin =
        CannedServer::start(|_| "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".into()).await;
    let target = other_origin.url.clone();
    let redirecting = move |_: &str| {
        format!("HTTP/1.1 307 Go\r\nlocation: {target}/mcp\r\ncontent-length: 0\r\n\r\n")
    };
    let redirecting = CannedServer::start(redirecting).await;
    let servers = servers(vec![
        server(
            "streamable",
            Transport::StreamableHttp(with_key(&format!("{}/mcp", redirecting.url))),
        ),
        server(
            "sse",
            Transport::Sse(with_key(&format!("{}/sse", redirecting.url))),
        ),
    ]);
    let offer = servers.offer(None).await;
    assert_eq!(
        (offer.tools.len(), offer.failures.len()),
        (0, 2),
        "{offer:?}"
    );
    assert_eq!(
        offer.failures[1].reason,
        "it responds with 307 Temporary Redirect"
    );
    assert_eq!(other_origin.requests(), [""; 0]);
    let requests = redirecting.requests();
    assert!(
        requests
            .iter()
            .all(|head| head.contains("authorization: bearer key-of-the-server")),
        "{requests:?}"
    );
    assert!(!format!("{offer:?}").contains("key-of-the-server"));
}

#[tokio::test(flavor = "multi_thread")]
async fn redirect_is_followed_when_origin_is_the_same() {
    let redirecting =
        |url: &str| format!("HTTP/1.1 307 Go\r\nlocation: {url}/mcp/\r\ncontent-length: 0\r\n\r\n");
    let redirecting = CannedServer::start(redirecting).await;
    let servers = servers(vec![server(
        "sse",
        Transport::Sse(with_key(&format!("{}/mcp", redirecting.url))),
    )]);
    assert_eq!(servers.offer(None).await.failures.len(), 1);
    assert_eq!(
        redirecting.requests().len(),
        4,
        "the request and three redirects: {:?}",
        redirecting.requests()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sse_endpoint_is_refused_when_origin_differs() {
    let other_origin =
        CannedServer::start(|_| "HTTP/1.1 202 OK\r\ncontent-length: 0\r\n\r\n".into()).await;
    let event = format!("event: endpoint\ndata: {}/message\n\n", other_origin.url);
    let sse =
        move |_: &str| format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{event}");
    let sse = CannedServer::start(sse).await;
    let servers = servers(vec![server(
        "sse",
        Transport::Sse(with_key(&format!("{}/sse", sse.url))),
    )]);
    let offer = servers.offer(None).await;
    assert!(
        offer.failures[0]
            .reason
            .starts_with("its endpoint has another origin"),
        "{offer:?}"
    );
    assert_eq!(other_origin.requests(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_server_is_reported() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let servers = servers(vec![
        server(
            "streamable",
            Transport::StreamableHttp(remote(&format!("http://{unused}/mcp?key=hunter2-hunter2"))),
        ),
        server(
            "sse",
            Transport::Sse(remote(&format!("http://{unused}/sse"))),
        ),
    ]);
    for failure in servers.offer(None).await.failures {
        assert!(failure.reason.contains("Connection refused"), "{failure:?}");
        assert!(!failure.reason.contains("hunter2"), "{failure:?}");
    }
}

/// The initialization of a server, with an extension of 150,000 objects.
fn hostile_message() -> String {
    let values = "{\"\":0},".repeat(150_000);
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{{\"protocolVersion\":\"2025-03-26\",\"capabilities\":\
         {{\"experimental\":{{\"a\":{{\"a\":[{values}0]}}}}}},\"serverInfo\":{{\"name\":\"a\",\"version\":\"1\"}}}}}}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn message_with_too_many_values_is_not_parsed() {
    for (content_type, message) in [
        ("application/json", hostile_message()),
        (
            "text/event-stream",
            format!("data: {}\n\n", hostile_message()),
        ),
    ] {
        let response = move |_: &str| {
            format!(
                "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{message}",
                message.len()
            )
        };
        let hostile = CannedServer::start(response).await;
        let url = format!("{}/mcp", hostile.url);
        let servers = servers(vec![server("a", Transport::StreamableHttp(remote(&url)))]);
        let offer = servers.offer(None).await;
        assert_eq!(offer.failures.len(), 1, "{content_type}");
        let reason = &offer.failures[0].reason;
        if content_type == "application/json" {
            assert!(reason.contains("more than 100000 values"), "{reason}");
        }
    }
}
