//! Imports the log of a V0 conversation. Pure.

use std::collections::BTreeMap;

use protocol::record::{ConversationStarted, ConversationTitled};
use protocol::{
    Action, Event, EventBody, EventId, EventSource, Observation, ObservationKind, Record, Timestamp,
};

use super::fork::settle;

/// Returns the log of a conversation with V0's events, which follow its settings and get new ids.
/// It has no sandbox, its pending actions are interrupted, and a working agent is paused.
pub fn import(
    started: ConversationStarted,
    title: Option<String>,
    events: Vec<Event>,
    at: &Timestamp,
) -> Vec<Event> {
    let first = events
        .first()
        .map_or_else(|| at.clone(), |event| event.timestamp.clone());
    let record = |timestamp, record: Record| {
        Event::new(EventId::FIRST, timestamp, EventSource::Environment, record)
    };
    let mut log = vec![record(first, Record::ConversationStarted(started))];
    // A record would be one of Glovebox, with a workspace of this machine for example.
    log.extend(
        events
            .into_iter()
            .filter(|event| !matches!(event.body, EventBody::Record(_))),
    );
    let title = title.map(|title| Record::ConversationTitled(ConversationTitled { title }));
    log.extend(title.map(|title| record(at.clone(), title)));
    let mut log = renumber(log);
    assign_delegations(&mut log);
    settle(&mut log, at);
    log
}

/// Gives each event its index as its id, also where events refer to others. V0 has a file per
/// event, without gaps between their ids.
#[must_use]
pub fn renumber(mut log: Vec<Event>) -> Vec<Event> {
    let mut ids = BTreeMap::new();
    let old_ids: Vec<EventId> = log.iter().map(|event| event.id).collect();
    for (index, event) in log.iter_mut().enumerate() {
        let id = EventId(index as u64);
        if !matches!(event.body, EventBody::Record(_)) {
            ids.insert(event.id, id);
        }
        event.id = id;
    }
    for event in &mut log {
        event.cause = event.cause.and_then(|cause| ids.get(&cause).copied());
        let count = |seen| EventId(old_ids.partition_point(|id| *id < seen) as u64);
        event.events_seen = event.events_seen.map(count);
        let EventBody::Action(Action::Condensation(condensation)) = &mut event.body else {
            continue;
        };
        let forgotten = condensation.forgotten_event_ids.iter_mut().flatten();
        let range = [
            &mut condensation.forgotten_events_start_id,
            &mut condensation.forgotten_events_end_id,
        ];
        for forgotten in forgotten.chain(range.into_iter().flatten()) {
            let id = u64::try_from(*forgotten)
                .ok()
                .and_then(|id| ids.get(&EventId(id)));
            *forgotten = id
                .and_then(|id| i64::try_from(id.0).ok())
                .unwrap_or(*forgotten);
        }
    }
    log
}

/// Assigns the events between a delegation and its result to it, which V0 does when it reads them.
fn assign_delegations(log: &mut [Event]) {
    let mut open = Vec::new();
    for event in log {
        if let EventBody::Observation(Observation {
            kind: ObservationKind::Delegate(_),
            ..
        }) = event.body
        {
            event.cause = event.cause.or(open.pop());
        }
        event.delegation = open.last().copied();
        if let EventBody::Action(Action::Delegate(_)) = event.body {
            open.push(event.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::AgentState;
    use serde_json::{Value, json};

    use super::*;
    use crate::conversation::State;

    fn events(values: &[Value]) -> Vec<Event> {
        let event = |(number, value): (usize, &Value)| {
            let mut value = value.clone();
            // Not contiguous.
            value["id"] = json!(number * 2);
            value["timestamp"] = json!("2025-10-03T12:00:00");
            value["source"] = value.get("source").cloned().unwrap_or(json!("agent"));
            Event::from_value(&value).unwrap()
        };
        values.iter().enumerate().map(event).collect()
    }

    fn import_values(values: &[Value]) -> Vec<Event> {
        let at = Timestamp::try_from("2026-01-01T00:00:00".to_owned()).unwrap();
        let started = ConversationStarted {
            max_iterations: 10,
            ..ConversationStarted::default()
        };
        import(started, Some("Title".to_owned()), events(values), &at)
    }

    #[test]
    fn references_to_events_are_renumbered() {
        let log = import_values(&[
            json!({"action": "message", "source": "user", "args": {"content": "work"}}),
            json!({"action": "run", "args": {"command": "ls"}, "events_seen": 1}),
            json!({"observation": "run", "cause": 2, "content": "a", "extras": {"command": "ls"}}),
            json!({"action": "condensation", "args": {"forgotten_event_ids": [0, 2], "forgotten_events_start_id": 2, "forgotten_events_end_id": 4}}),
            json!({"observation": "error", "cause": 3, "content": "lost", "extras": {}}),
        ]);
        assert!(log.iter().map(|event| event.id.0).eq(0..log.len() as u64));
        assert!(matches!(
            log[0].body,
            EventBody::Record(Record::ConversationStarted(_))
        ));
        assert_eq!(log[3].cause, Some(EventId(2)));
        assert_eq!(log[2].events_seen, Some(EventId(2)));
        let condensation = serde_json::to_value(&log[4]).unwrap();
        assert_eq!(condensation["args"]["forgotten_event_ids"], json!([1, 2]));
        assert_eq!(condensation["args"]["forgotten_events_start_id"], json!(2));
        assert_eq!(condensation["args"]["forgotten_events_end_id"], json!(3));
        assert_eq!(log[5].cause, None, "its cause is not in the log");
    }

    #[test]
    fn working_agent_is_paused_and_its_action_interrupted() {
        let log = import_values(&[
            json!({"action": "message", "source": "user", "args": {"content": "work"}}),
            json!({"observation": "agent_state_changed", "source": "environment", "content": "", "extras": {"agent_state": "running"}}),
            json!({"action": "run", "args": {"command": "sleep 99"}}),
        ]);
        let state = State::fold(&log);
        assert_eq!(
            (state.agent_state, state.has_pending_actions()),
            (AgentState::Paused, false)
        );
        assert_eq!(state.title.as_deref(), Some("Title"));
        let ended = import_values(&[
            json!({"observation": "agent_state_changed", "source": "environment", "content": "", "extras": {"agent_state": "finished"}}),
        ]);
        assert_eq!(State::fold(&ended).agent_state, AgentState::Finished);
    }

    #[test]
    fn records_are_left_out() {
        let started = json!({"agent": "A", "model": "m", "max_iterations": 99, "runtime": "local", "workspace": "/root"});
        let log = import_values(&[
            json!({"action": "message", "source": "user", "args": {"content": "work"}}),
            json!({"record": "conversation_started", "source": "environment", "args": started}),
        ]);
        let state = State::fold(&log);
        assert_eq!(
            state
                .started
                .map(|started| (started.max_iterations, started.workspace)),
            Some((10, None))
        );
    }

    #[test]
    fn events_of_a_delegate_belong_to_its_delegation() {
        let log = import_values(&[
            json!({"action": "delegate", "args": {"agent": "BrowsingAgent", "inputs": {"task": "read"}}}),
            json!({"action": "think", "args": {"thought": "inside"}}),
            json!({"observation": "delegate", "content": "", "extras": {"outputs": {}}}),
            json!({"action": "think", "args": {"thought": "outside"}}),
        ]);
        let delegations: Vec<_> = log[..5]
            .iter()
            .map(|event| event.delegation.map(|id| id.0))
            .collect();
        assert_eq!(delegations, [None, None, Some(1), None, None]);
        assert_eq!(log[3].cause, Some(EventId(1)));
    }
}
