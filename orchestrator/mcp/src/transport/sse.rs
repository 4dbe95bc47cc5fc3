//! The protocol over HTTP as it was in 2024: the server's messages are one stream of events, whose first event says where
//! ours are posted to. That place must be the server's own: the key is sent there.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
use reqwest::{Client, StatusCode, Url};
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use sse_stream::{Sse, SseStream};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::http::is_same_place;
use super::{LONGEST_MESSAGE, chain, http};
use crate::config::Remote;

/// Messages that wait to be read; then the stream waits.
const WAITING: usize = 16;

/// Why nothing more is heard, or cannot be said.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SseError {
    #[error("{0}")]
    Client(#[from] http::HttpError),
    #[error("it cannot be asked: {0}")]
    Unreachable(String),
    #[error("it answers with {0}")]
    Refused(StatusCode),
    #[error("its answer is no stream of events; is its address one of `shttp_servers`?")]
    NoEvents,
    #[error("its stream of events ended before it said where to send to")]
    NoEndpoint,
    #[error("it wants what is sent to it to go elsewhere, to {0:?}")]
    Elsewhere(String),
}

/// A server that was asked for its events.
pub(super) struct SseTransport {
    client: Client,
    endpoint: Arc<Url>,
    messages: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
    _reading: AbortOnDropHandle<()>,
}

pub(super) async fn connect(remote: &Remote) -> Result<SseTransport, SseError> {
    let client = http::client(remote)?;
    let asked = client.get(remote.url.clone()).header("accept", "text/event-stream").send().await;
    let response = asked.map_err(|error| SseError::Unreachable(chain(&error.without_url())))?;
    if !response.status().is_success() {
        return Err(SseError::Refused(response.status()));
    }
    let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("text/event-stream") {
        return Err(SseError::NoEvents);
    }
    let mut events = Events::new(response.bytes_stream());
    let place = loop {
        match events.next().await {
            Some(Sse { event: Some(kind), data: Some(data), .. }) if kind == "endpoint" => break data,
            Some(_) => {}
            None => return Err(SseError::NoEndpoint),
        }
    };
    let endpoint = remote.url.join(place.trim()).ok().filter(|url| is_same_place(url, &remote.url));
    let endpoint = endpoint.ok_or_else(|| SseError::Elsewhere(place.chars().take(200).collect()))?;
    let (heard, messages) = mpsc::channel(WAITING);
    let reading = tokio::spawn(async move {
        while let Some(event) = events.next().await {
            let Some(data) = event.data else { continue };
            match serde_json::from_str(&data) {
                Ok(message) => {
                    if heard.send(message).await.is_err() {
                        return;
                    }
                }
                Err(error) => tracing::debug!(%error, "a tool server sent an event that is no message"),
            }
        }
    });
    let reading = AbortOnDropHandle::new(reading);
    Ok(SseTransport { client, endpoint: Arc::new(endpoint), messages, _reading: reading })
}

impl Transport<RoleClient> for SseTransport {
    type Error = SseError;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), SseError>> + Send + 'static {
        let (client, endpoint) = (self.client.clone(), Arc::clone(&self.endpoint));
        async move {
            let sent = client.post((*endpoint).clone()).json(&message).send().await;
            let response = sent.map_err(|error| SseError::Unreachable(chain(&error.without_url())))?;
            if response.status().is_success() { Ok(()) } else { Err(SseError::Refused(response.status())) }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.messages.recv().await
    }

    async fn close(&mut self) -> Result<(), SseError> {
        self.messages.close();
        Ok(())
    }
}

/// Events of a server. The stream ends at the first error, and at an event that exceeds [`LONGEST_MESSAGE`].
struct Events {
    stream: BoxStream<'static, Result<Sse, sse_stream::Error>>,
    /// Bytes received since the latest event.
    unread: Arc<AtomicUsize>,
}

impl Events {
    fn new<E: std::error::Error + Send + Sync + 'static>(
        chunks: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
    ) -> Self {
        let unread = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&unread);
        let bounded = chunks.take_while(move |chunk| {
            let length = chunk.as_ref().map_or(0, Bytes::len);
            ready(count.fetch_add(length, Relaxed) + length <= LONGEST_MESSAGE)
        });
        Self { stream: SseStream::from_bytes_stream(bounded).boxed(), unread }
    }

    /// Returns the next event. `None` if the stream has ended.
    async fn next(&mut self) -> Option<Sse> {
        let event = self.stream.next().await?.ok()?;
        self.unread.store(0, Relaxed);
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;

    use super::*;

    async fn events(chunks: Vec<Vec<u8>>) -> Vec<(Option<String>, usize)> {
        let chunks = chunks.into_iter().map(|chunk| Ok::<_, Infallible>(Bytes::from(chunk)));
        let mut events = Events::new(stream::iter(chunks));
        let mut read = Vec::new();
        while let Some(event) = events.next().await {
            read.push((event.event, event.data.map_or(0, |data| data.len())));
        }
        read
    }

    #[tokio::test]
    async fn events_are_read_for_any_chunk_size() {
        let text =
            b": ping\r\n\r\nevent: endpoint\r\ndata: /m\r\n\r\ndata:one\ndata: two\nid: 3\n\ndata: cut";
        let expected = [(Some("endpoint".to_owned()), 2), (None, 7)];
        for length in 1..text.len() {
            let chunks = text.chunks(length).map(<[u8]>::to_vec).collect();
            assert_eq!(events(chunks).await, expected, "in chunks of {length}");
        }
    }

    #[tokio::test]
    async fn stream_ends_at_an_event_that_is_too_long() {
        let line = [b"data: ".as_slice(), &vec![b'x'; LONGEST_MESSAGE / 2], b"\n"].concat();
        let event = [line.as_slice(), b"\n"].concat();
        assert_eq!(events(vec![event.clone(), event.clone(), event.clone()]).await.len(), 3);
        assert_eq!(events(vec![event, line.clone(), line.clone(), line, b"\n".to_vec()]).await.len(), 1);
        assert_eq!(events(vec![vec![b'x'; LONGEST_MESSAGE + 1], b"\ndata: a\n\n".to_vec()]).await, []);
    }
}
