//! Applies commands of users to conversations.

use std::borrow::Cow;

use engine::clock;
use engine::conversation::{Applying, Effect, Input, InputKind, State, transition};
use engine::secrets::Redactor;
use protocol::{AgentState, CommandRequest, ConversationId, EventId, UserCommand};
use tokio::time::Instant;

use crate::{Conversations, ConversationsError, HostError, StoredConversation};

impl Conversations {
    /// Applies a command to a running conversation. Returns the event that it caused, once that is
    /// stored. `None` if there was nothing to do. A command with an id is applied once.
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
        let request = request.into();
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
        match self.submit(id, request)?.await? {
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
    ) -> Result<Applying, ConversationsError> {
        let mut request = request.into();
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
            running.last_input = Instant::now();
            redact(&mut request.command, &running.redactor);
            Ok(running.conversation.submit(request)?)
        })?
    }

    /// Applies a command that starts no work to a conversation that does not run. No secrets are
    /// redacted in it: they are known only while it runs.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`], [`ConversationsError::Locked`], or
    /// [`ConversationsError::Store`].
    pub async fn apply_to_stored(
        &self,
        id: &ConversationId,
        request: impl Into<CommandRequest>,
    ) -> Result<Option<EventId>, ConversationsError> {
        let stored = self.open(id).await?;
        let request = InputKind::User(Box::new(request.into()));
        self.append_input(&stored, request).await
    }

    /// Appends the events that an input causes to the log of a conversation that does not run.
    /// Returns the event of the user's command.
    pub(crate) async fn append_input(
        &self,
        stored: &StoredConversation,
        kind: InputKind,
    ) -> Result<Option<EventId>, ConversationsError> {
        let input = Input {
            at: clock::now(),
            kind,
        };
        let (_, effects) = transition(stored.state.clone(), input);
        let mut caused = None;
        for effect in effects {
            match effect {
                Effect::Append(events) => self.store.append(stored.claim.id(), &events).await?,
                Effect::ReportApplied { event } => caused = event,
                _ => {}
            }
        }
        self.running.notify();
        Ok(caused)
    }
}

/// Returns the event that a command caused when it was sent before.
pub(crate) fn applied_before(state: &State, request: &CommandRequest) -> Option<EventId> {
    state.commands.event(request.id.as_ref()?)
}

/// Checks that a conversation has the action or the loop that a command is about.
pub(crate) fn check(
    id: &ConversationId,
    state: &State,
    command: &UserCommand,
) -> Result<(), ConversationsError> {
    match command {
        UserCommand::Confirm { action, .. } | UserCommand::Reject { action, .. } => {
            find_decided(id, state, *action).map(drop)
        }
        UserCommand::RecoverFromLoop { .. } if state.own.stuck.detected_loop().is_none() => {
            Err(ConversationsError::NotInLoop(id.clone()))
        }
        _ => Ok(()),
    }
}

/// Returns the action that awaits confirmation, if a decision is about it: on the named action, or
/// on any.
pub(crate) fn find_decided(
    id: &ConversationId,
    state: &State,
    named: Option<EventId>,
) -> Result<EventId, ConversationsError> {
    match action_awaiting_confirmation(state) {
        None => Err(ConversationsError::NothingToDecide(id.clone())),
        Some(action) if named.is_some_and(|named| named != action) => {
            Err(ConversationsError::OtherActionAwaits {
                conversation: id.clone(),
                action,
            })
        }
        Some(action) => Ok(action),
    }
}

/// Returns the first action that awaits the user's confirmation. `None` if there is none.
pub(crate) fn action_awaiting_confirmation(state: &State) -> Option<EventId> {
    let is_awaiting = state.agent_state == AgentState::AwaitingUserConfirmation;
    state
        .awaiting_confirmation()
        .filter(|_| is_awaiting)
        .map(|(_, pending)| pending.action)
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
        | UserCommand::GiveFeedback(_) => return,
    };
    if let Cow::Owned(redacted) = redactor.text(text) {
        *text = redacted;
    }
}
