//! A conversation of a server, as the terminal shows it.

use std::sync::Arc;

use anyhow::Context as _;
use async_trait::async_trait;
use conversations::{ConversationService as _, Updates, track_answer};
use futures_util::{FutureExt as _, StreamExt as _};
use protocol::update::WaitState;
use protocol::{
    AgentState, ConversationId, ConversationUpdate, Event, EventBody, EventId, EventQuery,
    ObservationKind, UserCommand,
};

use super::server::RemoteServer;
use crate::cli::follow::{
    Applying, AskedAction, CALLING_MODEL, CREATING_SANDBOX, RUNNING_ACTION, ShownConversation,
};

/// A conversation that is followed.
pub(super) struct RemoteConversation {
    server: Arc<RemoteServer>,
    id: ConversationId,
    updates: Updates,
    answer: Option<String>,
    status: &'static str,
    /// The reason of the last change of the agent's state: of a question, that of its risk.
    reason: String,
    is_at_rest: bool,
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
            is_at_rest: false,
        })
    }

    fn track(&mut self, event: &Event) {
        self.is_at_rest = false;
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
            let message = self.updates.next().await;
            let update = message
                .context("the stream of the server has ended")??
                .update;
            match &update {
                ConversationUpdate::Event(event) => self.track(event),
                ConversationUpdate::Waiting(waiting) => self.is_at_rest = waiting.is_at_rest,
                // The server stops, or has closed it. It continues with the next command.
                ConversationUpdate::Closed {} => continue,
                _ => {}
            }
            return Ok(update);
        }
    }

    fn has_queued(&self) -> bool {
        false
    }

    fn is_at_rest(&self) -> bool {
        self.is_at_rest
    }

    fn answer(&self) -> Option<&str> {
        self.answer.as_deref()
    }

    fn earlier_agents(&self) -> Vec<(EventId, String)> {
        Vec::new()
    }

    fn send(&self, command: UserCommand) -> anyhow::Result<Applying> {
        let (server, id) = (Arc::clone(&self.server), self.id.clone());
        let applying = async move {
            server.conversations.apply(&id, command.into()).await?;
            Ok(())
        };
        Ok(applying.boxed())
    }

    async fn status(&mut self) -> &'static str {
        self.status
    }

    async fn asked(&mut self, waiting: WaitState) -> anyhow::Result<Option<AskedAction>> {
        let Some(action) = waiting.action else {
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
        Ok(Some(AskedAction {
            id,
            action,
            risk_reason: self.reason.clone(),
            task: delegation.map(|delegation| format!("#{delegation}")),
        }))
    }
}
