//! The protocol over HTTP as it was in 2024: the server's messages are one stream of events, whose first event says where
//! ours are posted to. That place must be the server's own: the key is sent there.

use std::sync::Arc;

use reqwest::{Client, Response, StatusCode, Url};
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
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
    let mut events = Events { response, reader: EventReader::default() };
    let place = loop {
        match events.next().await {
            Some(Event { kind, data }) if kind == "endpoint" => break data,
            Some(_) => {}
            None => return Err(SseError::NoEndpoint),
        }
    };
    let endpoint = remote.url.join(place.trim()).ok().filter(|url| is_same_place(url, &remote.url));
    let endpoint = endpoint.ok_or_else(|| SseError::Elsewhere(place.chars().take(200).collect()))?;
    let (heard, messages) = mpsc::channel(WAITING);
    let reading = tokio::spawn(async move {
        while let Some(event) = events.next().await {
            match serde_json::from_str(&event.data) {
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

#[derive(Debug, Default, PartialEq)]
struct Event {
    kind: String,
    data: String,
}

struct Events {
    response: Response,
    reader: EventReader,
}

impl Events {
    /// The next event; none when the stream has ended, broke, or is not to be believed.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.reader.next()? {
                return Some(event);
            }
            self.reader.push(&self.response.chunk().await.ok()??);
        }
    }
}

/// Between two pieces of a stream.
#[derive(Default)]
struct EventReader {
    unread: Vec<u8>,
    /// How much of `unread` holds no end of a line.
    looked_at: usize,
    event: Event,
}

impl EventReader {
    fn push(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// The next event, if it is there; nothing at all when one is too long.
    fn next(&mut self) -> Option<Option<Event>> {
        let mut read = 0;
        let mut found = None;
        while found.is_none() {
            let from = self.looked_at.max(read);
            let rest = self.unread.get(from..).unwrap_or_default();
            let Some(end) = rest.iter().position(|byte| *byte == b'\n').map(|end| from + end) else { break };
            let line = String::from_utf8_lossy(self.unread.get(read..end).unwrap_or_default()).into_owned();
            found = self.line(line.trim_end_matches('\r'));
            read = end + 1;
        }
        self.unread.drain(..read);
        self.looked_at = if found.is_some() { 0 } else { self.unread.len() };
        (self.unread.len() + self.event.data.len() <= LONGEST_MESSAGE).then_some(found)
    }

    /// The event that a line ends.
    fn line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return (!event.data.is_empty()).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.kind),
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<Event> {
        let mut reader = EventReader::default();
        let mut events = Vec::new();
        for piece in pieces {
            reader.push(piece);
            while let Some(event) = reader.next().unwrap() {
                events.push(event);
            }
        }
        events
    }

    #[test]
    fn pieces_may_break_anywhere() {
        let stream = ": ping\r\n\r\nevent: endpoint\r\ndata: /m?\u{1f9e4}\r\n\r\ndata:one\ndata: two\nid: 3\n\ndata: cut";
        let event = |kind: &str, data: &str| Event { kind: kind.into(), data: data.into() };
        let whole = [event("endpoint", "/m?\u{1f9e4}"), event("", "one\ntwo")];
        assert_eq!(events(&[stream.as_bytes()]), whole);
        assert_eq!(events(&stream.as_bytes().chunks(1).collect::<Vec<_>>()), whole);
    }

    #[test]
    fn an_event_without_an_end_is_not_kept() {
        let mut reader = EventReader::default();
        reader.push(&vec![b'x'; LONGEST_MESSAGE + 1]);
        assert_eq!(reader.next(), None);
        let mut reader = EventReader::default();
        let line = [b"data: ".as_slice(), &vec![b'x'; LONGEST_MESSAGE / 2], b"\n"].concat();
        reader.push(&line);
        assert_eq!(reader.next(), Some(None));
        reader.push(&line);
        reader.push(&line);
        assert_eq!(reader.next(), None);
    }
}
