//! The user of a saved conversation, whose messages are sent again.

use std::collections::VecDeque;

use protocol::Event;
use protocol::action::MessageAction;

use crate::replay::is_replayable;

/// The messages of a saved conversation that are still to be sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReplayedUser {
    /// The messages, each with the number of preceding actions.
    messages: VecDeque<(usize, MessageAction)>,
    /// The number of actions in the log.
    actions: usize,
}

impl ReplayedUser {
    pub(crate) fn new(messages: impl IntoIterator<Item = (usize, MessageAction)>) -> Self {
        Self {
            messages: messages.into_iter().collect(),
            actions: 0,
        }
    }

    /// Counts the next event of the log.
    pub(in crate::conversation) fn count(&mut self, event: &Event) {
        self.actions += usize::from(is_replayable(event));
    }

    /// Removes the next message if it is due.
    pub(in crate::conversation) fn take_due(&mut self) -> Option<MessageAction> {
        let next = self
            .messages
            .pop_front_if(|(after, _)| *after <= self.actions);
        next.map(|(_, message)| message)
    }
}
