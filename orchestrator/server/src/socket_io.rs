//! V0's socket.io: replays the events of a conversation, sends new ones, and receives those of the
//! user.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use accounts::Caller;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use conversations::{ConversationsError, MIN_QUESTION_AGE, event_value};
use engine::clock;
use engine::conversation::State as ConversationState;
use http::{Method, StatusCode};
use hyper::service::Service as _;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use protocol::action::ConfirmationState;
use protocol::{
    Action, AgentState, ConversationId, ConversationUpdate, Event, EventBody, EventId, EventSource,
    Observation, ObservationKind, Record, UserCommand,
};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use socketioxide::adapter::Adapter;
use socketioxide::extract::{AckSender, SocketRef};
use socketioxide::handler::{ConnectHandler as _, FromMessage, Value as Packet};
use socketioxide::service::SocketIoService;
use socketioxide::socket::Socket;
use socketioxide::{ParserConfig, SendError, SocketError, SocketIo};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tokio_util::io::InspectWriter;

use crate::client_address::Client;
use crate::error::ApiError;
use crate::extract::read_body;
use crate::input_memory::{FREE_BYTES, InputPermit};
use crate::json_values::{MAX_VALUES, check_count};
use crate::routes;
use crate::socket_frames::BoundedFrames;
use crate::state::ServerState;
use crate::stream::{ClientUpdates, first_after};
use crate::unread::Unread;
use crate::work::{parse_body, run_blocking};
use crate::{auth, view};

/// Number of packets that wait for a slow client.
const MAX_QUEUED_PACKETS: usize = 256;

/// Number of bytes that a client may have to take before it is sent more.
const MAX_UNREAD_BYTES: usize = 256 << 10;

/// Maximum size of a client's message: a text with pictures, of which
/// [`check_message`](conversations::check_message) accepts 9 MiB. socketioxide parses it, without
/// building its values, on a thread that serves other clients too: in some milliseconds.
const MAX_MESSAGE_BYTES: usize = 10 << 20;

/// Maximum size of a message of a read-only client, which connects, and answers pings.
const MAX_READ_ONLY_BYTES: usize = 16 << 10;

/// Delay before a packet is sent again to a client whose queue is full.
const QUEUE_RETRY_DELAY: Duration = Duration::from_millis(20);

/// Time that the events of a conversation wait until it runs.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of actions that wait until those before them are applied.
const MAX_QUEUED_ACTIONS: usize = 64;

/// Separator of the packets in a polled body. Never occurs in JSON.
const PACKET_SEPARATOR: u8 = 0x1e;

/// The path of all requests of sockets.
pub(crate) const PATH: &str = "/socket.io";

/// The action that a client has been asked about last. V0's decisions name no action: they are
/// about this one.
#[derive(Clone)]
struct Question {
    sent: Arc<Mutex<Option<EventId>>>,
    /// The first event that the client had not received when it connected.
    first: EventId,
}

impl Question {
    fn new(first: EventId) -> Self {
        Self {
            sent: Arc::default(),
            first,
        }
    }

    fn record_sent(&self, action: EventId) {
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner) = Some(action);
    }

    /// Returns the action that a decision is about. Until the socket is sent a question, it may be
    /// an action that an earlier socket of the client was sent. `None` if the client was sent none.
    fn decided(&self, running: Option<&ConversationState>) -> Option<EventId> {
        let sent = *self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.or_else(|| {
            let (_, pending) = running?.awaiting_confirmation()?;
            Some(pending.action).filter(|action| *action < self.first)
        })
    }
}

/// An action of a client, and the channel for its result.
struct ReceivedAction {
    /// The name of the event and its arguments. Parsed only when it is applied, on a blocking
    /// thread.
    json: Bytes,
    _memory: InputPermit,
    result: oneshot::Sender<Result<(), ApiError>>,
}

/// The packet of an event, which is not parsed.
struct RawEvent(Packet);

impl<A: Adapter> FromMessage<A> for RawEvent {
    type Error = Infallible;

    fn from_message(_: Arc<Socket<A>>, packet: Packet, _: Option<i64>) -> Result<Self, Infallible> {
        Ok(Self(packet))
    }
}

