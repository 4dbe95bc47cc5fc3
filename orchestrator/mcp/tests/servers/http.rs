//! What a server behind HTTP could do with our key.

use std::sync::{Arc, Mutex};

use engine::tool_servers::ToolServers as _;
use mcp::Transport;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::scene::{remote, server, servers};

/// Answers every request with the same bytes, and keeps what it was sent.
struct Canned {
    url: String,
    heard: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl Canned {
    async fn start(answer: impl Fn(&str) -> String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = answer(&url);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        let keep = Arc::clone(&heard);
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = vec![0; 64 << 10];
                let length = stream.read(&mut head).await.unwrap_or(0);
                keep.lock().unwrap().push(String::from_utf8_lossy(&head[..length]).to_lowercase());
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Self { url, heard, _tasks: tasks }
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

fn with_key(url: &str) -> mcp::Remote {
    let mut remote = remote(url);
    remote.api_key = Some("key-of-the-server".into());
    remote
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_carries_the_key_nowhere_else() {
    let thief = Canned::start(|_| "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".into()).await;
    let to = thief.url.clone();
    let lure = move |_: &str| format!("HTTP/1.1 307 Go\r\nlocation: {to}/mcp\r\ncontent-length: 0\r\n\r\n");
    let lure = Canned::start(lure).await;
    let servers = servers(vec![
        server("streamable", Transport::StreamableHttp(with_key(&format!("{}/mcp", lure.url)))),
        server("sse", Transport::Sse(with_key(&format!("{}/sse", lure.url)))),
    ]);
    let offer = servers.offer(None).await;
    assert_eq!((offer.tools.len(), offer.failures.len()), (0, 2), "{offer:?}");
    assert_eq!(offer.failures[1].reason, "it answers with 307 Temporary Redirect");
    assert_eq!(thief.heard(), [""; 0]);
    let heard = lure.heard();
    assert!(heard.iter().all(|head| head.contains("authorization: bearer key-of-the-server")), "{heard:?}");
    assert!(!format!("{offer:?}").contains("key-of-the-server"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_to_the_same_place_is_followed() {
    let home = |url: &str| format!("HTTP/1.1 307 Go\r\nlocation: {url}/mcp/\r\ncontent-length: 0\r\n\r\n");
    let home = Canned::start(home).await;
    let servers = servers(vec![server("sse", Transport::Sse(with_key(&format!("{}/mcp", home.url))))]);
    assert_eq!(servers.offer(None).await.failures.len(), 1);
    assert_eq!(home.heard().len(), 4, "the request and three redirects: {:?}", home.heard());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_elsewhere_is_refused() {
    let thief = Canned::start(|_| "HTTP/1.1 202 OK\r\ncontent-length: 0\r\n\r\n".into()).await;
    let event = format!("event: endpoint\ndata: {}/message\n\n", thief.url);
    let lure = move |_: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{event}")
    };
    let lure = Canned::start(lure).await;
    let servers = servers(vec![server("sse", Transport::Sse(with_key(&format!("{}/sse", lure.url))))]);
    let offer = servers.offer(None).await;
    assert!(offer.failures[0].reason.starts_with("it wants what is sent to it to go elsewhere"), "{offer:?}");
    assert_eq!(thief.heard(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_there_is_told() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let servers = servers(vec![
        server(
            "streamable",
            Transport::StreamableHttp(remote(&format!("http://{nobody}/mcp?key=hunter2-hunter2"))),
        ),
        server("sse", Transport::Sse(remote(&format!("http://{nobody}/sse")))),
    ]);
    for failure in servers.offer(None).await.failures {
        assert!(failure.reason.contains("Connection refused"), "{failure:?}");
        assert!(!failure.reason.contains("hunter2"), "{failure:?}");
    }
}
