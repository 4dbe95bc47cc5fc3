//! Streaming uploads and downloads of files and folders. They are not retried after a broken
//! connection, because the source is consumed by then.
//!
//! A server that moves no byte for a minute has failed. A source on the host may take longer.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use engine::sandbox::{ByteSource, IncompleteArchive, SandboxError, TransferKind};
use futures_util::{Stream, StreamExt, TryStreamExt};
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use protocol::sandbox_api::{ErrorCode, FileMode, SKIPPED_TRAILER, SkippedEntries};
use tokio::io::AsyncReadExt as _;
use tokio::time::{sleep, timeout};
use tokio_util::io::{ReaderStream, StreamReader};

use super::connection::{Body, RequestSender};
use super::link::Link;
use super::request::{self, TransportError, percent_encode};

/// Size of the chunks in which a source is read.
const CHUNK_BYTES: usize = 256 << 10;

/// Maximum time without a byte.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Destination of an upload.
pub(super) struct UploadTarget<'a> {
    pub(super) path: &'a str,
    pub(super) kind: TransferKind,
    pub(super) mode: Option<FileMode>,
}

fn route(path: &str, kind: TransferKind) -> String {
    let route = match kind {
        TransferKind::File => "/v1/files",
        TransferKind::Tree => "/v1/files/tree",
    };
    format!("{route}?path={}", percent_encode(path))
}

/// Returns the content of a file or folder. Trailers become the error [`IncompleteArchive`].
pub(super) async fn download(
    link: &Link,
    key: &HeaderValue,
    path: &str,
    kind: TransferKind,
) -> Result<ByteSource, SandboxError> {
    let route = route(path, kind);
    let download = || request::new(key, Method::GET, &route, Bytes::new());
    let response = request::send_with_retries(link, download).await??;
    Ok(content(response))
}

/// Returns the body of a response.
fn content(response: Response<Incoming>) -> ByteSource {
    let chunks =
        futures_util::stream::try_unfold(response.into_body(), |mut body: Incoming| async move {
            match timeout(STALL_TIMEOUT, body.frame()).await {
                Ok(None) => Ok(None),
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(chunk) => Ok(Some((chunk, body))),
                    Err(frame) => check_trailers(&frame).map(|()| None),
                },
                Ok(Some(Err(error))) => Err(io::Error::other(TransportError::from(error))),
                Err(_) => Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the sandbox has stopped sending",
                )),
            }
        });
    // `StreamReader` would treat an empty chunk as the end.
    let chunks = chunks.try_filter(|chunk: &Bytes| std::future::ready(!chunk.is_empty()));
    Box::new(StreamReader::new(Box::pin(chunks)))
}

/// Returns a part of a file.
pub(super) async fn download_part(
    link: &Link,
    key: &HeaderValue,
    path: &str,
    range: Range<u64>,
) -> Result<ByteSource, SandboxError> {
    let empty = || Ok(Box::new(tokio::io::empty()) as ByteSource);
    let Some(last) = range.end.checked_sub(1).filter(|_| !range.is_empty()) else {
        return empty();
    };
    let route = route(path, TransferKind::File);
    let bytes = HeaderValue::try_from(format!("bytes={}-{last}", range.start));
    let bytes = bytes.map_err(|error| TransportError(error.to_string()))?;
    let download = || {
        let mut request = request::new(key, Method::GET, &route, Bytes::new());
        request.headers_mut().insert(header::RANGE, bytes.clone());
        request
    };
    match request::send_with_retries(link, download).await? {
        Ok(response) => Ok(Box::new(content(response).take(last - range.start + 1))),
        Err(error) if error.code == ErrorCode::Range => empty(),
        Err(error) => Err(error.into()),
    }
}

/// Fails if the trailers list entries that the archive leaves out.
fn check_trailers(frame: &Frame<Bytes>) -> io::Result<()> {
    let skipped = frame
        .trailers_ref()
        .and_then(|trailers| trailers.get(SKIPPED_TRAILER));
    let Some(skipped) = skipped else {
        return Ok(());
    };
    let skipped = SkippedEntries::from_trailer(skipped.as_bytes())?;
    Err(io::Error::other(IncompleteArchive(skipped)))
}

/// Writes the bytes of a source to a file, or unpacks them into a folder.
pub(super) async fn upload(
    link: &Link,
    key: &HeaderValue,
    target: UploadTarget<'_>,
    content: ByteSource,
) -> Result<(), SandboxError> {
    let mode = target.mode.filter(|_| target.kind == TransferKind::File);
    let mode = mode
        .map(|mode| format!("&mode={:04o}", mode.bits()))
        .unwrap_or_default();
    let route = format!("{}{mode}", route(target.path, target.kind));
    let progress = Arc::new(UploadProgress::default());
    let chunks = ReaderStream::with_capacity(content, CHUNK_BYTES).boxed();
    let chunks = MonitoredStream {
        chunks,
        progress: Arc::clone(&progress),
    };
    let body = StreamBody::new(chunks.map_ok(Frame::data)).boxed_unsync();
    let mut sender = link.sender().await?;
    let response = send(
        &mut sender,
        request::streaming(key, Method::PUT, &route, body),
        &progress,
    )
    .await;
    let response = response.map_err(|error| {
        // The transport only reports that the body is incomplete.
        let cause = progress.source_error().take();
        let cause = cause.unwrap_or_else(|| io::Error::other(error));
        SandboxError::host("upload", target.path, cause)
    })?;
    if response.status().is_success() {
        Ok(())
    } else {
        Err(request::read_error(response).await.into())
    }
}

/// Sends the request and returns the head of its response. Fails if the server accepts no byte for
/// [`STALL_TIMEOUT`] while the source has some.
async fn send(
    sender: &mut RequestSender,
    request: Request<Body>,
    progress: &UploadProgress,
) -> Result<Response<Incoming>, TransportError> {
    let response = async {
        sender.ready().await?;
        sender.send_request(request).await
    };
    let stalled = async {
        loop {
            let before = progress.chunk_count.load(Ordering::Relaxed);
            sleep(STALL_TIMEOUT).await;
            if progress.chunk_count.load(Ordering::Relaxed) == before
                && !progress.is_source_pending.load(Ordering::Relaxed)
            {
                return;
            }
        }
    };
    tokio::select! {
        response = response => Ok(response?),
        () = stalled => {
            let seconds = STALL_TIMEOUT.as_secs();
            Err(TransportError(format!("the sandbox has accepted no byte for {seconds} s")))
        }
    }
}

#[derive(Default)]
struct UploadProgress {
    chunk_count: AtomicU64,
    /// Whether the upload waits for the source and not for the server.
    is_source_pending: AtomicBool,
    source_error: Mutex<Option<io::Error>>,
}

impl UploadProgress {
    fn source_error(&self) -> MutexGuard<'_, Option<io::Error>> {
        self.source_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Source of an upload that records its progress.
struct MonitoredStream<S> {
    chunks: S,
    progress: Arc<UploadProgress>,
}

impl<S: Stream<Item = io::Result<Bytes>> + Unpin> Stream for MonitoredStream<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let chunk = self.chunks.poll_next_unpin(context);
        self.progress
            .is_source_pending
            .store(chunk.is_pending(), Ordering::Relaxed);
        if chunk.is_ready() {
            self.progress.chunk_count.fetch_add(1, Ordering::Relaxed);
        }
        if let Poll::Ready(Some(Err(error))) = chunk {
            let kind = error.kind();
            *self.progress.source_error() = Some(error);
            return Poll::Ready(Some(Err(kind.into())));
        }
        chunk
    }
}
