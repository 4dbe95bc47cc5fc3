//! One HTTP/2 connection over one byte stream. Ends with the stream, or when it is dropped.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::connect::{ByteStream, ServerUrl};

/// The body of a request: complete or streaming.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Sends requests over a connection. Clones share the connection.
#[derive(Clone)]
pub(super) struct RequestSender {
    sender: http2::SendRequest<Body>,
    url: Option<ServerUrl>,
}

impl RequestSender {
    /// Waits until the connection accepts another request.
    pub(super) async fn ready(&mut self) -> hyper::Result<()> {
        self.sender.ready().await
    }

    /// Sends a request. Its URL is that of the server if a proxy reads it.
    pub(super) fn send_request(
        &mut self,
        mut request: Request<Body>,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + use<> {
        if let Some(url) = &self.url {
            *request.uri_mut() = url.resolve(request.uri());
        }
        self.sender.send_request(request)
    }
}

/// Maximum unread bytes of one body. With the default, bodies that are not read block all others.
const STREAM_WINDOW: u32 = 1 << 20;
/// Large enough that only the windows of the streams limit.
const CONNECTION_WINDOW: u32 = 1 << 30;
/// Responses of a server have a few short headers.
const MAX_HEADER_BYTES: u32 = 16 << 10;
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection and the tasks that drive it.
pub(super) struct Connection {
    sender: RequestSender,
    _tasks: DropGuard,
}

impl Connection {
    /// Performs the HTTP/2 handshake.
    pub(super) async fn handshake(
        stream: Box<dyn ByteStream>,
        url: Option<&ServerUrl>,
    ) -> hyper::Result<Self> {
        let tasks = ConnectionTasks(CancellationToken::new());
        let guard = tasks.0.clone().drop_guard();
        let (sender, driver) = http2::Builder::new(tasks.clone())
            .timer(TokioTimer::new())
            .adaptive_window(false)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(MAX_HEADER_BYTES)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(stream))
            .await?;
        hyper::rt::Executor::execute(&tasks, async move {
            // Closes the sender in any case. The link opens another connection then.
            if let Err(error) = driver.await {
                tracing::debug!(%error, "the connection to an action server broke");
            }
        });
        Ok(Self {
            sender: RequestSender {
                sender,
                url: url.cloned(),
            },
            _tasks: guard,
        })
    }

    /// Returns a sender of requests. `None` if the connection has ended.
    pub(super) fn sender(&self) -> Option<RequestSender> {
        (!self.sender.sender.is_closed()).then(|| self.sender.clone())
    }
}

/// Spawns the tasks of a connection. They are cancelled when the connection is dropped.
#[derive(Clone)]
struct ConnectionTasks(CancellationToken);

impl<F> hyper::rt::Executor<F> for ConnectionTasks
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, task: F) {
        tokio::spawn(self.0.clone().run_until_cancelled_owned(task));
    }
}