/// socketioxide, with a router that it never calls.
type SocketService = SocketIoService<TowerToHyperService<Router>>;

/// The service of sockets, and what bounds the messages of its clients.
#[derive(Clone)]
pub(crate) struct Sockets {
    state: Arc<ServerState>,
    service: SocketService,
}

impl Sockets {
    pub(crate) fn new(state: &Arc<ServerState>) -> Self {
        let (service, io) = SocketIo::builder()
            .req_path(PATH)
            .max_buffer_size(MAX_QUEUED_PACKETS)
            .max_payload(MAX_MESSAGE_BYTES as u64)
            .ws_max_message_size(MAX_MESSAGE_BYTES)
            .ws_max_frame_size(MAX_MESSAGE_BYTES)
            // V0's clients send none, and they would be held until their packet is complete.
            .with_parser(ParserConfig::common().max_incoming_binaries(0))
            .build_with_inner_svc(TowerToHyperService::new(Router::new()));
        let (checking, serving) = (Arc::clone(state), Arc::clone(state));
        let check = move |socket: SocketRef| {
            let state = Arc::clone(&checking);
            async move {
                let (caller, id, first) = check(&state, &socket).await?;
                // Fails if the events cannot be read.
                state.conversations.stream(&id, first).await?;
                // Before the client learns that it is connected, because it may send at once.
                let question = Question::new(first);
                socket.extensions.insert(question.clone());
                receive_actions(&state, &socket, (caller, question), id);
                Ok::<_, ApiError>(())
            }
        };
        let serve = move |socket: SocketRef| serve_events(Arc::clone(&serving), socket);
        io.ns("/", serve.with(check));
        Self {
            state: Arc::clone(state),
            service,
        }
    }

    /// Starts a WebSocket on a connection. socketioxide would read it without our bounds, so it
    /// only answers the request.
    async fn upgrade(self, caller: &Caller, mut request: Request) -> Response {
        let connection = hyper::upgrade::on(&mut request);
        let (parts, body) = request.into_parts();
        let head = http::Request::from_parts(parts.clone(), ());
        let response = self.respond(Request::from_parts(parts, body)).await;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Self { state, service } = self;
            let (user, max_bytes) = (caller.user.clone(), max_message_bytes(caller));
            let unread = head.extensions().get().cloned().unwrap_or_default();
            tokio::spawn(async move {
                // An error means that the client is gone.
                if let Some(Ok(connection)) = state.streams.run_until_cancelled(connection).await {
                    let memory = Arc::clone(&state.input_memory);
                    let connection =
                        InspectWriter::new(TokioIo::new(connection), move |taken: &[u8]| {
                            Unread::subtract(&unread, taken.len());
                        });
                    let frames = BoundedFrames::new(connection, max_bytes, memory, user);
                    // Serves the socket in a task of its own.
                    let _ = service.call((frames, head)).await;
                }
            });
        }
        response
    }

    /// Receives the packets of a client that polls.
    async fn receive(&self, caller: &Caller, mut request: Request) -> Result<Response, ApiError> {
        DefaultBodyLimit::max(max_message_bytes(caller)).apply(&mut request);
        let (parts, body) = read_body(request).await?;
        parse_body(&self.state, body.clone(), check_packets).await?;
        Ok(self
            .respond(Request::from_parts(parts, Body::from(body)))
            .await)
    }

    async fn respond(&self, request: Request) -> Response {
        let Ok(response) = self.service.call(request).await;
        response.map(Body::new)
    }
}

/// Serves `/socket.io`.
pub(crate) async fn serve(
    State(sockets): State<Sockets>,
    request: Request,
    next: Next,
) -> Response {
    let rest = request.uri().path().strip_prefix(PATH);
    if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
        return next.run(request).await;
    }
    let Some(caller) = request.extensions().get::<Caller>().cloned() else {
        return ApiError::NoKey.into_response();
    };
    // The packets of a POST are received, whatever its headers ask for.
    if request.method() == Method::POST {
        sockets
            .receive(&caller, request)
            .await
            .unwrap_or_else(ApiError::into_response)
    } else if request.headers().contains_key(http::header::UPGRADE) {
        sockets.upgrade(&caller, request).await
    } else {
        sockets.respond(request).await
    }
}

