//! The trace that an analyzer receives: the messages, calls and outputs before an action. Pure.
//!
//! Calls have the names and arguments of V0's actions (`run`, `command`), not those of the model's
//! tools, because existing policies use them. A thought is a separate message. The risk that the
//! model declares is omitted, because it could bias the assessment.

use engine::security::needs_confirmation;
use engine::view::View;
use protocol::risk::ConfirmationPolicy;
use protocol::{Action, Event, EventBody, EventSource};
use serde_json::{Map, Value};

/// Maximum length of a text of the history, in characters.
const MAX_TEXT_CHARS: usize = 30_000;

/// Maximum size of the history, in bytes. The newest events are sent.
const MAX_HISTORY_BYTES: usize = super::service::MAX_REQUEST_BYTES / 2;

/// Fields of actions that are not arguments of a call.
const NOT_ARGUMENTS: [&str; 3] = ["thought", "security_risk", "confirmation_state"];

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TraceElement {
    System(String),
    User(String),
    Assistant(String),
    Call {
        id: String,
        name: String,
        arguments: Map<String, Value>,
    },
    Output {
        call_id: String,
        text: String,
    },
}

/// Returns the elements of the newest `max_events` events in order. Omits an output without its
/// call.
pub(super) fn from_history(history: &View, max_events: usize) -> Vec<TraceElement> {
    let mut newest: Vec<Vec<TraceElement>> = Vec::new();
    let mut bytes = 0;
    for elements in history
        .events()
        .rev()
        .map(from_event)
        .filter(|elements| !elements.is_empty())
        .take(max_events)
    {
        bytes += elements.iter().map(TraceElement::bytes).sum::<usize>();
        if bytes > MAX_HISTORY_BYTES {
            break;
        }
        newest.push(elements);
    }
    let mut calls = Vec::new();
    let in_order = newest.into_iter().rev().flatten();
    in_order
        .filter(|element| match element {
            TraceElement::Call { id, .. } => {
                calls.push(id.clone());
                true
            }
            TraceElement::Output { call_id, .. } => calls.contains(call_id),
            TraceElement::System(_) | TraceElement::User(_) | TraceElement::Assistant(_) => true,
        })
        .collect()
}

/// Returns the elements of the assessed action, which will be the next event of the log. Does not
/// truncate its texts.
pub(super) fn from_action(action: &Action, history: &View) -> Vec<TraceElement> {
    from_call(action, history.end().to_string(), |text| text)
}

