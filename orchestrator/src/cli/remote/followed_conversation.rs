//! A conversation of a server, as the terminal shows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use conversations::{ConversationService as _, ServiceErrorKind, Updates, track_answer};
use futures_util::{FutureExt as _, StreamExt as _};
use protocol::update::WaitState;
use protocol::{
    AgentState, ConversationId, ConversationUpdate, Event, EventBody, EventId, EventQuery,
    ObservationKind, UserCommand,
};
use tokio::time::Instant;

use super::server::RemoteServer;
use crate::cli::follow::{
    ActionAwaitingConfirmation, CALLING_MODEL, CREATING_SANDBOX, CommandFuture, RUNNING_ACTION,
    ShownConversation, wait_until,
};
use crate::cli::print;

/// Time for a server to run a conversation again whose agent was working when it was closed.
const RESTART_TIMEOUT: Duration = Duration::from_secs(60);

/// A conversation that is followed.
pub(super) struct RemoteConversation {
    server: Arc<RemoteServer>,
    id: ConversationId,
    updates: Updates,
    answer: Option<String>,
    status: &'static str,
    /// The reason of the last change of the agent's state: of a question, that of its risk.
    reason: String,
    is_idle: bool,
    /// When the conversation must run again. `None` if it runs, or waits for the user.
    restart_deadline: Option<Instant>,
    /// The last action about which another client has decided first. 0, which is no action, if
    /// there is none.
    decided_by_other: Arc<AtomicU64>,
}

impl RemoteConversation {
    /// Follows a conversation from the event after `after`.
    pub(super) async fn follow(
        server: &Arc<RemoteServer>,
        id: &ConversationId,
        after: Option<EventId>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            server: Arc::clone(server),
            id: id.clone(),
            updates: server.conversations.follow(id, after).await?,
            answer: None,
            status: CREATING_SANDBOX,
            reason: String::new(),
            is_idle: false,
            restart_deadline: None,
            decided_by_other: Arc::default(),
        })
    }

    /// Waits for the next update. Cancel-safe.
    async fn next_update(&mut self) -> anyhow::Result<ConversationUpdate<Arc<Event>>> {
        loop {
            let message = tokio::select! {
                message = self.updates.next() => message,
                () = wait_until(self.restart_deadline) => {
                    let item = self.server.conversations.get(&self.id).await?;
                    anyhow::ensure!(item.is_running, "the server does not run the conversation any more");
                    // A call to a model may take longer.
                    self.restart_deadline = None;
                    continue;
                }
            };
            let update = message
                .context("the stream of the server has ended")??
                .update;
            if update != (ConversationUpdate::LiveGap {}) {
                self.restart_deadline = None;
            }
            return Ok(update);
        }
    }

    fn track(&mut self, event: &Event) {
        self.is_idle = false;
        track_answer(event, &mut self.answer);
        match &event.body {
            EventBody::Action(_) => self.status = RUNNING_ACTION,
            EventBody::Observation(observation) => {
                self.status = CALLING_MODEL;
                if let ObservationKind::AgentStateChanged(changed) = &observation.kind {
                    self.reason.clone_from(&changed.reason);
                    if changed.agent_state == AgentState::Loading {
                        self.status = CREATING_SANDBOX;
                    }
                }
            }
            EventBody::Record(_) => {}
        }
    }
}

#[async_trait]
impl ShownConversation for RemoteConversation {
    async fn next(&mut self) -> anyhow::Result<ConversationUpdate<Arc<Event>>> {
        loop {
            let update = self.next_update().await?;
            match &update {
                ConversationUpdate::Event(event) => self.track(event),
                ConversationUpdate::Waiting(waiting) => self.is_idle = waiting.is_idle,
                // The server stops and will continue it, or it has failed.
                ConversationUpdate::Closed {} if !self.is_idle => {
                    self.restart_deadline = Some(Instant::now() + RESTART_TIMEOUT);
                    continue;
                }
                // It continues with the next command.
                ConversationUpdate::Closed {} => continue,
                _ => {}
            }
            return Ok(update);
        }
    }

    fn has_queued(&self) -> bool {
        false
    }

    fn is_idle(&self) -> bool {
        self.is_idle
    }

    fn answer(&self) -> Option<&str> {
        self.answer.as_deref()
    }

    fn earlier_agents(&self) -> Vec<(EventId, String)> {
        Vec::new()
    }

    fn send(&self, command: UserCommand) -> anyhow::Result<CommandFuture> {
        let (server, id) = (Arc::clone(&self.server), self.id.clone());
        let decided = match &command {
            UserCommand::Confirm { action, .. } | UserCommand::Reject { action, .. } => *action,
            _ => None,
        };
        let conflicting = Arc::clone(&self.decided_by_other);
        let applying = async move {
            match server.conversations.apply(&id, command.into()).await {
                Err(error) if decided.is_some() && error.kind == ServiceErrorKind::Conflict => {
                    print::note("[another client has decided about this action]\n");
                    conflicting.store(decided.map_or(0, |action| action.0), Ordering::Relaxed);
                    Ok(None)
                }
                applied => Ok(applied?),
            }
        };
        Ok(applying.boxed())
    }

    async fn status(&mut self) -> &'static str {
        self.status
    }

    async fn find_asked_action(
        &mut self,
        waiting: WaitState,
    ) -> anyhow::Result<Option<ActionAwaitingConfirmation>> {
        let decided = EventId(self.decided_by_other.load(Ordering::Relaxed));
        let Some(action) = waiting.action.filter(|action| *action != decided) else {
            return Ok(None);
        };
        let query = EventQuery {
            from: action,
            until: Some(action.next()),
            ..EventQuery::default()
        };
        let page = self.server.conversations.events(&self.id, query).await?;
        let event = page.parse()?.pop();
        let Some(Event {
            body: EventBody::Action(action),
            id,
            delegation,
            ..
        }) = event
        else {
            return Ok(None);
        };
        Ok(Some(ActionAwaitingConfirmation {
            id,
            action,
            risk_reason: self.reason.clone(),
            task: delegation.map(|delegation| format!("#{delegation}")),
        }))
    }
}
