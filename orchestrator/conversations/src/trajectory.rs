//! Conversion of a log to a V0 trajectory, without the records that V0 does not know. Pure.

use std::collections::BTreeMap;

use protocol::{Action, Event, EventBody, EventSource, Observation, ObservationKind};

/// Converts a log to a trajectory. Removes screenshots of pages unless they are requested.
pub(crate) fn to_trajectory(mut events: Vec<Event>, with_screenshots: bool) -> Vec<Event> {
    events.retain(|event| !matches!(event.body, EventBody::Record(_)));
    merge_system_actions(&mut events);
    for event in &mut events {
        if let EventBody::Observation(Observation { kind: ObservationKind::Browse(page), .. }) =
            &mut event.body
            && !with_screenshots
        {
            (page.screenshot, page.set_of_marks) = (String::new(), String::new());
        }
    }
    events
}

/// Merges the latest offer of tool servers into the `system` action of each agent. V0 has one such action per agent, with
/// all tools; the log has another one for each change of the offered tools.
fn merge_system_actions(events: &mut Vec<Event>) {
    let mut offers = BTreeMap::new();
    events.retain(|event| match &event.body {
        EventBody::Action(Action::System(system)) if event.source == EventSource::Environment => {
            offers.insert(event.delegation, system.tools.clone().unwrap_or_default());
            false
        }
        _ => true,
    });
    for event in events {
        if let EventBody::Action(Action::System(system)) = &mut event.body
            && let Some(tools) = offers.remove(&event.delegation)
        {
            system.tools.get_or_insert_default().extend(tools);
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::EventId;

    use super::*;

    #[test]
    fn export_holds_one_system_action_an_agent() {
        let at = protocol::Timestamp::try_from("2025-10-03T12:34:56".to_owned()).unwrap();
        let system = |id, source, delegation, tools: &[&str]| {
            let tools = tools.iter().map(|tool| serde_json::json!(tool)).collect();
            let system = protocol::action::SystemAction { tools: Some(tools), ..Default::default() };
            let mut event = Event::new(EventId(id), at.clone(), source, Action::from(system));
            event.delegation = delegation;
            event
        };
        let delegation = Some(EventId(3));
        let mut events = vec![
            system(0, EventSource::Agent, None, &["own"]),
            system(1, EventSource::Environment, None, &["first"]),
            system(2, EventSource::Environment, None, &["latest"]),
            system(4, EventSource::Agent, delegation, &["delegate's"]),
            system(5, EventSource::Environment, delegation, &["other"]),
        ];
        merge_system_actions(&mut events);
        let expected = [
            system(0, EventSource::Agent, None, &["own", "latest"]),
            system(4, EventSource::Agent, delegation, &["delegate's", "other"]),
        ];
        assert_eq!(events, expected);
    }
}