fn max_message_bytes(caller: &Caller) -> usize {
    if caller.can_write() {
        MAX_MESSAGE_BYTES
    } else {
        MAX_READ_ONLY_BYTES
    }
}

/// Rejects a body with more packets or values than a client may send: socketioxide handles them one
/// after the other, and lets no other client in between.
fn check_packets(body: &[u8]) -> Result<(), ApiError> {
    let mut packets = body.split(|byte| *byte == PACKET_SEPARATOR);
    if packets.clone().nth(MAX_QUEUED_ACTIONS).is_some() {
        return Err(ApiError::TooManyActions);
    }
    packets.try_for_each(|packet| check_count("body", packet, MAX_VALUES))
}

/// Rejects a connection to a conversation that the caller may not see. Returns the first event that
/// the client needs.
async fn check(
    state: &Arc<ServerState>,
    socket: &SocketRef,
) -> Result<(Caller, ConversationId, EventId), ApiError> {
    let caller = socket
        .req_parts()
        .extensions
        .get::<Caller>()
        .cloned()
        .ok_or(ApiError::NoKey)?;
    let query = socket.req_parts().uri.query().unwrap_or_default();
    let parameter = |name: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs
            .find(|(other, _)| other == name)
            .map(|(_, value)| value)
            .unwrap_or_default()
    };
    let id = parameter("conversation_id").parse();
    let id = id.map_err(|error| ApiError::invalid("conversation_id", error))?;
    state.authorize(&caller, &id).await?;
    // As in V0, whose page sends `undefined` if it has no event.
    let latest = parameter("latest_event_id").trim().parse().unwrap_or(-1);
    // The parameter only shortens the replay: no later event is left out.
    let end = match latest {
        -1 => EventId::FIRST,
        _ => EventId(state.conversations.conversations().event_count(&id).await?),
    };
    Ok((caller, id, first_after(latest).min(end)))
}

/// Applies what a client sends as the user, in the order in which it is sent.
fn receive_actions(
    state: &Arc<ServerState>,
    socket: &SocketRef,
    (caller, question): (Caller, Question),
    id: ConversationId,
) {
    let (sender, actions) = mpsc::channel(MAX_QUEUED_ACTIONS);
    for name in ["oh_user_action", "oh_action"] {
        let sender = sender.clone();
        let (state, caller) = (Arc::clone(state), caller.clone());
        socket.on(
            name,
            move |socket: SocketRef, ack: AckSender, event: RawEvent| {
                // Called in the order of the messages, unlike the futures.
                let result = enqueue(&state, &caller, &sender, &event);
                async move {
                    let result = match result {
                        Ok(applied) => applied
                            .await
                            .unwrap_or(Err(ConversationsError::ShuttingDown.into())),
                        Err(error) => Err(error),
                    };
                    match result {
                        // Fails if the client is gone.
                        Ok(()) => drop(ack.send(&json!({"success": true}))),
                        Err(error) => {
                            let _ =
                                ack.send(&json!({"success": false, "message": error.to_string()}));
                            fail(&socket, &error);
                        }
                    }
                }
            },
        );
    }
    let client = Client::find(&socket.req_parts().extensions);
    tokio::spawn(apply_actions(
        Arc::clone(state),
        (caller, client),
        (id, question),
        actions,
    ));
}

/// Adds an action to the queue, and returns the channel for its result.
fn enqueue(
    state: &ServerState,
    caller: &Caller,
    sender: &mpsc::Sender<ReceivedAction>,
    RawEvent(packet): &RawEvent,
) -> Result<oneshot::Receiver<Result<(), ApiError>>, ApiError> {
    let place = sender.try_reserve().map_err(|_| ApiError::TooManyActions)?;
    // Without the text of a caller who may only read: the action is rejected before it is parsed.
    let json = packet
        .as_str()
        .filter(|_| caller.can_write())
        .map_or("", |json| json.as_str());
    let memory = json.len().saturating_sub(FREE_BYTES);
    let memory = state
        .input_memory
        .try_acquire(caller.user.clone(), memory)?;
    let (result, applied) = oneshot::channel();
    // A copy, because the buffer of the socket, of which the packet is a part, can be much longer.
    place.send(ReceivedAction {
        json: Bytes::copy_from_slice(json.as_bytes()),
        _memory: memory,
        result,
    });
    Ok(applied)
}

