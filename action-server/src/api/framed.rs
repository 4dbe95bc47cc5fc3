//! Streams of frames as answers: as one body where the end comes soon, else as they come.

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

/// How many ticks an answer waits for the first that can be told, before its head goes out alone: 100 ms.
const PATIENCE: u32 = 50;

/// Answers with `frames`. They are waited for until they have `settled`, which is that all or many are there, or a tick
/// finds some: head, output and ending each written alone cost more than most commands take.
pub(super) async fn framed(
    ticks: &Ticks,
    settled: impl Future<Output = ()>,
    has_some: impl Fn() -> bool,
    frames: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
) -> Response {
    let some = async {
        for _ in 0..PATIENCE {
            ticks.next().await;
            if has_some() {
                return true;
            }
        }
        false
    };
    let begins_now = tokio::select! {
        biased;
        () = settled => true,
        found = some => found,
    };
    let body = if begins_now { whole(frames).await } else { Body::from_stream(frames) };
    ([(header::CONTENT_TYPE, FRAMES_MEDIA_TYPE)], body).into_response()
}

/// Of frames that begin at once.
async fn whole(frames: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static) -> Body {
    let mut frames = Box::pin(frames);
    let Some(Ok(first)) = frames.next().await else { return Body::empty() };
    match frames.next().now_or_never() {
        Some(None) => first.into(),
        second => {
            let second = stream::iter(second.flatten());
            Body::from_stream(stream::once(future::ready(Ok(first))).chain(second).chain(frames))
        }
    }
}
