//! Which tools a model gets, as events.

use protocol::action::SystemAction;
use protocol::{Action, EventBody, Observation, ObservationKind};

use super::search::{SEARCH_TOOLS, tool_search};
use super::{SERVER_FAILED, ToolOffer, ToolServerFailure};
use crate::llm::Tool;
use crate::view::View;

/// Maximum number of tools in addition to the agent's own when late ones are added. Providers
/// accept 128 in all.
const MAX_OFFERED: usize = 100;

/// Maximum number of events about servers between two responses of the model. Some servers may
/// change in each offer.
const MAX_ANNOUNCEMENTS: usize = 200;

/// Returns the events to append for an offer, in order, with the environment as their source. Omits
/// those that the log already holds, so that repeated calls append nothing twice. Returns none
/// after many events without a response: each step waits until there is nothing to append.
pub fn announce(view: &View, offer: &ToolOffer) -> Vec<EventBody> {
    let mut events = Vec::new();
    if view.announcements() >= MAX_ANNOUNCEMENTS {
        return events;
    }
    let tools = offered_tools(view, offer);
    if view.offered_tools() != tools {
        let tools = tools.iter().map(Tool::to_stored).collect();
        events.push(
            Action::from(SystemAction {
                tools: Some(tools),
                ..Default::default()
            })
            .into(),
        );
    }
    let failures = offer
        .failures
        .iter()
        .map(|ToolServerFailure { server, reason }| {
            Observation::error(format!("the MCP server {server}: {reason}"), SERVER_FAILED)
        });
    events.extend(
        failures
            .filter(|failure| !is_logged(view, failure))
            .map(EventBody::from),
    );
    events
}

fn is_logged(view: &View, failure: &Observation) -> bool {
    view.notices().any(|event| match &event.body {
        EventBody::Observation(logged) => {
            matches!(logged.kind, ObservationKind::Error(_)) && logged.content == failure.content
        }
        _ => false,
    })
}

