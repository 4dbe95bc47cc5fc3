//! A new conversation from the beginning of another one. Pure.

use protocol::record::ForkedFrom;
use protocol::{ConversationId, Event, EventBody, EventId, Record, Timestamp};

use super::input::{Effect, Input, InputKind};
use super::state::State;
use super::transition::transition;

/// The log of a conversation that was like another one up to and with event `last`. It has no sandbox, what was going on is
/// ended as interrupted, and an agent that worked is held: nothing happens before the user lets it go on.
///
/// Nothing when the log has no such event, or does not begin as logs begin.
pub fn fork(log: &[Event], from: &ConversationId, last: EventId, at: &Timestamp) -> Option<Vec<Event>> {
    let length = log.iter().position(|event| event.id == last)? + 1;
    let mut events = log.get(..length)?.to_vec();
    let EventBody::Record(Record::ConversationStarted(started)) = &mut events.first_mut()?.body else {
        return None;
    };
    started.forked_from = Some(ForkedFrom { conversation: from.clone(), event: last });
    let mut state = State::fold(&events);
    for kind in [InputKind::SandboxRemoved, InputKind::Recovered, InputKind::UserPause] {
        let effects;
        (state, effects) = transition(state, Input { at: at.clone(), kind });
        for effect in effects {
            if let Effect::Append(appended) = effect {
                events.extend(appended);
            }
        }
    }
    Some(events)
}
