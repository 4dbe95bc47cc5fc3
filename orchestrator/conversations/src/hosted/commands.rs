//! Applies commands of users. A command that needs a running conversation runs it.

use std::sync::Arc;

use engine::clock;
use engine::conversation::{ConversationError, State};
use protocol::action::MessageAction;
use protocol::command::LoopRecovery;
use protocol::record::{ConversationStarted, ModelSource};
use protocol::{
    AgentState, CommandRequest, ConversationId, Event, EventBody, EventId, Observation,
    ObservationKind, UserCommand,
};

use super::{Awaited, HostedConversations, MIN_QUESTION_AGE};
use crate::checks::{applied_before, find_decided};
use crate::client_limits::check_command;
use crate::error::ConversationsError;
use crate::parts::ComposedAgents;

/// Number of events from an action to the question about it, at most.
const MAX_EVENTS_TO_QUESTION: usize = 64;

/// Maximum length of all messages of a user in a conversation, in bytes.
const MAX_USER_BYTES: u64 = 256 << 20;

impl HostedConversations {
    /// Applies a command. Returns the event that it caused, once that is stored. `None` if there
    /// was nothing to do. A command with an id is applied once.
    ///
    /// Runs the conversation if it is not running, except for a stop or a pause, which have nothing
    /// to do then, and for what only changes the log: a title, feedback, the model, the
    /// confirmation policy. A decision that names no action is about the one that awaits
    /// confirmation, unless the user was asked less than [`MIN_QUESTION_AGE`] ago.
    ///
    /// # Errors
    /// [`ConversationsError::Invalid`], [`ConversationsError::Unknown`],
    /// [`ConversationsError::Locked`],
    /// [`ConversationsError::TooManyRunning`], [`ConversationsError::TooLong`],
    /// [`ConversationsError::Host`], an error of the store, or one of
    /// [`Conversations::apply`](crate::Conversations::apply).
    pub async fn apply(
        self: &Arc<Self>,
        id: &ConversationId,
        request: impl Into<CommandRequest>,
    ) -> Result<Option<EventId>, ConversationsError> {
        let mut request = request.into();
        check_command(&mut request)?;
        // What has a long text is dropped with its client.
        if let UserCommand::SendMessage(_) | UserCommand::Reject { .. } = &request.command {
            return self
                .change_awaited(id, |this, id, awaited| async move {
                    this.apply_changing(&id, request, &awaited).await
                })
                .await;
        }
        self.change(id, |this, id| async move {
            this.apply_changing(&id, request, &Awaited::default()).await
        })
        .await
    }

    /// Applies a command to a conversation that is being changed.
    async fn apply_changing(
        self: &Arc<Self>,
        id: &ConversationId,
        mut request: CommandRequest,
        awaited: &Awaited,
    ) -> Result<Option<EventId>, ConversationsError> {
        let state = self.conversations.state(id);
        let applied = |state: &Arc<State>| applied_before(state, &request);
        if let Some(event) = state.as_ref().and_then(applied) {
            return Ok(Some(event));
        }
        let mut agents = None;
        match (state, &mut request.command) {
            (Some(state), UserCommand::SetModel { model }) => {
                agents = Some(self.compose_agents(id, &state, model).await?);
            }
            (None, UserCommand::SetModel { model }) => {
                let model = model.clone();
                self.check_not_running_elsewhere(id).await?;
                let state = self.latest_state(id).await?;
                if applied_before(&state, &request).is_none() {
                    self.compose_agents(id, &state, &model).await?;
                }
                return self.conversations.apply_to_stored(id, request).await;
            }
            // As in V0, what runs stays as it is.
            (Some(_), UserCommand::AwaitMessage) => return Ok(None),
            (
                Some(state),
                command @ (UserCommand::SendMessage(_) | UserCommand::RecoverFromLoop { .. }),
            ) => check_room(id, &state, command)?,
            (
                Some(state),
                UserCommand::Confirm { action, .. } | UserCommand::Reject { action, .. },
            ) if action.is_none() => *action = Some(self.asked_action(id, &state).await?),
            (Some(_), _) => {}
            (None, UserCommand::Stop | UserCommand::Pause) => {
                self.check_not_running_elsewhere(id).await?;
                self.forget_failure(id);
                let state = self.latest_state(id).await?;
                if !state.is_working() {
                    return match state.agent_state {
                        AgentState::AwaitingUserConfirmation => {
                            self.conversations.apply_to_stored(id, request).await
                        }
                        _ => Ok(None),
                    };
                }
                // It is about to be resumed.
                if let Some(event) = self.open(id, &request, awaited).await? {
                    return Ok(Some(event));
                }
            }
            (
                None,
                UserCommand::SetTitle { .. }
                | UserCommand::SetConfirmation { .. }
                | UserCommand::GiveFeedback(_),
            ) => return self.conversations.apply_to_stored(id, request).await,
            (
                None,
                UserCommand::SendMessage(_)
                | UserCommand::Resume { .. }
                | UserCommand::AwaitMessage
                | UserCommand::RecoverFromLoop { .. }
                | UserCommand::Confirm { .. }
                | UserCommand::Reject { .. },
            ) => {
                if let Some(event) = self.open(id, &request, awaited).await? {
                    return Ok(Some(event));
                }
            }
        }
        match self.conversations.apply_with(id, request, agents).await {
            Err(ConversationsError::Conversation(ConversationError::Closed(_))) => {
                self.close_failed(id).await?;
                Err(ConversationsError::NotRunning(id.clone()))
            }
            applied => applied,
        }
    }

