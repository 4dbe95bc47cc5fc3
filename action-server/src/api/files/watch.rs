//! Changes, as they happen. The answer's head comes when the watch has begun; it ends with its client, or when what is
//! watched is gone.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use protocol::sandbox_api::{WATCH_MEDIA_TYPE, WatchEvent, WatchQuery};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::MAX_WATCHES;
use super::query::FileQuery;
use crate::api::Api;
use crate::error::ApiError;
use crate::files::{FileError, Watcher};

/// The kernel tells both ends of a move one after the other; this is for a reader that comes in between.
const OTHER_END: Duration = Duration::from_millis(20);

/// `GET /v1/files/watch`.
pub(super) async fn watch(
    State(api): State<Api>,
    FileQuery(query): FileQuery<WatchQuery>,
) -> Result<Response, ApiError> {
    let place = Arc::clone(&api.0.gates.watches).try_acquire_owned();
    let place = place.map_err(|_| FileError::TooMany { limit: MAX_WATCHES, what: "watches at once" })?;
    let path = api.path(&query.path);
    let begun = move || {
        let watcher = Watcher::begin(&path, query.recursive)?;
        let descriptor = watcher.descriptor().map_err(|error| FileError::io("watching", &path, error))?;
        Ok((watcher, descriptor))
    };
    let (watcher, descriptor) = api.on_files(move |_| begun()).await?;
    let readable = AsyncFd::register_with_interest(descriptor, Interest::READABLE).map_err(|_| ApiError::Failed)?;
    let watch = Watch { watcher, readable, is_leaving: false, _place: place };
    let body = Body::from_stream(stream::try_unfold(Some(watch), next));
    Ok(([(header::CONTENT_TYPE, WATCH_MEDIA_TYPE)], body).into_response())
}

struct Watch {
    watcher: Watcher,
    readable: AsyncFd<OwnedFd>,
    is_leaving: bool,
    _place: OwnedSemaphorePermit,
}

async fn next(watch: Option<Watch>) -> io::Result<Option<(Bytes, Option<Watch>)>> {
    let Some(mut watch) = watch else { return Ok(None) };
    loop {
        let patience = if watch.is_leaving { OTHER_END } else { Duration::MAX };
        let mut ready = match timeout(patience, watch.readable.readable()).await {
            Ok(ready) => Some(ready?),
            Err(_) => None,
        };
        let (is_late, mut watcher) = (ready.is_none(), watch.watcher);
        let (watcher, step) = spawn_blocking(move || {
            let step = watcher.step(is_late);
            (watcher, step)
        })
        .await
        .map_err(io::Error::other)?;
        if step.is_drained
            && let Some(ready) = &mut ready
        {
            ready.clear_ready();
        }
        drop(ready);
        watch.watcher = watcher;
        watch.is_leaving = step.is_leaving;
        if !step.events.is_empty() || step.is_over {
            return Ok(Some((lines(&step.events)?, (!step.is_over).then_some(watch))));
        }
    }
}

fn lines(events: &[WatchEvent]) -> io::Result<Bytes> {
    let mut lines = Vec::new();
    for event in events {
        serde_json::to_writer(&mut lines, event)?;
        lines.push(b'\n');
    }
    Ok(lines.into())
}
