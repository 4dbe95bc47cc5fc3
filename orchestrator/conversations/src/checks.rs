//! Checks of commands against the state of a conversation.

use engine::conversation::State;
use protocol::{AgentState, CommandRequest, ConversationId, EventId, UserCommand};

use crate::error::ConversationsError;

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