/// Parses the first argument of an event.
fn parse_event(json: &[u8]) -> Result<UserCommand, ApiError> {
    check_count("event", json, MAX_VALUES)?;
    let values = serde_json::from_slice::<Vec<Value>>(json);
    let argument = values
        .map_err(|error| ApiError::invalid("event", error))?
        .into_iter()
        .nth(1);
    routes::parse_command(argument.ok_or_else(|| ApiError::invalid("event", "has no argument"))?)
}

/// Applies the actions of a socket until it is closed or the server shuts down.
async fn apply_actions(
    state: Arc<ServerState>,
    (caller, client): (Caller, Option<Client>),
    (id, question): (ConversationId, Question),
    mut actions: mpsc::Receiver<ReceivedAction>,
) {
    while let Some(Some(action)) = state.streams.run_until_cancelled(actions.recv()).await {
        // Fails if the client is gone.
        let result = apply_action(&state, &caller, (&id, &question), action.json).await;
        state
            .audit
            .append_action(&caller, client, "oh_user_action", (&id, to_status(&result)))
            .await;
        let _ = action.result.send(result);
    }
}

fn to_status(result: &Result<(), ApiError>) -> StatusCode {
    result
        .as_ref()
        .map_or_else(ApiError::status_code, |()| StatusCode::OK)
}

/// Applies an action if the key of the socket is still valid and may change something.
async fn apply_action(
    state: &ServerState,
    caller: &Caller,
    (id, question): (&ConversationId, &Question),
    json: Bytes,
) -> Result<(), ApiError> {
    let caller = state
        .authenticator
        .with_credential(&caller.credential)
        .await?
        .ok_or(ApiError::NoKey)?;
    auth::require_write(&caller)?;
    state.audit.catch_up().await?;
    let mut command = parse_body(state, json, parse_event).await?;
    let (UserCommand::Confirm { action, .. } | UserCommand::Reject { action, .. }) = &mut command
    else {
        state.conversations.apply(id, command).await?;
        return Ok(());
    };
    if action.is_some() {
        state.conversations.apply(id, command).await?;
        return Ok(());
    }
    // Waits until the conversation runs: the action of an earlier socket awaits its decision then.
    if state.conversations.state(id).is_none() {
        let opening = UserCommand::AwaitMessage;
        state.conversations.apply(id, opening).await?;
    }
    let running = state.conversations.state(id);
    let Some(decided) = question.decided(running.as_deref()) else {
        return Ok(());
    };
    *action = Some(decided);
    match state.conversations.apply(id, command).await {
        Err(
            ConversationsError::NothingToDecide(_) | ConversationsError::OtherActionAwaits { .. },
        ) => Ok(()),
        result => Ok(result.map(drop)?),
    }
}

/// Sends the events of the conversation until the client disconnects.
async fn serve_events(state: Arc<ServerState>, socket: SocketRef) {
    let opened = async {
        let (caller, id, first) = check(&state, &socket).await?;
        let permit = state.permit_stream(&caller)?;
        let connection = state.connect(&id);
        if caller.can_write() {
            let client = Client::find(&socket.req_parts().extensions);
            let (state, caller, id) = (Arc::clone(&state), caller.clone(), id.clone());
            let opening = tokio::spawn(async move { open(&state, &caller, client, &id).await });
            // Before the events, because an action awaits confirmation only in a conversation that
            // runs. Opening continues after the timeout.
            let _ = timeout(OPEN_TIMEOUT, opening).await;
        }
        let question = socket.extensions.get();
        let question = question.unwrap_or_else(|| Question::new(first));
        let updates = ClientUpdates::new(&state, &caller, &id, first).await?;
        Ok::<_, ApiError>((caller, id, updates, question, (permit, connection)))
    };
    let (caller, id, updates, question, (_permit, connection)) = match opened.await {
        Ok(opened) => opened,
        Err(error) => return fail(&socket, &error),
    };
    let ended = state.streams.child_token();
    let disconnected = ended.clone();
    socket.on_disconnect(move || {
        let disconnected = disconnected.clone();
        async move { disconnected.cancel() }
    });
    if !socket.connected() {
        return;
    }
    tokio::select! {
        // The server shuts down, or the client is gone. No packet of a disconnection, after which
        // clients do not connect again: the transport ends.
        () = ended.cancelled() => return,
        () = connection.stopped() => {}
        () = state.until_revoked(&caller) => fail(&socket, &ApiError::NoKey),
        result = send_events(&state, (&socket, &question), &id, updates) => {
            if let Err(error) = result {
                fail(&socket, &ApiError::from(error));
            }
        }
    }
    // Fails if the client has disconnected itself.
    let _ = socket.disconnect();
}

