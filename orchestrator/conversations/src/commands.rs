//! Applies commands of users to conversations.

use std::borrow::Cow;

use engine::clock;
use engine::conversation::{Effect, Input, InputKind, PendingCommand, transition};
use engine::secrets::Redactor;
use protocol::{CommandRequest, ConversationId, Event, EventId, UserCommand};
use tokio::time::Instant;

use crate::checks::{applied_before, check};
use crate::conversations::Conversations;
use crate::error::ConversationsError;
use crate::host::HostError;
use crate::parts::ComposedAgents;
use crate::stored::StoredConversation;

impl Conversations {
    /// Applies a command to a running conversation. Returns the event that it caused, once that is
    /// stored. `None` if there was nothing to do. A command with an id is applied once. Another
    /// model is recorded; the conversation uses it once it is resumed with that model.
    ///
    /// # Errors
    /// [`ConversationsError::NotRunning`]; [`ConversationsError::Conversation`] if it is busy or
    /// closed; [`ConversationsError::NothingToDecide`], [`ConversationsError::OtherActionAwaits`]
    /// or [`ConversationsError::NotInLoop`] if the command is about something that the conversation
    /// lacks.
    pub async fn apply(
        &self,
        id: &ConversationId,
        request: impl Into<CommandRequest>,
    ) -> Result<Option<EventId>, ConversationsError> {
        self.apply_with(id, request.into(), None).await
    }

    /// Applies a command. `agents` have the model that it chooses, and replace the running ones.
    pub(crate) async fn apply_with(
        &self,
        id: &ConversationId,
        request: CommandRequest,
        agents: Option<ComposedAgents>,
    ) -> Result<Option<EventId>, ConversationsError> {
        if let Some(state) = self.state(id) {
            if let Some(event) = applied_before(&state, &request) {
                return Ok(Some(event));
            }
            check(id, &state, &request.command)?;
        }
        let if_nothing_to_do = match &request.command {
            // Another decision was faster.
            UserCommand::Confirm { .. } | UserCommand::Reject { .. } => {
                Err(ConversationsError::NothingToDecide(id.clone()))
            }
            UserCommand::RecoverFromLoop { .. } => Err(ConversationsError::NotInLoop(id.clone())),
            _ => Ok(None),
        };
        match self.submit_with(id, request, agents)?.await? {
            None => if_nothing_to_do,
            event => Ok(event),
        }
    }

    /// Sends a command to a running conversation, which applies it also if the result is dropped.
    ///
    /// # Errors
    /// [`ConversationsError::NotRunning`]; [`ConversationsError::Conversation`] if it is busy or
    /// closed; [`ConversationsError::Host`] if the command's id has a secret.
    pub fn submit(
        &self,
        id: &ConversationId,
        request: impl Into<CommandRequest>,
    ) -> Result<PendingCommand, ConversationsError> {
        self.submit_with(id, request.into(), None)
    }

    fn submit_with(
        &self,
        id: &ConversationId,
        mut request: CommandRequest,
        agents: Option<ComposedAgents>,
    ) -> Result<PendingCommand, ConversationsError> {
        self.running.with(id, |running| {
            let redacted = request
                .id
                .as_ref()
                .map(|id| running.redactor.text(id.as_str()));
            if let Some(Cow::Owned(_)) = redacted {
                // It could not be redacted in the log, because it would be another id.
                let reason = "the id of the command has a secret".to_owned();
                return Err(HostError::Refused(reason).into());
            }
            redact(&mut request.command, &running.redactor);
            let is_message = matches!(request.command, UserCommand::SendMessage(_));
            let conversation = &running.conversation;
            let pending = match agents {
                Some(composed) => conversation.submit_model(request, composed.to_guarded())?,
                None => conversation.submit(request)?,
            };
            if is_message {
                running.last_input = Instant::now();
            }
            Ok(pending)
        })?
    }

    /// Applies a command that only changes the log to a conversation that does not run. No secrets
    /// are redacted in it: they are known only while it runs.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`], [`ConversationsError::Locked`], or
    /// [`ConversationsError::Store`].
    pub(crate) async fn apply_to_stored(
        &self,
        id: &ConversationId,
        request: CommandRequest,
    ) -> Result<Option<EventId>, ConversationsError> {
        let stored = self.open(id).await?;
        let is_stop = request.command == UserCommand::Stop;
        let (mut events, caused) = decide(&stored, InputKind::User(Box::new(request)));
        if !is_stop {
            // What else is due is decided when the conversation runs.
            events.retain(|event| Some(event.id) == caused);
        }
        self.append_to_stored(id, &events).await?;
        Ok(caused)
    }

    /// Appends the events that an input causes to the log of a conversation that does not run.
    pub(crate) async fn append_input(
        &self,
        stored: &StoredConversation,
        kind: InputKind,
    ) -> Result<(), ConversationsError> {
        let (events, _) = decide(stored, kind);
        self.append_to_stored(stored.claim.id(), &events).await
    }

    async fn append_to_stored(
        &self,
        id: &ConversationId,
        events: &[Event],
    ) -> Result<(), ConversationsError> {
        if !events.is_empty() {
            self.store.append(id, events).await?;
            self.running.notify();
        }
        Ok(())
    }
}

/// Returns the events that an input causes, and the id of the event of the user's command.
fn decide(stored: &StoredConversation, kind: InputKind) -> (Vec<Event>, Option<EventId>) {
    let input = Input {
        at: clock::now(),
        kind,
    };
    let (_, effects) = transition(stored.state.clone(), input);
    let (mut appended, mut caused) = (Vec::new(), None);
    for effect in effects {
        match effect {
            Effect::Append(events) => appended = events,
            Effect::ReportApplied { event } => caused = event,
            _ => {}
        }
    }
    (appended, caused)
}

/// Redacts the secrets in the texts of a command.
fn redact(command: &mut UserCommand, redactor: &Redactor) {
    let text = match command {
        UserCommand::SendMessage(message) => &mut message.content,
        UserCommand::Reject { reason, .. } => reason,
        UserCommand::SetTitle { title } => title,
        UserCommand::Stop
        | UserCommand::Pause
        | UserCommand::Resume { .. }
        | UserCommand::AwaitMessage
        | UserCommand::RecoverFromLoop { .. }
        | UserCommand::Confirm { .. }
        | UserCommand::SetConfirmation { .. }
        | UserCommand::SetModel { .. }
        | UserCommand::GiveFeedback(_) => return,
    };
    if let Cow::Owned(redacted) = redactor.text(text) {
        *text = redacted;
    }
}