    /// Composes the agents of a conversation with another model.
    async fn compose_agents(
        &self,
        id: &ConversationId,
        state: &State,
        model: &str,
    ) -> Result<ComposedAgents, ConversationsError> {
        let Some(started) = &state.started else {
            return Err(ConversationsError::Unknown(id.clone()));
        };
        let started = ConversationStarted {
            model: model.to_owned(),
            model_source: Some(ModelSource::Conversation),
            ..started.clone()
        };
        Ok(self
            .factory
            .compose_agents(&started, state.iterations)
            .await?)
    }

    /// Returns the action that awaits confirmation, if the user has had time to read the question.
    async fn asked_action(
        &self,
        id: &ConversationId,
        state: &State,
    ) -> Result<EventId, ConversationsError> {
        let action = find_decided(id, state, None)?;
        // The change of the state follows the action, except while another action awaits
        // confirmation already.
        let events = self
            .conversations
            .read(id, action, MAX_EVENTS_TO_QUESTION)
            .await?;
        let question = events
            .iter()
            .find(|event| is_question(event))
            .or(events.first());
        let asked_at = question.map(|event| clock::epoch_seconds(&event.timestamp));
        let age = asked_at.map(|asked_at| clock::epoch_seconds(&clock::now()) - asked_at);
        if age.is_some_and(|age| age < MIN_QUESTION_AGE.as_secs_f64()) {
            return Err(ConversationsError::OtherActionAwaits {
                conversation: id.clone(),
                action,
            });
        }
        Ok(action)
    }
}

/// Whether an event asks the user to confirm an action.
fn is_question(event: &Event) -> bool {
    let EventBody::Observation(Observation { kind, .. }) = &event.body else {
        return false;
    };
    matches!(kind, ObservationKind::AgentStateChanged(changed)
        if changed.agent_state == AgentState::AwaitingUserConfirmation)
}

/// Checks that the message of a command fits. All events of a running conversation are in memory.
pub(super) fn check_room(
    id: &ConversationId,
    state: &State,
    command: &UserCommand,
) -> Result<(), ConversationsError> {
    let message = match command {
        UserCommand::SendMessage(message) => Some(message),
        // It is sent again.
        UserCommand::RecoverFromLoop {
            recovery: LoopRecovery::LastUserMessage,
        } => state.last_message.as_deref(),
        _ => None,
    };
    let length = message.map_or(0, MessageAction::length);
    let length = state.user_bytes.saturating_add(length);
    if length > MAX_USER_BYTES {
        return Err(ConversationsError::TooLong(id.clone()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversations::Conversations;

    #[test]
    fn messages_of_a_conversation_have_a_maximum_length() {
        let id = Conversations::new_id();
        let message = MessageAction {
            content: "text".into(),
            image_urls: Some(vec!["data:,image".into()]),
            ..MessageAction::default()
        };
        let state = |user_bytes| State {
            user_bytes,
            last_message: Some(Box::new(message.clone())),
            ..State::default()
        };
        let again = UserCommand::RecoverFromLoop {
            recovery: LoopRecovery::LastUserMessage,
        };
        let room = MAX_USER_BYTES - 15;
        for command in [UserCommand::SendMessage(message.clone()), again] {
            assert!(check_room(&id, &state(room), &command).is_ok());
            assert!(check_room(&id, &state(room + 1), &command).is_err());
        }
    }
}