/// Runs the conversation of a client that may write, as V0 does when a socket connects: its page
/// disables the input of a conversation that does not run. The client reads the events even if the
/// conversation cannot be opened.
async fn open(state: &ServerState, caller: &Caller, client: Option<Client>, id: &ConversationId) {
    if state.conversations.state(id).is_some() {
        return;
    }
    let opened = async {
        state.audit.catch_up().await?;
        let opening = UserCommand::AwaitMessage;
        state.conversations.apply(id, opening).await?;
        Ok::<_, ApiError>(())
    };
    let result = opened.await;
    if let Err(error) = &result {
        tracing::warn!(
            conversation = %id,
            error = error as &dyn std::error::Error,
            "cannot open the conversation of a socket"
        );
    }
    state
        .audit
        .append_action(caller, client, "connect", (id, to_status(&result)))
        .await;
}

/// Sends events until the client is gone. Of the stored changes of the agent's state, only the last
/// one is sent, at the end of what is stored.
async fn send_events(
    state: &ServerState,
    (socket, question): (&SocketRef, &Question),
    id: &ConversationId,
    mut updates: ClientUpdates,
) -> Result<(), ConversationsError> {
    let stored = state.conversations.conversations().event_count(id).await?;
    let (mut last_state, mut awaiting, mut asked_about) = (None, None, None);
    let mut has_title = false;
    let unread: Unread = socket
        .req_parts()
        .extensions
        .get()
        .cloned()
        .unwrap_or_default();
    // In seconds since the Unix epoch.
    let mut decided_at = 0.0;
    loop {
        unread.wait_below(MAX_UNREAD_BYTES).await;
        let (ConversationUpdate::Event(event), json) = updates.next().await? else {
            continue;
        };
        if is_decision(&event) {
            decided_at = clock::epoch_seconds(&event.timestamp);
        }
        let is_replayed = event.id.next().0 < stored;
        let awaits_confirmation = awaits_confirmation(state, id, &event).await;
        let message = to_message(id, &event, json, awaits_confirmation).await;
        if awaits_confirmation {
            // Follows the state, as in V0: its page asks the user when it shows the action.
            awaiting = message;
            asked_about = Some(event.id);
            continue;
        }
        let (changed, sent) = if is_state_change(&event) {
            (message, None)
        } else {
            (None, message)
        };
        last_state = changed.or(last_state);
        let (due, withheld) = if is_replayed {
            (None, None)
        } else {
            (last_state.take(), awaiting.take())
        };
        let (before, after) = if due.is_some() {
            (None, withheld)
        } else {
            (withheld, None)
        };
        if before.is_some() || after.is_some() {
            sleep(time_to_question(decided_at)).await;
        }
        for message in before.into_iter().chain(sent).chain(due).chain(after) {
            // Before the client can take it.
            unread.add(message.get().len());
            if !send(socket, &message).await {
                return Ok(());
            }
        }
        if awaiting.is_none()
            && let Some(action) = asked_about.take()
        {
            question.record_sent(action);
        }
        if !is_replayed && !has_title && is_user_message(&event) {
            // The first message is the title until a model has found one.
            has_title = true;
            let entry = state.conversations.conversations().entry(id).await?;
            let title = entry.and_then(|entry| Some(view::conversation_info(state, &entry)?.title));
            let update = title.and_then(|title| title_update(id, &title));
            if let Some(update) = update
                && !send(socket, &update).await
            {
                return Ok(());
            }
        }
    }
}

