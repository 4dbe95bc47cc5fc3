//! The HTTP transport of 2024: the server sends its messages as one stream of events. The first
//! event names the URL to which the client posts its messages. It must have the server's own
//! origin, because the key is sent there.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use engine::errors::format_chain;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _};
use protocol::untrusted_json::{self, MAX_VALUES};
use reqwest::{Client, StatusCode, Url};
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use sse_stream::{Sse, SseStream};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::http::is_same_origin;
use super::{MAX_MESSAGE_BYTES, http};
use crate::config::Remote;

/// Maximum number of messages that are not read yet. The stream waits while it is reached.
const MAX_QUEUED_MESSAGES: usize = 16;

/// Error of connecting or sending.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SseError {
    #[error("{0}")]
    Client(#[from] http::HttpError),
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    #[error("it responds with {0}")]
    Refused(StatusCode),
    #[error("its response is not an event stream: does its URL belong in `shttp_servers`?")]
    NoEvents,
    #[error("its event stream ended before its endpoint was received")]
    NoEndpoint,
    #[error("its endpoint has another origin: {0:?}")]
    OtherOrigin(String),
}

/// A connection to a server.
pub(super) struct SseTransport {
    client: Client,
    endpoint: Arc<Url>,
    messages: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
    _reader: AbortOnDropHandle<()>,
}

pub(super) async fn connect(remote: &Remote) -> Result<SseTransport, SseError> {
    let client = http::client(remote)?;
    let request = client
        .get(remote.url.clone())
        .header("accept", "text/event-stream");
    let response = tls::foreign(request.send())
        .await
        .map_err(|error| SseError::Unreachable(format_chain(&error.without_url())))?;
    if !response.status().is_success() {
        return Err(SseError::Refused(response.status()));
    }
    let kind = response
        .headers()
        .get("content-type")
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    if !kind.starts_with("text/event-stream") {
        return Err(SseError::NoEvents);
    }
    let mut events = Events::new(response.bytes_stream());
    let path = loop {
        match events.next().await {
            Some(Sse {
                event: Some(kind),
                data: Some(data),
                ..
            }) if kind == "endpoint" => break data,
            Some(_) => {}
            None => return Err(SseError::NoEndpoint),
        }
    };
    let endpoint = remote
        .url
        .join(path.trim())
        .ok()
        .filter(|url| is_same_origin(url, &remote.url));
    let endpoint =
        endpoint.ok_or_else(|| SseError::OtherOrigin(path.chars().take(200).collect()))?;
    let (sender, messages) = mpsc::channel(MAX_QUEUED_MESSAGES);
    let reader = tokio::spawn(async move {
        while let Some(event) = events.next().await {
            let Some(data) = event.data else { continue };
            match serde_json::from_str(&data) {
                Ok(message) => {
                    if sender.send(message).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "an MCP server sent an event that is not a message");
                }
            }
        }
    });
    let reader = AbortOnDropHandle::new(reader);
    Ok(SseTransport {
        client,
        endpoint: Arc::new(endpoint),
        messages,
        _reader: reader,
    })
}

impl Transport<RoleClient> for SseTransport {
    type Error = SseError;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), SseError>> + Send + 'static {
        let (client, endpoint) = (self.client.clone(), Arc::clone(&self.endpoint));
        async move {
            let request = client.post((*endpoint).clone()).json(&message);
            let sent = tls::foreign(request.send()).await;
            let response =
                sent.map_err(|error| SseError::Unreachable(format_chain(&error.without_url())))?;
            if response.status().is_success() {
                Ok(())
            } else {
                Err(SseError::Refused(response.status()))
            }
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

/// Events of a server. The stream ends at the first error, and at an event that exceeds
/// [`MAX_MESSAGE_BYTES`] or has too many values.
pub(super) struct Events {
    stream: BoxStream<'static, Result<Sse, sse_stream::Error>>,
    /// Bytes received since the latest event.
    unread: Arc<AtomicUsize>,
}

/// Whether an event has few enough values to be parsed.
pub(super) fn is_small(event: &Sse) -> bool {
    let data = event.data.as_deref().unwrap_or_default();
    untrusted_json::has_at_most(data.as_bytes(), MAX_VALUES)
}

impl Events {
    pub(super) fn new<E: std::error::Error + Send + Sync + 'static>(
        chunks: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
    ) -> Self {
        let unread = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&unread);
        let bounded = chunks.take_while(move |chunk| {
            let length = chunk.as_ref().map_or(0, Bytes::len);
            ready(count.fetch_add(length, Relaxed) + length <= MAX_MESSAGE_BYTES)
        });
        Self {
            stream: SseStream::from_bytes_stream(bounded).boxed(),
            unread,
        }
    }

    /// Returns the next event. `None` if the stream has ended.
    async fn next(&mut self) -> Option<Sse> {
        let event = self.stream.next().await?.ok()?;
        self.unread.store(0, Relaxed);
        Some(event).filter(is_small)
    }

    pub(super) fn into_stream(self) -> BoxStream<'static, Result<Sse, sse_stream::Error>> {
        let events = stream::unfold(self, async |mut events| {
            let event = events.next().await?;
            Some((Ok(event), events))
        });
        events.boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    async fn events(chunks: Vec<Vec<u8>>) -> Vec<(Option<String>, usize)> {
        let chunks = chunks
            .into_iter()
            .map(|chunk| Ok::<_, Infallible>(Bytes::from(chunk)));
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
        let line = [
            b"data: ".as_slice(),
            &vec![b'x'; MAX_MESSAGE_BYTES / 2],
            b"\n",
        ]
        .concat();
        let event = [line.as_slice(), b"\n"].concat();
        assert_eq!(
            events(vec![event.clone(), event.clone(), event.clone()])
                .await
                .len(),
            3
        );
        assert_eq!(
            events(vec![
                event,
                line.clone(),
                line.clone(),
                line,
                b"\n".to_vec()
            ])
            .await
            .len(),
            1
        );
        assert_eq!(
            events(vec![
                vec![b'x'; MAX_MESSAGE_BYTES + 1],
                b"\ndata: a\n\n".to_vec()
            ])
            .await,
            []
        );
    }
}
