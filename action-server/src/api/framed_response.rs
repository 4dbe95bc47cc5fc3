//! Responses of streamed frames: a complete body if the stream ends soon, otherwise a streamed
//! body.

use std::convert::Infallible;
use std::future::Future;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};
use futures_util::{FutureExt as _, future};
use protocol::sandbox_api::FRAMES_MEDIA_TYPE;

use super::ticks::Ticks;

/// Number of ticks to wait for the first frame before only the head of the response is sent: 100
/// ms.
const MAX_TICKS_WITHOUT_FRAME: u32 = 50;

/// Responds with `frames`. Waits for the first of them until `is_settled`, which means that all or
/// many frames are ready, or a tick finds some. Writing head, output and result separately would
/// cost more than most commands take.
pub(super) async fn framed_response(
    ticks: &Ticks,
    is_settled: impl Future<Output = ()>,
    has_frame: impl Fn() -> bool,
    frames: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
) -> Response {
    let first_frame = async {
        for _ in 0..MAX_TICKS_WITHOUT_FRAME {
            ticks.next().await;
            if has_frame() {
                return true;
            }
        }
        false
    };
    let is_ready = tokio::select! {
        biased;
        () = is_settled => true,
        found = first_frame => found,
    };
    let body = if is_ready {
        ready_body(frames).await
    } else {
        Body::from_stream(frames)
    };
    ([(header::CONTENT_TYPE, FRAMES_MEDIA_TYPE)], body).into_response()
}

/// Body of a stream whose first item is ready. Not streamed if that is the only item.
async fn ready_body(
    frames: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
) -> Body {
    let mut frames = Box::pin(frames);
    let Some(Ok(first)) = frames.next().await else {
        return Body::empty();
    };
    match frames.next().now_or_never() {
        Some(None) => first.into(),
        second => {
            let second = stream::iter(second.flatten());
            Body::from_stream(
                stream::once(future::ready(Ok(first)))
                    .chain(second)
                    .chain(frames),
            )
        }
    }
}