/// Time until a question is sent that follows a decision: a second click, also in another window,
/// must not be about an action that the user has not read. It cannot be ignored instead: V0's page
/// hides its buttons after a click, and shows them again for another question only.
fn time_to_question(decided_at: f64) -> Duration {
    let since = clock::epoch_seconds(&clock::now()) - decided_at;
    let since = Duration::try_from_secs_f64(since).unwrap_or_default();
    MIN_QUESTION_AGE.saturating_sub(since)
}

/// Whether the user has decided on an action, by any client.
fn is_decision(event: &Event) -> bool {
    let EventBody::Observation(Observation { kind, .. }) = &event.body else {
        return false;
    };
    let ObservationKind::AgentStateChanged(changed) = kind else {
        return false;
    };
    matches!(
        changed.agent_state,
        AgentState::UserConfirmed | AgentState::UserRejected
    )
}

fn is_state_change(event: &Event) -> bool {
    let EventBody::Observation(Observation { kind, .. }) = &event.body else {
        return false;
    };
    matches!(kind, ObservationKind::AgentStateChanged(_))
}

/// Returns what a client receives for an event with its JSON. `None` for events that V0 does not
/// send.
async fn to_message(
    id: &ConversationId,
    event: &Arc<Event>,
    json: Option<Arc<RawValue>>,
    awaits_confirmation: bool,
) -> Option<Arc<RawValue>> {
    match &event.body {
        EventBody::Record(Record::ConversationTitled(titled)) => title_update(id, &titled.title),
        EventBody::Action(Action::Null(_) | Action::Recall(_)) => None,
        EventBody::Observation(Observation {
            kind: ObservationKind::Null(_),
            ..
        }) => None,
        EventBody::Action(_) if awaits_confirmation => {
            let event = Arc::clone(event);
            run_blocking(move || to_question(&event)).await.ok()?
        }
        _ => json,
    }
}

/// Returns the action that the user is asked about.
fn to_question(action: &Event) -> Option<Arc<RawValue>> {
    let mut json = event_value(action)?;
    // V0 has this field in commands and cells only, and its page decides with it whether it asks
    // the user.
    json["args"]["confirmation_state"] = json!(ConfirmationState::AwaitingConfirmation);
    to_raw_value(&json).map(Arc::from).ok()
}

/// Whether an event is a message of the user to the conversation's own agent.
fn is_user_message(event: &Event) -> bool {
    let is_message = matches!(event.body, EventBody::Action(Action::Message(_)));
    is_message && event.source == EventSource::User && event.delegation.is_none()
}

/// Returns the update that V0's page shows as the title.
fn title_update(id: &ConversationId, title: &str) -> Option<Arc<RawValue>> {
    let update =
        json!({"status_update": true, "type": "info", "message": id, "conversation_title": title});
    to_raw_value(&update).map(Arc::from).ok()
}

/// Whether an event is the action that the user is asked about.
async fn awaits_confirmation(state: &ServerState, id: &ConversationId, event: &Event) -> bool {
    if !matches!(event.body, EventBody::Action(_)) {
        return false;
    }
    let running = state.conversations.state_with(id, event.id).await;
    running.is_some_and(|state| {
        state
            .awaiting_confirmation()
            .is_some_and(|(_, pending)| pending.action == event.id)
    })
}

/// Sends a message, and waits while the queue of a slow client is full. Returns whether the client
/// is still connected.
async fn send(socket: &SocketRef, message: &RawValue) -> bool {
    loop {
        match socket.emit("oh_event", message) {
            Ok(()) => return true,
            Err(SendError::Socket(SocketError::InternalChannelFull)) => {
                sleep(QUEUE_RETRY_DELAY).await;
            }
            Err(_) => return false,
        }
    }
}

fn fail(socket: &SocketRef, error: &ApiError) {
    // A client that is gone or does not read misses the message.
    let _ = socket.emit(
        "oh_event",
        &json!({"error": true, "message": error.to_string()}),
    );
}
