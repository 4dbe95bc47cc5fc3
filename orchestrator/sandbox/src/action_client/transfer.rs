//! Files and folders on their way, as streams. Not sent again when a connection breaks: the source is used up by then.
//!
//! A server that neither takes nor gives a byte for a minute has failed; a source of ours may take its time.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use engine::sandbox::{ByteSource, SandboxError, TransferKind};
use futures_util::{Stream, StreamExt, TryStreamExt};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use protocol::sandbox_api::FileMode;
use tokio::time::{sleep, timeout};
use tokio_util::io::{ReaderStream, StreamReader};

use super::connection::{Body, Requests};
use super::link::Link;
use super::request::{self, Broken, escaped};

/// What is read of a source at once.
const PIECE: usize = 256 << 10;

/// How long nothing may move.
const STALL: Duration = Duration::from_secs(60);

/// Where something goes.
pub(super) struct Target<'a> {
    pub(super) path: &'a str,
    pub(super) shape: TransferKind,
    pub(super) mode: Option<FileMode>,
}

fn route(path: &str, shape: TransferKind) -> String {
    let route = match shape {
        TransferKind::File => "/v1/files",
        TransferKind::Tree => "/v1/files/tree",
    };
    format!("{route}?path={}", escaped(path))
}

/// What lies at a path, from its first byte on.
pub(super) async fn download(
    link: &Link,
    key: &HeaderValue,
    path: &str,
    shape: TransferKind,
) -> Result<ByteSource, SandboxError> {
    let route = route(path, shape);
    let response = request::ask(link, || request::request(key, Method::GET, &route, Bytes::new())).await??;
    let pieces = futures_util::stream::try_unfold(response.into_body(), |mut body: Incoming| async move {
        match timeout(STALL, body.frame()).await {
            Ok(None) => Ok(None),
            Ok(Some(Ok(piece))) => Ok(Some((piece.into_data().unwrap_or_default(), body))),
            Ok(Some(Err(error))) => Err(io::Error::other(Broken::from(error))),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the sandbox sends nothing more")),
        }
    });
    // A piece without a byte would be read as the end.
    let pieces = pieces.try_filter(|piece: &Bytes| std::future::ready(!piece.is_empty()));
    Ok(Box::new(StreamReader::new(Box::pin(pieces))))
}

/// Puts a source's bytes where they are to go.
pub(super) async fn upload(
    link: &Link,
    key: &HeaderValue,
    target: Target<'_>,
    content: ByteSource,
) -> Result<(), SandboxError> {
    let mode = target.mode.filter(|_| target.shape == TransferKind::File);
    let mode = mode.map(|mode| format!("&mode={:04o}", mode.bits())).unwrap_or_default();
    let route = format!("{}{mode}", route(target.path, target.shape));
    let moved = Arc::new(Moved::default());
    let pieces =
        Watched { pieces: ReaderStream::with_capacity(content, PIECE).boxed(), moved: Arc::clone(&moved) };
    let body = StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync();
    let mut requests = link.requests().await?;
    let response = send(&mut requests, request::carrying(key, Method::PUT, &route, body), &moved).await;
    let response = response.map_err(|broken| SandboxError::Host {
        doing: format!("sending {} into the sandbox", target.path),
        source: io::Error::other(broken),
    })?;
    if response.status().is_success() { Ok(()) } else { Err(request::refusal(response).await.into()) }
}

/// Waits for the answer's head for as long as bytes move, or we ourselves have none to send.
async fn send(
    requests: &mut Requests,
    request: Request<Body>,
    moved: &Moved,
) -> Result<Response<Incoming>, Broken> {
    let answered = async {
        requests.ready().await?;
        requests.send_request(request).await
    };
    let stalled = async {
        loop {
            let before = moved.pieces.load(Ordering::Relaxed);
            sleep(STALL).await;
            if moved.pieces.load(Ordering::Relaxed) == before && !moved.waits.load(Ordering::Relaxed) {
                return;
            }
        }
    };
    tokio::select! {
        answered = answered => Ok(answered?),
        () = stalled => Err(Broken(format!("it takes nothing more since {} s", STALL.as_secs()))),
    }
}

/// What became of a source.
#[derive(Default)]
struct Moved {
    /// How many pieces were taken of it.
    pieces: AtomicU64,
    /// Whether it is the source that is waited for.
    waits: AtomicBool,
}

struct Watched<S> {
    pieces: S,
    moved: Arc<Moved>,
}

impl<S: Stream + Unpin> Stream for Watched<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let piece = self.pieces.poll_next_unpin(context);
        self.moved.waits.store(piece.is_pending(), Ordering::Relaxed);
        if piece.is_ready() {
            self.moved.pieces.fetch_add(1, Ordering::Relaxed);
        }
        piece
    }
}