/// Returns the tools to offer. While the view's requests grow at the end only, the tools stay. They
/// change once for the first late ones, together with a search for those that come later.
fn offered_tools(view: &View, offer: &ToolOffer) -> Vec<Tool> {
    let ToolOffer {
        sandbox_tools,
        tools,
        are_too_many,
        ..
    } = offer;
    if !view.has_response() {
        let tools = if *are_too_many {
            tool_search(tools).to_vec()
        } else {
            tools.clone()
        };
        return [sandbox_tools.clone(), tools].concat();
    }
    let mut offered = view.offered_tools().to_vec();
    let is_offered = |tool: &Tool| offered.iter().any(|other| other.name == tool.name);
    let mut missing: Vec<Tool> = sandbox_tools
        .iter()
        .filter(|tool| !is_offered(tool))
        .cloned()
        .collect();
    let late: Vec<Tool> = tools
        .iter()
        .filter(|tool| !is_offered(tool))
        .cloned()
        .collect();
    let has_search = offered.iter().any(|tool| tool.name == SEARCH_TOOLS);
    if !has_search && !late.is_empty() {
        if !are_too_many && offered.len() + late.len() <= MAX_OFFERED {
            missing.extend(late);
        }
        missing.extend(tool_search(tools));
    }
    offered.extend(missing);
    offered
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use protocol::action::{CondensationAction, MessageAction};
    use protocol::{Event, EventId, EventSource};
    use serde_json::json;

    use super::super::CALL_TOOL;
    use super::*;
    use crate::testing::timestamp;

    fn tool(name: &str) -> Tool {
        let parameters = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        Tool {
            name: name.into(),
            description: "Echoes.".into(),
            parameters,
        }
    }

    fn log(bodies: &[EventBody]) -> View {
        let event = |(id, body): (u64, &EventBody)| {
            Arc::new(Event::new(
                EventId(id),
                timestamp(),
                EventSource::Environment,
                body.clone(),
            ))
        };
        View::from_events((0..).zip(bodies).map(event).collect())
    }

    fn names(view: &View) -> Vec<&str> {
        view.offered_tools()
            .iter()
            .map(|tool| tool.name.as_str())
            .collect()
    }

    #[test]
    fn offer_is_logged_once_and_restored_from_the_log() {
        let failure = ToolServerFailure {
            server: "git".into(),
            reason: "it does not answer".into(),
        };
        let tools = vec![tool("echo"), tool("add")];
        let offer = ToolOffer {
            tools,
            failures: vec![failure],
            ..ToolOffer::default()
        };
        let mut events = announce(&log(&[]), &offer);
        assert_eq!(events.len(), 2, "{events:?}");
        assert_eq!(log(&events).offered_tools(), offer.tools);
        assert_eq!(announce(&log(&events), &offer), []);

        let fewer = ToolOffer {
            tools: vec![tool("echo")],
            ..ToolOffer::default()
        };
        events.extend(announce(&log(&events), &fewer));
        assert_eq!(events.len(), 3);
        assert_eq!(log(&events).offered_tools(), fewer.tools);
        assert_eq!(announce(&log(&[]), &ToolOffer::default()), []);
    }

    /// Appends the response of a model, or a condensation.
    fn push(view: &mut View, source: EventSource, body: impl Into<EventBody>) {
        view.update(&[Arc::new(Event::new(view.end(), timestamp(), source, body))]);
    }

    fn push_offer(view: &mut View, offer: &ToolOffer) -> usize {
        let events = announce(view, offer);
        let count = events.len();
        events
            .into_iter()
            .for_each(|event| push(view, EventSource::Environment, event));
        count
    }

    #[test]
    fn tools_change_only_where_the_history_does() {
        let offer = |names: &[&str]| {
            let tools = names.iter().map(|name| tool(name)).collect();
            ToolOffer {
                tools,
                sandbox_tools: vec![tool("browser")],
                ..ToolOffer::default()
            }
        };
        let mut view = View::default();
        push_offer(&mut view, &offer(&["echo"]));
        push_offer(&mut view, &offer(&["echo", "add"]));
        assert_eq!(
            names(&view),
            ["browser", "echo", "add"],
            "no request has been made"
        );
        let response = MessageAction {
            content: "Which one?".into(),
            ..Default::default()
        };
        push(&mut view, EventSource::Agent, Action::from(response));
        assert_eq!(
            push_offer(&mut view, &offer(&["add"])),
            0,
            "calls of a missing tool fail"
        );
        push_offer(&mut view, &offer(&["add", "late"]));
        assert_eq!(
            names(&view),
            ["browser", "echo", "add", "late", SEARCH_TOOLS, CALL_TOOL]
        );
        assert!(
            view.offered_tools()[4]
                .description
                .ends_with("Tools now: add, late")
        );
        assert_eq!(
            push_offer(&mut view, &offer(&["add", "late", "later"])),
            0,
            "it can be searched for"
        );
        push(
            &mut view,
            EventSource::Agent,
            Action::from(CondensationAction::default()),
        );
        push_offer(&mut view, &offer(&["add", "late"]));
        assert_eq!(names(&view), ["browser", "add", "late"]);
    }

    #[test]
    fn model_searches_for_many_tools() {
        let names_of = (0..2000).map(|index| format!("tool_{index}"));
        let tools: Vec<_> = names_of.map(|name| tool(&name)).collect();
        let offer = ToolOffer {
            tools,
            are_too_many: true,
            ..ToolOffer::default()
        };
        let mut view = View::default();
        push_offer(&mut view, &offer);
        assert_eq!(names(&view), [SEARCH_TOOLS, CALL_TOOL]);
        let description = &view.offered_tools()[0].description;
        assert!(
            description.contains("tool_0, tool_1, ") && description.ends_with(" more"),
            "{description}"
        );
        assert!(description.len() < 5000, "{}", description.len());
        assert_eq!(push_offer(&mut view, &offer), 0);
    }

    #[test]
    fn offers_that_always_differ_end() {
        let mut view = View::default();
        let mut count = 0;
        for number in 0..1000 {
            let tools = vec![tool(&format!("tool_{number}"))];
            let failures = vec![ToolServerFailure {
                server: "s".into(),
                reason: number.to_string(),
            }];
            count += push_offer(
                &mut view,
                &ToolOffer {
                    tools,
                    failures,
                    ..ToolOffer::default()
                },
            );
        }
        assert_eq!(count, MAX_ANNOUNCEMENTS);
    }

    #[test]
    fn late_tools_stay_within_the_limit() {
        let tools = |prefix: &str| {
            (0..70)
                .map(|index| tool(&format!("{prefix}_{index}")))
                .collect()
        };
        let offer = |prefix| ToolOffer {
            tools: tools(prefix),
            ..ToolOffer::default()
        };
        let mut view = View::default();
        push_offer(&mut view, &offer("a"));
        let response = MessageAction {
            content: "Which one?".into(),
            ..Default::default()
        };
        push(&mut view, EventSource::Agent, Action::from(response));
        push_offer(&mut view, &offer("b"));
        assert_eq!(view.offered_tools().len(), 72);
    }
}
