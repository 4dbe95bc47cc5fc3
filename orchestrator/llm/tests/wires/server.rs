//! A server that sends one raw HTTP reply per connection, and records the requests. Stops when it
//! is dropped.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// The reply to a request.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    bytes: String,
    /// Whether to keep the connection open until the client closes it.
    then_silence: bool,
}

/// An event that the server records.
#[derive(Debug)]
pub(crate) enum ServerEvent {
    Request { head: String, body: Value },
    Disconnected,
}

pub(crate) struct Server {
    pub(crate) url: String,
    events: mpsc::UnboundedReceiver<ServerEvent>,
    serving: AbortHandle,
}

impl Reply {
    pub(crate) fn new(status: u16, headers: &[(&str, &str)], body: &str) -> Self {
        let headers: String = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let length = body.len();
        let bytes = format!(
            "HTTP/1.1 {status} x\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        Self {
            bytes,
            then_silence: false,
        }
    }

    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::new(
            status,
            &[("content-type", "application/json")],
            &body.to_string(),
        )
    }

    /// Returns a stream that ends with the connection, so that it can be cut anywhere.
    pub(crate) fn stream(events: &[&str]) -> Self {
        let body: String = events
            .iter()
            .map(|event| format!("data: {event}\n\n"))
            .collect();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nconnection: close\r\n\r\n";
        Self {
            bytes: format!("{head}{body}"),
            then_silence: false,
        }
    }

    /// Returns an incomplete reply.
    pub(crate) fn cut(head_and_body: &str) -> Self {
        Self {
            bytes: head_and_body.to_owned(),
            then_silence: false,
        }
    }

    pub(crate) fn then_silence(self) -> Self {
        Self {
            then_silence: true,
            ..self
        }
    }

    pub(crate) fn silence() -> Self {
        Self {
            bytes: String::new(),
            then_silence: true,
        }
    }
}

impl Server {
    /// Starts a server that repeats the last reply.
    pub(crate) async fn start(replies: Vec<Reply>) -> Self {
        let mut replies = replies.into_iter();
        let mut last = None;
        Self::start_with(move |_| {
            last = replies.next().or(last.take());
            last.clone().unwrap()
        })
        .await
    }

    /// Starts a server that answers each body of a request.
    pub(crate) async fn start_with(answer: impl FnMut(&Value) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (recorder, events) = mpsc::unbounded_channel();
        let serving = tokio::spawn(serve(listener, answer, recorder)).abort_handle();
        Self {
            url,
            events,
            serving,
        }
    }

    pub(crate) async fn next(&mut self) -> ServerEvent {
        self.events.recv().await.unwrap()
    }

    /// Returns the body of the next request.
    pub(crate) async fn body(&mut self) -> Value {
        match self.next().await {
            ServerEvent::Request { body, .. } => body,
            ServerEvent::Disconnected => panic!("the client has gone"),
        }
    }

    /// Returns the number of requests that no test has received.
    pub(crate) fn requests(&mut self) -> usize {
        std::iter::from_fn(|| self.events.try_recv().ok())
            .filter(|events| matches!(events, ServerEvent::Request { .. }))
            .count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(
    listener: TcpListener,
    mut answer: impl FnMut(&Value) -> Reply,
    recorder: mpsc::UnboundedSender<ServerEvent>,
) {
    loop {
        let (mut connection, _) = listener.accept().await.unwrap();
        let (head, body) = request(&mut connection).await;
        let reply = answer(&body);
        recorder.send(ServerEvent::Request { head, body }).unwrap();
        connection.write_all(reply.bytes.as_bytes()).await.unwrap();
        if reply.then_silence {
            let _ = connection.read(&mut [0]).await;
            recorder.send(ServerEvent::Disconnected).unwrap();
        }
    }
}

async fn request(connection: &mut TcpStream) -> (String, Value) {
    let mut bytes = Vec::new();
    loop {
        assert!(
            connection.read_buf(&mut bytes).await.unwrap() > 0,
            "the request was cut"
        );
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .unwrap_or("0");
        match length.parse().unwrap() {
            0 => return (head.to_owned(), Value::Null),
            length if body.len() >= length => {
                return (head.to_owned(), serde_json::from_str(body).unwrap());
            }
            _ => {}
        }
    }
}