fn from_event(event: &Event) -> Vec<TraceElement> {
    match (&event.body, event.source) {
        (EventBody::Action(Action::System(system)), EventSource::Agent) => {
            vec![TraceElement::System(truncate(system.content.clone()))]
        }
        (EventBody::Action(Action::Message(message)), EventSource::User) => {
            vec![TraceElement::User(truncate(message.content.clone()))]
        }
        (EventBody::Action(Action::Message(message)), EventSource::Agent) => {
            vec![TraceElement::Assistant(truncate(message.content.clone()))]
        }
        (EventBody::Action(action), EventSource::Agent)
            if needs_confirmation(ConfirmationPolicy::Always, action) =>
        {
            from_call(action, event.id.to_string(), truncate)
        }
        (EventBody::Observation(observation), _) => {
            let output = |cause| TraceElement::Output {
                call_id: cause,
                text: truncate(observation.content.clone()),
            };
            event
                .cause
                .map(|cause| output(cause.to_string()))
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    }
}

fn from_call(action: &Action, id: String, limit: fn(String) -> String) -> Vec<TraceElement> {
    let fields = serde_json::to_value(action.fields()).unwrap_or_default();
    let mut arguments = match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    let thought = arguments
        .get("thought")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    arguments.retain(|name, _| !NOT_ARGUMENTS.contains(&name.as_str()));
    for value in arguments.values_mut() {
        if let Value::String(text) = value {
            *text = limit(std::mem::take(text));
        }
    }
    let thought = (!thought.is_empty()).then_some(TraceElement::Assistant(limit(thought)));
    let call = TraceElement::Call {
        id,
        name: action.kind().to_owned(),
        arguments,
    };
    thought.into_iter().chain([call]).collect()
}

/// Removes the middle of a long text. Its start and end may both contain instructions.
fn truncate(text: String) -> String {
    let count = text.chars().count();
    if count <= MAX_TEXT_CHARS {
        return text;
    }
    let head: String = text.chars().take(MAX_TEXT_CHARS / 2).collect();
    let tail: String = text.chars().skip(count - MAX_TEXT_CHARS / 2).collect();
    format!(
        "{head}\n[{} characters left out]\n{tail}",
        count - MAX_TEXT_CHARS
    )
}

impl TraceElement {
    fn bytes(&self) -> usize {
        match self {
            Self::System(text)
            | Self::User(text)
            | Self::Assistant(text)
            | Self::Output { text, .. } => text.len(),
            Self::Call { arguments, .. } => Value::Object(arguments.clone()).to_string().len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use protocol::action::{MessageAction, RunAction, ThinkAction};
    use protocol::observation::RunObservation;
    use protocol::{EventId, Observation};
    use serde_json::json;

    use super::*;

    fn view(bodies: Vec<(EventSource, EventBody, Option<u64>)>) -> View {
        let events = (0..).zip(bodies).map(|(id, (source, body, cause))| {
            let timestamp = "2025-10-03T12:00:00".to_owned().try_into().unwrap();
            let mut event = Event::new(EventId(id), timestamp, source, body);
            event.cause = cause.map(EventId);
            Arc::new(event)
        });
        View::from_events(events.collect())
    }

    fn run(command: &str) -> Action {
        let security_risk = protocol::SecurityRisk::Low;
        RunAction {
            command: command.into(),
            thought: "why".into(),
            security_risk,
            ..Default::default()
        }
        .into()
    }

    fn ran(output: &str) -> EventBody {
        Observation::new(output.to_owned(), RunObservation::default()).into()
    }

    #[test]
    fn calls_have_outputs_and_no_declared_risk() {
        let message = MessageAction {
            content: "go".into(),
            ..Default::default()
        };
        let view = view(vec![
            (EventSource::User, Action::from(message).into(), None),
            (
                EventSource::Agent,
                Action::from(ThinkAction::default()).into(),
                None,
            ),
            (EventSource::Agent, run("ls").into(), None),
            (EventSource::Agent, ran("a b"), Some(2)),
        ]);
        let trace = from_history(&view, 20);
        let [
            TraceElement::User(user),
            TraceElement::Assistant(why),
            TraceElement::Call {
                id,
                name,
                arguments,
            },
            output,
        ] = trace.as_slice()
        else {
            panic!("{trace:?}")
        };
        assert_eq!(
            (user.as_str(), why.as_str(), id.as_str(), name.as_str()),
            ("go", "why", "2", "run")
        );
        assert_eq!(arguments["command"], json!("ls"));
        assert!(
            NOT_ARGUMENTS
                .iter()
                .all(|field| !arguments.contains_key(*field))
        );
        assert_eq!(
            *output,
            TraceElement::Output {
                call_id: "2".into(),
                text: "a b".into()
            }
        );
        assert!(
            from_history(&view, 1).is_empty(),
            "an output without its call"
        );
        assert!(
            matches!(&from_action(&run("rm"), &view)[1], TraceElement::Call { id, .. } if id == "4")
        );
    }

    #[test]
    fn end_of_a_long_history_is_kept() {
        let long = "x".repeat(MAX_TEXT_CHARS * 2);
        let events = (0..100).flat_map(|step| {
            [
                (EventSource::Agent, run("ls").into(), None),
                (EventSource::Agent, ran(&long), Some(step * 2)),
            ]
        });
        let trace = from_history(&view(events.collect()), 200);
        let bytes: usize = trace.iter().map(TraceElement::bytes).sum();
        assert!(
            bytes <= MAX_HISTORY_BYTES && bytes > MAX_HISTORY_BYTES / 2,
            "{bytes}"
        );
        assert!(
            matches!(trace.last(), Some(TraceElement::Output { call_id, .. }) if call_id == "198")
        );
    }
}
