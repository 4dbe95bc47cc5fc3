//! The span of each request, and a line at its completion, both at level `debug`. Headers, queries
//! and bodies are not logged: they contain the key, names of files, and what agents read and write.
//!
//! Not tower-http's `TraceLayer` (0.6): it reports the end of a body only if the body is read to
//! `None`. hyper does not read a body of known length that far, and a body that a disconnected
//! client drops is never reported.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::{Request, StatusCode};
use tracing::{Instrument as _, Span};

/// Maximum length of a logged path. Those of all routes are shorter.
const MAX_PATH_BYTES: usize = 256;

/// Responds to a request within its span. The line is logged when the response has been sent,
/// because an action's response is open for as long as the action runs.
pub(super) async fn respond_logged<F: Future<Output = Response>>(
    request: Request<Incoming>,
    respond: impl FnOnce(Request<Incoming>) -> F,
) -> Response {
    let path = request.uri().path();
    let path = &path[..path.floor_char_boundary(MAX_PATH_BYTES)];
    let span = tracing::debug_span!("request", method = %request.method(), path);
    if span.is_disabled() {
        return respond(request).await;
    }
    let mut log = RequestLog {
        span: span.clone(),
        started: Instant::now(),
        status: None,
    };
    let response = respond(request).instrument(span).await;
    log.status = Some(response.status());
    response.map(|body| Body::new(LoggedBody { body, _log: log }))
}

/// Logs the end of a request on drop.
struct RequestLog {
    span: Span,
    started: Instant,
    /// `None` until there is a response.
    status: Option<StatusCode>,
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        let duration_ms = self.started.elapsed().as_secs_f64() * 1000.0;
        self.span
            .in_scope(|| match self.status.map(|status| status.as_u16()) {
                Some(status) => tracing::debug!(status, duration_ms, "request completed"),
                None => tracing::debug!(duration_ms, "request cancelled"),
            });
    }
}

/// The body of a response, which owns the log of its request.
struct LoggedBody {
    body: Body,
    _log: RequestLog,
}

impl HttpBody for LoggedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
