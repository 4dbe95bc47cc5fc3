//! Forks a conversation. Pure.

use protocol::record::ForkedFrom;
use protocol::{ConversationId, Event, EventBody, EventId, Record, Timestamp, UserCommand};

use super::input::{Effect, Input, InputKind};
use super::state::State;
use super::transition::transition;

/// Returns the log of a fork that has the events of `log` up to and including `last`. The fork has
/// no sandbox, its pending actions are interrupted, and a working agent is paused.
///
/// `None` if the log has no event `last`, or does not start with [`Record::ConversationStarted`].
pub fn fork(
    log: &[Event],
    from: &ConversationId,
    last: EventId,
    at: &Timestamp,
) -> Option<Vec<Event>> {
    let length = log.iter().position(|event| event.id == last)? + 1;
    let mut events = log.get(..length)?.to_vec();
    let EventBody::Record(Record::ConversationStarted(started)) = &mut events.first_mut()?.body
    else {
        return None;
    };
    started.forked_from = Some(ForkedFrom {
        conversation: from.clone(),
        event: last,
    });
    settle(&mut events, at);
    Some(events)
}

/// Appends the events of a copied log that has no sandbox: its pending actions are interrupted, and
/// a working agent is paused. The ids of its commands are removed, because they were sent to the
/// original.
pub(super) fn settle(events: &mut Vec<Event>, at: &Timestamp) {
    events.iter_mut().for_each(|event| event.command = None);
    let mut state = State::fold(&*events);
    for kind in [
        InputKind::SandboxRemoved,
        InputKind::Recovered,
        UserCommand::Pause.into(),
    ] {
        let effects;
        (state, effects) = transition(
            state,
            Input {
                at: at.clone(),
                kind,
            },
        );
        for effect in effects {
            if let Effect::Append(appended) = effect {
                events.extend(appended);
            }
        }
    }
}
