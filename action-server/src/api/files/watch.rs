//! Streams changes of files. The response starts when the watch is active. It ends if the client
//! disconnects or the watched path is removed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use protocol::sandbox_api::{WATCH_MEDIA_TYPE, WatchEvent, WatchQuery};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::MAX_WATCHES;
use super::query::FileQuery;
use crate::api::Api;
use crate::api::error::ApiError;
use crate::files::{FileError, KernelEvents, WatchSource, Watcher};

/// How long to wait for the second event of a rename. The kernel reports both in succession, but a
/// read may come in between.
const RENAME_TIMEOUT: Duration = Duration::from_millis(20);

/// `GET /v1/files/watch`.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/files/watch",
    params(
        WatchQuery
    ),
    responses(
        (status = 200, description = "One line per event", body = WatchEvent, content_type = "application/x-ndjson")
    )
))]
pub(super) async fn watch(
    State(api): State<Api>,
    FileQuery(query): FileQuery<WatchQuery>,
) -> Result<Response, ApiError> {
    let permit = Arc::clone(&api.0.file_limits.watches).try_acquire_owned();
    let permit = permit.map_err(|_| FileError::TooMany {
        limit: MAX_WATCHES,
        what: "watches",
    })?;
    let path = api.path(&query.path);
    let watcher = api
        .on_files(move |files| Watcher::start(files, &path, query.recursive))
        .await?;
    let source = watcher.source();
    // Not a pipe, but the safe type of tokio that can wait for any descriptor.
    let readable = source
        .descriptor()
        .and_then(Receiver::from_owned_fd_unchecked);
    let readable = readable.map_err(|_| ApiError::Failed)?;
    let watch = WatchBody {
        watcher,
        source,
        readable,
        is_leaving: false,
        _permit: permit,
    };
    let body = Body::from_stream(stream::try_unfold(Some(watch), next));
    Ok(([(header::CONTENT_TYPE, WATCH_MEDIA_TYPE)], body).into_response())
}

struct WatchBody {
    watcher: Watcher,
    source: WatchSource,
    readable: Receiver,
    is_leaving: bool,
    _permit: OwnedSemaphorePermit,
}

async fn next(watch: Option<WatchBody>) -> io::Result<Option<(Bytes, Option<WatchBody>)>> {
    let Some(mut watch) = watch else {
        return Ok(None);
    };
    loop {
        let rename_timeout = if watch.is_leaving {
            RENAME_TIMEOUT
        } else {
            Duration::MAX
        };
        let arrived = match timeout(rename_timeout, watch.arrived()).await {
            Ok(arrived) => Some(arrived?),
            Err(_) => None,
        };
        // Scans new folders, which may block.
        let mut watcher = watch.watcher;
        let (watcher, step) = spawn_blocking(move || {
            let is_late = arrived.is_none();
            let step = watcher.step(arrived.unwrap_or_default(), is_late);
            (watcher, step)
        })
        .await
        .map_err(io::Error::other)?;
        watch.watcher = watcher;
        watch.is_leaving = step.is_leaving;
        if !step.events.is_empty() || step.is_over {
            return Ok(Some((
                lines(&step.events)?,
                (!step.is_over).then_some(watch),
            )));
        }
    }
}

impl WatchBody {
    async fn arrived(&self) -> io::Result<KernelEvents> {
        loop {
            self.readable.readable().await?;
            match self.readable.try_io(|| self.source.read()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                arrived => return arrived,
            }
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
