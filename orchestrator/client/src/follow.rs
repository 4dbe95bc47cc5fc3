//! The stream of a conversation, across connections.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use conversations::{ServiceError, ServiceErrorKind, Updates};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http::Method;
use protocol::update::StreamMessage;
use protocol::{ConversationId, ConversationUpdate, Event, EventId};
use serde_json::value::RawValue;
use sse_stream::{Sse, SseStream};
use tokio::time::{Instant, timeout};

use crate::connection::{ApiRequest, Connection, Failure, RETRY_TIMEOUT};
use crate::error;
use crate::retry::Retry;

/// Time without a byte after which a connection counts as lost. The server sends a comment every
/// 15 s.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(45);

/// Time after which the loss of a connection is a new failure.
const MIN_STABLE_DURATION: Duration = Duration::from_secs(5);

/// Maximum length of a message, in bytes.
const MAX_MESSAGE_BYTES: usize = 128 << 20;

/// Follows a conversation from the event after `after`.
pub(crate) async fn follow(
    connection: Arc<Connection>,
    id: ConversationId,
    after: Option<EventId>,
) -> Result<Updates, ServiceError> {
    let mut following = FollowConnection {
        connection,
        id,
        first: after,
        after,
        attached: BTreeSet::new(),
        messages: None,
        has_gap: false,
        connected_at: Instant::now(),
        retry: Retry::new(RETRY_TIMEOUT),
    };
    // A conversation that does not exist is an error of the request.
    following.connect().await?;
    let updates = stream::unfold(Some(following), async |open| {
        let mut following = open?;
        match following.next().await {
            Ok(message) => Some((Ok(message), Some(following))),
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok(updates.boxed())
}

struct FollowConnection {
    connection: Arc<Connection>,
    id: ConversationId,
    /// The event after which the first connection started.
    first: Option<EventId>,
    /// The last event that was returned.
    after: Option<EventId>,
    /// Actions before the first event that were returned as running.
    attached: BTreeSet<EventId>,
    /// Messages of the connection. `None` if there is no connection.
    messages: Option<BoxStream<'static, Sse>>,
    /// Whether updates between events may have been lost.
    has_gap: bool,
    connected_at: Instant,
    /// Started with the last event, and when a connection was lost that had lasted for
    /// [`MIN_STABLE_DURATION`].
    retry: Retry,
}

impl FollowConnection {
    async fn next(&mut self) -> Result<StreamMessage<Arc<Event>>, ServiceError> {
        loop {
            if self.messages.is_none() {
                self.connect().await?;
            }
            if std::mem::take(&mut self.has_gap) {
                return Ok(StreamMessage {
                    id: None,
                    update: ConversationUpdate::LiveGap {},
                });
            }
            let next = match &mut self.messages {
                Some(messages) => messages.next().await,
                None => None,
            };
            let Some(sse) = next else {
                self.reconnect_later("the connection was lost").await?;
                continue;
            };
            let Some(message) = self.parse(sse)? else {
                continue;
            };
            if let ConversationUpdate::Error { message } = &message.update {
                // Whether it lasts, as for a deleted conversation, the next connection shows.
                self.reconnect_later(message).await?;
                continue;
            }
            if let ConversationUpdate::Attached(action) = &message.update {
                // Each connection starts with the running actions.
                let is_returned = Some(action.id) > self.first || !self.attached.insert(action.id);
                if is_returned {
                    continue;
                }
            }
            if message.id.is_some() {
                if message.id <= self.after {
                    continue;
                }
                self.after = message.id;
                self.retry = Retry::new(RETRY_TIMEOUT);
            }
            return Ok(message);
        }
    }

    /// Opens a connection, with repetitions.
    async fn connect(&mut self) -> Result<(), ServiceError> {
        let after = self.after.map(|after| ("after", after.0));
        let request = ApiRequest::of_conversation(Method::GET, &self.id, "/stream")
            .with_query(&after.into_iter().collect::<Vec<_>>());
        loop {
            let failure = match timeout(SILENCE_TIMEOUT, self.connection.open(&request, None)).await
            {
                Ok(Ok(response)) => {
                    self.messages = Some(messages(response));
                    self.connected_at = Instant::now();
                    return Ok(());
                }
                Ok(Err(failure)) => failure,
                Err(_) => Failure::Lost(unavailable("the server does not respond")),
            };
            let is_new = matches!(failure, Failure::Unsent(_)) && !self.connection.was_reached();
            let error = failure.into_error();
            if is_new || !error.kind.is_transient() || !self.retry.wait().await {
                return Err(error);
            }
        }
    }

    /// Drops the connection, and waits before the next one. Returns an error if connections have
    /// been lost for too long.
    async fn reconnect_later(&mut self, reason: &str) -> Result<(), ServiceError> {
        tracing::debug!(conversation = %self.id, reason, "the stream has ended");
        self.messages = None;
        self.has_gap = true;
        if self.connected_at.elapsed() > MIN_STABLE_DURATION {
            self.retry = Retry::new(RETRY_TIMEOUT);
        }
        if self.retry.wait().await {
            return Ok(());
        }
        Err(unavailable(reason))
    }

    /// Parses a message. `None` for one that this version does not know.
    fn parse(&self, sse: Sse) -> Result<Option<StreamMessage<Arc<Event>>>, ServiceError> {
        let (Some(kind), Some(data)) = (sse.event, sse.data) else {
            return Ok(None);
        };
        let malformed = |error| error::malformed(error, self.connection.url());
        let data = RawValue::from_string(data).map_err(malformed)?;
        let message = serde_json::json!({"type": kind, "data": data});
        match serde_json::from_value::<ConversationUpdate>(message) {
            Ok(update) => {
                let id = sse.id.and_then(|id| id.parse().ok()).map(EventId);
                let update = update.convert_event(|event| Some(Arc::new(event)));
                Ok(update.map(|update| StreamMessage { id, update }))
            }
            Err(error) if kind == "event" => Err(malformed(error)),
            Err(error) => {
                tracing::debug!(kind, %error, "an unknown update is ignored");
                Ok(None)
            }
        }
    }
}

fn unavailable(reason: &str) -> ServiceError {
    ServiceError {
        kind: ServiceErrorKind::Unavailable,
        message: reason.to_owned(),
        source: None,
    }
}

/// Returns the messages of a response. They end with the connection, and with a message that is too
/// long.
fn messages(response: reqwest::Response) -> BoxStream<'static, Sse> {
    let chunks = stream::unfold(response, async |mut response| {
        let chunk = timeout(SILENCE_TIMEOUT, response.chunk()).await;
        let chunk = chunk.ok()?.transpose()?;
        Some((chunk, response))
    });
    let mut length = 0;
    let bounded = chunks.take_while(move |chunk| {
        // An empty line ends a message.
        let is_end = chunk.as_ref().is_ok_and(|chunk| {
            chunk.windows(2).any(|pair| pair == b"\n\n") || chunk.as_ref() == b"\n"
        });
        length = if is_end { 0 } else { length } + chunk.as_ref().map_or(0, |chunk| chunk.len());
        std::future::ready(length <= MAX_MESSAGE_BYTES)
    });
    let messages = SseStream::from_bytes_stream(bounded.boxed());
    messages
        .take_while(|message| std::future::ready(message.is_ok()))
        .filter_map(async |message| message.ok())
        .boxed()
}
