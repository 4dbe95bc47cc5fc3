//! How HTTP is spoken. Every value here was measured to matter; the reasons stand beside them.

use std::future::Future;
use std::time::Duration;

use hyper::rt::Executor;
use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto;
use tokio_util::task::TaskTracker;

/// A reader that stalls holds up this much of its own stream.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// So much that no number of stalled streams that we allow fills it: with the default, a few bodies that nobody reads
/// stop everything on the connection, `/alive` too, and pings do not notice.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;

/// Above our own bound on requests, which answers where this one silently makes the client wait.
const MAX_STREAMS: u32 = 2048;

/// Without the server's pings a `dial` whose engine was killed leaves its connection open for ever.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// For the first bytes of an HTTP/1.1 request, so that silent connections do not pile up.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Our requests have a handful of short headers.
const MAX_HEADER_BYTES: u32 = 64 << 10;

/// For one connection; what it spawns belongs to `tasks`.
pub(super) fn builder(tasks: TaskTracker) -> auto::Builder<Tracked> {
    let mut builder = auto::Builder::new(Tracked(tasks));
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .adaptive_window(false)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .enable_connect_protocol();
    builder
}

/// Spawns what HTTP/2 needs for its streams where the server can wait for it.
#[derive(Clone)]
pub(super) struct Tracked(TaskTracker);

impl<F> Executor<F> for Tracked
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}
