//! The latest commands of the user that were applied.

use std::collections::VecDeque;
use std::sync::Arc;

use protocol::{CommandId, EventId};

/// Maximum number of commands. A client sends a command again within moments, not after 256 others.
const MAX_COMMANDS: usize = 256;

/// The latest commands that have ids, with the events that they caused. Shared by the copies of a
/// state.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AppliedCommands(Arc<VecDeque<(CommandId, EventId)>>);

impl AppliedCommands {
    /// Returns the event that a command caused. `None` if it was not applied.
    pub fn event(&self, id: &CommandId) -> Option<EventId> {
        let applied = self.0.iter().rev().find(|(applied, _)| applied == id);
        applied.map(|(_, event)| *event)
    }

    pub(in crate::conversation) fn add(&mut self, id: CommandId, event: EventId) {
        let applied = Arc::make_mut(&mut self.0);
        if applied.len() == MAX_COMMANDS {
            applied.pop_front();
        }
        applied.push_back((id, event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_commands_are_remembered() {
        let id = |number: u64| number.to_string().parse::<CommandId>().unwrap();
        let mut commands = AppliedCommands::default();
        for number in 0..300 {
            commands.add(id(number), EventId(number));
        }
        assert_eq!(commands.event(&id(299)), Some(EventId(299)));
        assert_eq!(commands.event(&id(44)), Some(EventId(44)));
        assert_eq!(commands.event(&id(43)), None);
    }
}
