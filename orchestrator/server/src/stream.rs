//! The stream of a conversation's events and live output, as server-sent events or as a WebSocket.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use accounts::Caller;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Request, State};
use axum::response::sse::{Event as ServerSentEvent, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use conversations::{ConversationsError, EventStream, to_client};
use futures_util::stream::{self, Stream};
use protocol::update::StreamMessage;
use protocol::{ConversationId, ConversationUpdate, Event, EventId, UserId};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use utoipa::IntoParams;

use crate::error::ApiError;
use crate::extract::{ConversationPath, QueryParameters, RequestCaller};
use crate::state::{ConnectionGuard, ServerState};

/// Interval of keep-alive messages, so that proxies do not close the stream.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Length from which an event needs a permit of its user until the client has taken it. Each
/// client has a copy of it.
const MIN_LARGE_BYTES: usize = 256 << 10;

/// Time for a WebSocket client to receive one message.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub(crate) struct StreamQuery {
    /// The last event that the client has; -1 for none.
    #[param(default = -1)]
    after: i64,
}

impl Default for StreamQuery {
    fn default() -> Self {
        Self { after: -1 }
    }
}

/// The type and the data of a message.
#[derive(Deserialize)]
struct MessageParts<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// Streams events and live output as server-sent events, or as a WebSocket if the request asks for
/// an upgrade. It ends when the client disconnects.
#[utoipa::path(get, path = "/api/v2/conversations/{id}/stream",
    params(("id" = ConversationId, Path, description = "The conversation"), StreamQuery),
    responses(
    (status = 200, description = "The events", body = String, content_type = "text/event-stream"),
    (status = 101, description = "A WebSocket of JSON messages with `type`, `id` and `data`"),
))]
pub(crate) async fn stream(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    RequestCaller(caller): RequestCaller,
    QueryParameters(query): QueryParameters<StreamQuery>,
    request: Request,
) -> Result<Response, ApiError> {
    let (mut parts, _) = request.into_parts();
    // A browser sends the id of the last event when it reconnects.
    let last = parts
        .headers
        .get("last-event-id")
        .and_then(|id| id.to_str().ok()?.parse().ok());
    let permit = state.permit_stream(&caller)?;
    let first = first_after(last.unwrap_or(query.after));
    let messages = MessageStream {
        _connection: state.connect(&id),
        _permit: permit,
        updates: ClientUpdates::new(&state, &caller, &id, first).await?,
        state: Arc::clone(&state),
        caller,
    };
    match WebSocketUpgrade::from_request_parts(&mut parts, &state).await {
        Ok(upgrade) => Ok(upgrade.on_upgrade(move |socket| serve_socket(messages, socket))),
        Err(_) => Ok(serve_events(messages)),
    }
}

/// The updates of a conversation for one client, with the JSON of events. A user's clients have
/// only some large events at a time.
pub(crate) struct ClientUpdates {
    state: Arc<ServerState>,
    /// `None` for the operator, who has no limits.
    user: Option<UserId>,
    id: ConversationId,
    events: EventStream,
    /// Held while the last event is sent, if it is large.
    sending: Option<OwnedSemaphorePermit>,
}

impl ClientUpdates {
    /// Creates the updates from an event on.
    pub(crate) async fn new(
        state: &Arc<ServerState>,
        caller: &Caller,
        id: &ConversationId,
        first: EventId,
    ) -> Result<Self, ConversationsError> {
        Ok(Self {
            state: Arc::clone(state),
            user: caller.user.clone(),
            id: id.clone(),
            events: state.conversations.stream(id, first).await?,
            sending: None,
        })
    }

    /// Waits for the next update, once the client has taken the last one. Events that clients do
    /// not see have no JSON. Not cancel-safe.
    pub(crate) async fn next(
        &mut self,
    ) -> Result<(ConversationUpdate<Arc<Event>>, Option<Arc<RawValue>>), ConversationsError> {
        self.sending = None;
        loop {
            let update = self.events.next().await?;
            let event = match &update {
                ConversationUpdate::Event(event) => event,
                ConversationUpdate::Attached(action) => {
                    let json = self.state.client_events.json(action).await;
                    return Ok((update, json));
                }
                _ => return Ok((update, None)),
            };
            let json = self.state.client_events.json(event).await;
            let length = json.as_ref().map_or(0, |json| json.get().len());
            let Some(user) = self.user.clone().filter(|_| length >= MIN_LARGE_BYTES) else {
                return Ok((update, json));
            };
            if self.sending.is_some() {
                return Ok((update, json));
            }
            let permits = &self.state.large_events_by_user;
            self.sending = permits.try_acquire(user.clone());
            if self.sending.is_some() {
                return Ok((update, json));
            }
            // It is read again, so that a client that waits holds no event.
            let id = event.id;
            drop((update, json));
            self.events = self.state.conversations.stream(&self.id, id).await?;
            self.sending = permits.acquire(user).await;
        }
    }
}

