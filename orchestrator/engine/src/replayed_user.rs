//! The user of a saved conversation, whose messages are sent again, and the actions that are
//! repeated.

use std::sync::Arc;

use protocol::action::MessageAction;
use protocol::{Action, Event, EventBody, EventSource};

/// Sends the messages of a saved conversation. The copies of a state share them.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayedUser {
    /// The messages, each with the number of preceding actions.
    messages: Arc<[(usize, MessageAction)]>,
    /// The number of messages that are sent.
    sent: usize,
    /// The number of actions in the log.
    actions: usize,
}

impl ReplayedUser {
    pub(crate) fn new(messages: Arc<[(usize, MessageAction)]>) -> Self {
        Self {
            messages,
            sent: 0,
            actions: 0,
        }
    }

    /// Counts the next event of the log.
    pub(crate) fn count(&mut self, event: &Event) {
        self.actions += usize::from(is_replayable(event));
    }

    /// Returns the next message if it is due, which is then sent.
    pub(crate) fn take_due(&mut self) -> Option<MessageAction> {
        let (after, message) = self.messages.get(self.sent)?;
        if *after > self.actions {
            return None;
        }
        self.sent += 1;
        Some(message.clone())
    }
}

/// Whether an event is an action that a replay repeats.
pub(crate) fn is_replayable(event: &Event) -> bool {
    // A replayed delegation runs the other agent again.
    event.delegation.is_none()
        && matches!((event.source, &event.body), (EventSource::Agent, EventBody::Action(action)) if is_repeatable(action))
}

/// Whether an action means the same in another conversation.
pub(crate) fn is_repeatable(action: &Action) -> bool {
    !matches!(
        action,
        Action::Null(_)
            | Action::System(_)
            | Action::ChangeAgentState(_)
            | Action::Recall(_)
            | Action::Condensation(_)
            | Action::CondensationRequest(_)
    )
}
