//! Tells the client that its connection closes after a response that was sent before the request's
//! body was read.
//!
//! hyper closes such a connection without a word, possibly while the client sends its next request.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::{Bytes, HttpBody};
use http::{HeaderValue, StatusCode, header};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::{Request, Response};

/// Whether the body of a request was read to its end.
pub(super) struct BodyEnd(Arc<AtomicBool>);

/// A body that notes its end.
pub(super) struct NotedBody {
    body: Incoming,
    is_at_end: Arc<AtomicBool>,
}

/// Wraps the body of a request.
pub(super) fn note_end(request: Request<Incoming>) -> (Request<NotedBody>, BodyEnd) {
    let is_at_end = Arc::new(AtomicBool::new(request.body().is_end_stream()));
    let end = BodyEnd(Arc::clone(&is_at_end));
    (request.map(|body| NotedBody { body, is_at_end }), end)
}

impl BodyEnd {
    /// Adds `connection: close` to a response if the body is not read.
    pub(super) fn close_if_unread<B>(&self, response: &mut Response<B>) {
        // `Relaxed` suffices: a late note only closes a connection that could have stayed open.
        if !self.0.load(Ordering::Relaxed) && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

impl HttpBody for NotedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() || self.body.is_end_stream() {
            self.is_at_end.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
