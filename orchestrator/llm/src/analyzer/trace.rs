//! The conversation before an action, as a service that judges the action receives it: messages, calls and outputs. Pure.
//!
//! Calls have the names and arguments of V0's actions (`run`, `command`), because existing policies are written for them,
//! and not those of the model's tools. The thought is a message of its own. The risk that the model declares is left out,
//! so that it does not bias the judgement.

use engine::security::needs_confirmation;
use engine::view::View;
use protocol::risk::ConfirmationPolicy;
use protocol::{Action, Event, EventBody, EventSource};
use serde_json::{Map, Value};

/// The longest text that is sent whole, in characters.
const MAX_TEXT_CHARS: usize = 30_000;

/// The history that is sent, in bytes: the newest of it.
const MAX_HISTORY_BYTES: usize = super::service::MAX_REQUEST_BYTES / 2;

/// Fields of actions that are not arguments of a call.
const NOT_ARGUMENTS: [&str; 3] = ["thought", "security_risk", "confirmation_state"];

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Element {
    System(String),
    User(String),
    Assistant(String),
    Call { id: String, name: String, arguments: Map<String, Value> },
    Output { call_id: String, text: String },
}

/// Elements of the newest events, at most `most` of them, in order. An output without its call is left out.
pub(super) fn from_history(history: &View, most: usize) -> Vec<Element> {
    let mut newest: Vec<Vec<Element>> = Vec::new();
    let mut bytes = 0;
    for elements in history.events().rev().map(from_event).filter(|elements| !elements.is_empty()).take(most)
    {
        bytes += elements.iter().map(Element::bytes).sum::<usize>();
        if bytes > MAX_HISTORY_BYTES {
            break;
        }
        newest.push(elements);
    }
    let mut calls = Vec::new();
    let in_order = newest.into_iter().rev().flatten();
    in_order
        .filter(|element| match element {
            Element::Call { id, .. } => {
                calls.push(id.clone());
                true
            }
            Element::Output { call_id, .. } => calls.contains(call_id),
            Element::System(_) | Element::User(_) | Element::Assistant(_) => true,
        })
        .collect()
}

/// Elements of the action that is judged, which will be the log's next event. Its texts are not clipped.
pub(super) fn from_action(action: &Action, history: &View) -> Vec<Element> {
    from_call(action, history.end().to_string(), |text| text)
}

fn from_event(event: &Event) -> Vec<Element> {
    match (&event.body, event.source) {
        (EventBody::Action(Action::System(system)), EventSource::Agent) => {
            vec![Element::System(clipped(system.content.clone()))]
        }
        (EventBody::Action(Action::Message(message)), EventSource::User) => {
            vec![Element::User(clipped(message.content.clone()))]
        }
        (EventBody::Action(Action::Message(message)), EventSource::Agent) => {
            vec![Element::Assistant(clipped(message.content.clone()))]
        }
        (EventBody::Action(action), EventSource::Agent)
            if needs_confirmation(ConfirmationPolicy::Always, action) =>
        {
            from_call(action, event.id.to_string(), clipped)
        }
        (EventBody::Observation(observation), _) => {
            let output =
                |cause| Element::Output { call_id: cause, text: clipped(observation.content.clone()) };
            event.cause.map(|cause| output(cause.to_string())).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn from_call(action: &Action, id: String, bounded: fn(String) -> String) -> Vec<Element> {
    let fields = serde_json::to_value(action.fields()).unwrap_or_default();
    let mut arguments = match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    let thought = arguments.get("thought").and_then(Value::as_str).unwrap_or_default().to_owned();
    arguments.retain(|name, _| !NOT_ARGUMENTS.contains(&name.as_str()));
    for value in arguments.values_mut() {
        if let Value::String(text) = value {
            *text = bounded(std::mem::take(text));
        }
    }
    let thought = (!thought.is_empty()).then_some(Element::Assistant(bounded(thought)));
    let call = Element::Call { id, name: action.kind().to_owned(), arguments };
    thought.into_iter().chain([call]).collect()
}

/// Keeps the beginning and the end of a long text: an instruction can stand in either.
fn clipped(text: String) -> String {
    let count = text.chars().count();
    if count <= MAX_TEXT_CHARS {
        return text;
    }
    let head: String = text.chars().take(MAX_TEXT_CHARS / 2).collect();
    let tail: String = text.chars().skip(count - MAX_TEXT_CHARS / 2).collect();
    format!("{head}\n[{} characters left out]\n{tail}", count - MAX_TEXT_CHARS)
}

impl Element {
    fn bytes(&self) -> usize {
        match self {
            Self::System(text) | Self::User(text) | Self::Assistant(text) | Self::Output { text, .. } => {
                text.len()
            }
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
        RunAction { command: command.into(), thought: "why".into(), security_risk, ..Default::default() }
            .into()
    }

    fn ran(output: &str) -> EventBody {
        Observation::new(output.to_owned(), RunObservation::default()).into()
    }

    #[test]
    fn calls_have_their_outputs_and_not_their_declared_risk() {
        let message = MessageAction { content: "go".into(), ..Default::default() };
        let view = view(vec![
            (EventSource::User, Action::from(message).into(), None),
            (EventSource::Agent, Action::from(ThinkAction::default()).into(), None),
            (EventSource::Agent, run("ls").into(), None),
            (EventSource::Agent, ran("a b"), Some(2)),
        ]);
        let told = from_history(&view, 20);
        let [Element::User(user), Element::Assistant(why), Element::Call { id, name, arguments }, output] =
            told.as_slice()
        else {
            panic!("{told:?}")
        };
        assert_eq!((user.as_str(), why.as_str(), id.as_str(), name.as_str()), ("go", "why", "2", "run"));
        assert_eq!(arguments["command"], json!("ls"));
        assert!(NOT_ARGUMENTS.iter().all(|field| !arguments.contains_key(*field)));
        assert_eq!(*output, Element::Output { call_id: "2".into(), text: "a b".into() });
        assert!(from_history(&view, 1).is_empty(), "an output without its call");
        assert!(matches!(&from_action(&run("rm"), &view)[1], Element::Call { id, .. } if id == "4"));
    }

    #[test]
    fn a_long_history_keeps_its_end_within_bounds() {
        let long = "x".repeat(MAX_TEXT_CHARS * 2);
        let events = (0..100).flat_map(|step| {
            [(EventSource::Agent, run("ls").into(), None), (EventSource::Agent, ran(&long), Some(step * 2))]
        });
        let told = from_history(&view(events.collect()), 200);
        let bytes: usize = told.iter().map(Element::bytes).sum();
        assert!(bytes <= MAX_HISTORY_BYTES && bytes > MAX_HISTORY_BYTES / 2, "{bytes}");
        assert!(matches!(told.last(), Some(Element::Output { call_id, .. }) if call_id == "198"));
    }
}
