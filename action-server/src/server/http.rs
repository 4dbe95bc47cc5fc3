//! HTTP settings. The comments give the reason for each value that differs from the default.

use std::future::Future;
use std::time::Duration;

use hyper::rt::Executor;
use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto;
use tokio_util::task::TaskTracker;

/// Flow-control window of a stream. A stalled reader blocks this much of its own stream.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// More than the windows of all allowed streams together. With the default, a few unread bodies
/// would block all streams of the connection, even `/alive`, and pings would not detect it.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;

/// Above our own limit of requests, which returns an error. At this one, the client would wait
/// without a response.
const MAX_STREAMS: u32 = 2048;

/// Without pings, a `dial` whose container engine was killed would leave its connection open
/// forever.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time for the head of an HTTP/1.1 request, so that idle connections do not accumulate.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Our requests have a few short headers.
const MAX_HEADER_BYTES: u32 = 64 << 10;

/// Returns the settings of a connection. The tasks that hyper spawns belong to `tasks`.
pub(super) fn builder(tasks: TaskTracker) -> auto::Builder<TrackedExecutor> {
    let mut builder = auto::Builder::new(TrackedExecutor(tasks));
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .adaptive_window(false)
        .max_concurrent_streams(MAX_STREAMS)
        // A client may abandon many at once, before a slow machine has accepted them. By default,
        // the 21st of them ends the connection, with all other streams.
        .max_pending_accept_reset_streams(Some(MAX_STREAMS as usize))
        .max_header_list_size(MAX_HEADER_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .enable_connect_protocol();
    builder
}

/// Spawns the tasks of HTTP/2 streams so that the server can wait for them.
#[derive(Clone)]
pub(super) struct TrackedExecutor(TaskTracker);

impl<F> Executor<F> for TrackedExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}