/// The messages of one client.
struct MessageStream {
    state: Arc<ServerState>,
    caller: Caller,
    updates: ClientUpdates,
    _connection: ConnectionGuard,
    _permit: Option<OwnedSemaphorePermit>,
}

impl MessageStream {
    /// Waits for the next message that clients see, once the client has taken the last one. Not
    /// cancel-safe.
    async fn next(&mut self) -> Result<StreamMessage<Arc<RawValue>>, ConversationsError> {
        loop {
            let (update, json) = self.updates.next().await?;
            let Some(StreamMessage { id, update }) = to_client(update) else {
                continue;
            };
            if let Some(update) = update.convert_event(|_| json) {
                return Ok(StreamMessage { id, update });
            }
        }
    }
}

/// Returns the event after the last one that a client has; -1 for none.
pub(crate) fn first_after(last: i64) -> EventId {
    EventId(u64::try_from(last.saturating_add(1)).unwrap_or(0))
}

fn serve_events(messages: MessageStream) -> Response {
    let (state, caller) = (Arc::clone(&messages.state), messages.caller.clone());
    let ended = async move {
        tokio::select! {
            () = state.streams.cancelled() => {}
            () = state.until_revoked(&caller) => {}
        }
    };
    let events = stream::StreamExt::take_until(server_sent(messages), ended);
    Sse::new(events)
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL))
        .into_response()
}

fn server_sent(messages: MessageStream) -> impl Stream<Item = Result<ServerSentEvent, Infallible>> {
    stream::unfold(Some(messages), |open| async move {
        let mut messages = open?;
        let (message, open) = match messages.next().await {
            Ok(message) => (message, Some(messages)),
            Err(error) => (failure(&error), None),
        };
        Some((Ok(to_server_sent(&message)?), open))
    })
}

fn to_server_sent(message: &StreamMessage<Arc<RawValue>>) -> Option<ServerSentEvent> {
    let id = message.id.into_iter();
    let sent = id.fold(ServerSentEvent::default(), |sent, id| {
        sent.id(id.to_string())
    });
    // Events are long, and their JSON is shared by all streams.
    if let ConversationUpdate::Event(json) = &message.update {
        return Some(sent.event("event").data(json.get()));
    }
    let json = serde_json::to_string(&message.update).ok()?;
    let MessageParts { kind, data } = serde_json::from_str(&json).ok()?;
    Some(sent.event(kind).data(data.get()))
}

async fn serve_socket(mut messages: MessageStream, mut socket: WebSocket) {
    let (state, caller) = (Arc::clone(&messages.state), messages.caller.clone());
    let mut revoked = pin!(state.until_revoked(&caller));
    loop {
        // Kept while the client sends something: a message that was read is not read again.
        let mut next = Box::pin(messages.next());
        let message = loop {
            tokio::select! {
                () = state.streams.cancelled() => return,
                () = &mut revoked => return,
                // Clients send nothing but pings, which are answered while the socket is read, and
                // the end.
                received = socket.recv() => match received {
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                },
                message = &mut next => break message,
            }
        };
        drop(next);
        let (message, is_last) = match message {
            Ok(message) => (message, false),
            Err(error) => (failure(&error), true),
        };
        let Ok(text) = serde_json::to_string(&message) else {
            return;
        };
        // A client that does not read is disconnected. It continues from its last event.
        let sent = timeout(SEND_TIMEOUT, socket.send(Message::from(text))).await;
        if is_last || !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

fn failure(error: &ConversationsError) -> StreamMessage<Arc<RawValue>> {
    tracing::error!(%error, "cannot read the events of a stream");
    StreamMessage {
        id: None,
        update: ConversationUpdate::Error {
            message: error.to_string(),
        },
    }
}
