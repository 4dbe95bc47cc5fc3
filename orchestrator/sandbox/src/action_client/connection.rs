//! One HTTP/2 connection over one byte stream. Ends with the stream, or when it is dropped.
//!
//! Every setting differs from its default for a reason that was measured (`reference/connection.md`).

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

/// What a request carries: whole, or as it comes.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Sends requests over a connection; clones share it.
#[derive(Clone)]
pub(super) struct Requests {
    sender: http2::SendRequest<Body>,
    url: Option<ServerUrl>,
}

impl Requests {
    /// Waits until the connection takes another request.
    pub(super) async fn ready(&mut self) -> hyper::Result<()> {
        self.sender.ready().await
    }

    /// Sends a request, made out to the server's own address when something on the way reads it.
    pub(super) fn send_request(
        &mut self,
        mut request: Request<Body>,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + use<> {
        if let Some(url) = &self.url {
            *request.uri_mut() = url.at(request.uri());
        }
        self.sender.send_request(request)
    }
}

/// What one body may have in flight. With the default, bodies that nobody reads stop all others.
const STREAM_WINDOW: u32 = 1 << 20;
/// Never the limit: streams are.
const CONNECTION_WINDOW: u32 = 1 << 30;
/// A server's answers have a handful of short headers.
const MAX_HEADER_BYTES: u32 = 16 << 10;
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection and the tasks that drive it.
pub(super) struct Connection {
    requests: Requests,
    _tasks: DropGuard,
}

impl Connection {
    /// Says HTTP/2's first words on the stream.
    pub(super) async fn over(stream: Box<dyn ByteStream>, url: Option<&ServerUrl>) -> hyper::Result<Self> {
        let tasks = Tasks(CancellationToken::new());
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
            // However it ends, `requests` is closed then, and the link opens another.
            if let Err(error) = driver.await {
                tracing::debug!(%error, "the connection to an action server broke");
            }
        });
        Ok(Self { requests: Requests { sender, url: url.cloned() }, _tasks: guard })
    }

    /// A sender of requests, unless the connection has ended.
    pub(super) fn requests(&self) -> Option<Requests> {
        (!self.requests.sender.is_closed()).then(|| self.requests.clone())
    }
}

/// Runs what drives one connection until that connection is dropped.
#[derive(Clone)]
struct Tasks(CancellationToken);

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, task: F) {
        tokio::spawn(self.0.clone().run_until_cancelled_owned(task));
    }
}
