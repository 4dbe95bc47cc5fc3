//! V0's `DummyAgent`: performs a fixed script to test a deployment end to end. It calls no model.
//!
//! The script is V0's: a message, a command, a file that is written, read and run, then a
//! rejection. Every further step finishes. An observation that lacks the expected text is logged as
//! a warning, as in V0.

use async_trait::async_trait;
use protocol::action::{
    FinishAction, MessageAction, ReadAction, RejectAction, RunAction, SystemAction, WriteAction,
};
use protocol::{Action, Event, EventBody, EventSource};

use super::{Agent, AgentDefinition, AgentStep};
use crate::llm::{Llm, LlmError, LlmProgress};
use crate::view::View;

/// The timeout of a step, in seconds.
const STEP_TIMEOUT_SECS: f64 = 120.0;

const FILE: &str = "hello.sh";

/// Performs the script.
#[derive(Debug, Clone, Copy, Default)]
pub struct DummyAgent;

#[async_trait]
impl Agent for DummyAgent {
    fn name(&self) -> &str {
        AgentDefinition::DUMMY
    }

    fn system(&self) -> SystemAction {
        SystemAction {
            agent_class: Some(self.name().to_owned()),
            ..Default::default()
        }
    }

    async fn step(
        &self,
        view: &View,
        _: &dyn Llm,
        _: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<AgentStep, LlmError> {
        let done = view.events().filter(|event| is_step(event)).count();
        let observed = view
            .events()
            .next_back()
            .and_then(|event| match &event.body {
                EventBody::Observation(observation) => Some(observation.content.as_str()),
                _ => None,
            });
        let expected = done.checked_sub(1).and_then(expected_text);
        if let Some(expected) =
            expected.filter(|expected| !observed.unwrap_or_default().contains(expected))
        {
            tracing::warn!(step = done, expected, ?observed, "unexpected observation");
        }
        let action = action(done);
        let is_performed = matches!(action, Action::Run(_) | Action::Read(_) | Action::Write(_));
        let timeout = is_performed.then_some(STEP_TIMEOUT_SECS);
        Ok(AgentStep {
            timeout,
            ..AgentStep::new(action)
        })
    }
}

fn is_step(event: &Event) -> bool {
    event.source == EventSource::Agent
        && matches!(&event.body, EventBody::Action(action) if !matches!(action, Action::System(_)))
}

/// Returns the step that follows `done` steps.
fn action(done: usize) -> Action {
    let run = |command: &str| RunAction {
        command: command.into(),
        ..Default::default()
    };
    match done {
        0 => MessageAction {
            content: "Starting the script.".into(),
            ..Default::default()
        }
        .into(),
        1 => run("echo \"foo\"").into(),
        2 => WriteAction {
            path: FILE.into(),
            content: "echo \"Hello, World!\"".into(),
            start: 0,
            end: -1,
            thought: String::new(),
            security_risk: protocol::SecurityRisk::default(),
        }
        .into(),
        3 => ReadAction::whole_file(FILE).into(),
        4 => run("bash hello.sh").into(),
        5 => RejectAction::default().into(),
        _ => FinishAction {
            thought: "The script is complete.".into(),
            ..Default::default()
        }
        .into(),
    }
}

/// Returns the text that the observation of a step must contain. `None` for any text.
fn expected_text(step: usize) -> Option<&'static str> {
    match step {
        1 => Some("foo"),
        3 => Some("echo \"Hello, World!\""),
        4 => Some("Hello, World!"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use protocol::EventId;

    use super::*;
    use crate::testing::{UnusedLlm, timestamp};

    #[tokio::test]
    async fn script_continues_from_the_log() {
        let mut events = vec![(
            EventSource::Agent,
            EventBody::from(Action::from(DummyAgent.system())),
        )];
        let mut kinds = Vec::new();
        for _ in 0..8 {
            let log = (0..).zip(events.clone()).map(|(id, (source, body))| {
                Arc::new(Event::new(EventId(id), timestamp(), source, body))
            });
            let step = DummyAgent
                .step(&View::from_events(log.collect()), &UnusedLlm, &|_| ())
                .await
                .unwrap();
            let EventBody::Action(action) = &step.body else {
                panic!("{step:?}")
            };
            kinds.push(action.kind());
            events.push((EventSource::Agent, step.body));
        }
        assert_eq!(
            kinds,
            [
                "message", "run", "write", "read", "run", "reject", "finish", "finish"
            ]
        );
    }
}
