//! Overview of a conversation for lists, from the start and the end of its log.
//!
//! A fold of the whole log would be exact, but takes a second for 100,000 events, and a list may hold thousands of
//! conversations. The first events have the settings and the first message; the last ones have the state and the
//! cost.

use engine::events::{ConversationSummary, EventStore, StoreError};
use engine::title;
use protocol::record::{ConversationStarted, WorkspaceSetup};
use protocol::{Action, AgentState, Event, EventBody, EventId, EventSource, ObservationKind, Record};

/// Number of events to read at the start. A title is generated during the agent's first steps.
const HEAD_LENGTH: u64 = 24;

/// Numbers of events to read at the end, until both state and cost are known. If the state does not change in the longest
/// tail, the agent is still running.
const TAIL_LENGTHS: [u64; 3] = [8, 64, 1024];

/// Overview of a conversation for lists.
#[derive(Debug, Default, PartialEq)]
pub struct Overview {
    started: Option<ConversationStarted>,
    /// The last state of the agent.
    pub agent_state: AgentState,
    /// Cost of the model calls, in US dollars. 0 if no price is known.
    pub cost: f64,
    title: Option<String>,
    first_message: Option<String>,
}

/// State and cost at the end of a log.
#[derive(Default)]
struct LogTail {
    agent_state: Option<AgentState>,
    cost: Option<f64>,
}

impl Overview {
    pub(super) async fn read(store: &dyn EventStore, log: &ConversationSummary) -> Result<Self, StoreError> {
        let mut overview = Self::default();
        let mut tail = LogTail::default();
        for event in store.read(&log.id, EventId::FIRST, HEAD_LENGTH as usize).await? {
            tail.apply(&event);
            overview.apply(event);
        }
        for length in TAIL_LENGTHS {
            let from = log.events.saturating_sub(length).max(HEAD_LENGTH);
            if from >= log.events {
                break;
            }
            let mut end = LogTail::default();
            for event in store.read(&log.id, EventId(from), length as usize).await? {
                end.apply(&event);
                overview.apply(event);
            }
            let is_complete = end.agent_state.is_some() && end.cost.is_some() || from == HEAD_LENGTH;
            tail =
                LogTail { agent_state: end.agent_state.or(tail.agent_state), cost: end.cost.or(tail.cost) };
            if is_complete {
                break;
            }
        }
        overview.agent_state = tail.agent_state.unwrap_or_default();
        overview.cost = tail.cost.unwrap_or_default();
        Ok(overview)
    }

    fn apply(&mut self, event: Event) {
        match event.body {
            EventBody::Record(Record::ConversationStarted(started)) => self.started = Some(started),
            EventBody::Record(Record::ConversationTitled(titled)) => self.title = Some(titled.title),
            EventBody::Action(Action::Message(message))
                if self.first_message.is_none() && event.source == EventSource::User =>
            {
                self.first_message = Some(message.content);
            }
            _ => {}
        }
    }

    /// Returns the title, else the first line of the first message.
    pub fn title(&self) -> String {
        let text = self.title.as_ref().or(self.first_message.as_ref());
        title::first_line(text.map_or("", String::as_str))
    }

    /// Returns the settings that the conversation was started with.
    pub fn started(&self) -> Option<&ConversationStarted> {
        self.started.as_ref()
    }

    /// Returns the URL of the repository in its workspace.
    pub(super) fn repository(&self) -> Option<&str> {
        match self.started.as_ref()?.setup.as_ref()? {
            WorkspaceSetup::Repository { url, .. } => Some(url),
            _ => None,
        }
    }

    /// Returns the model that the conversation was started with.
    pub fn model(&self) -> &str {
        self.started.as_ref().map_or("", |started| &started.model)
    }

    /// Returns the folder that the conversation works in. `None` if it is created and removed with the sandbox.
    pub fn folder(&self) -> Option<&str> {
        self.started.as_ref()?.workspace.as_deref()
    }

    /// Whether title, first message, model or folder contain a text, ignoring case. The text is in lower case.
    pub(super) fn contains(&self, text: &str) -> bool {
        let texts = [self.title.as_deref(), self.first_message.as_deref(), Some(self.model()), self.folder()];
        texts.into_iter().flatten().any(|candidate| candidate.to_lowercase().contains(text))
    }

    /// Whether the agent works, provided that its process still runs.
    pub(super) fn is_working(&self) -> bool {
        match self.agent_state {
            AgentState::Loading
            | AgentState::Init
            | AgentState::Running
            | AgentState::UserConfirmed
            | AgentState::UserRejected
            | AgentState::RateLimited => true,
            AgentState::AwaitingUserInput
            | AgentState::Paused
            | AgentState::Stopped
            | AgentState::Finished
            | AgentState::Rejected
            | AgentState::Error
            | AgentState::AwaitingUserConfirmation
            | AgentState::Unknown => false,
        }
    }
}

impl LogTail {
    fn apply(&mut self, event: &Event) {
        if let Some(metrics) = &event.llm_metrics {
            self.cost = Some(metrics.accumulated_cost);
        }
        if let EventBody::Observation(observation) = &event.body
            && let ObservationKind::AgentStateChanged(changed) = &observation.kind
        {
            self.agent_state = Some(changed.agent_state);
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::conversation::State;
    use engine::testing::MemoryStore;
    use protocol::ConversationId;
    use serde_json::{Value, json};

    use super::*;

    fn event(id: u64, body: &Value) -> Event {
        let mut event = json!({"id": id, "timestamp": "2025-10-03T12:00:00.000000", "source": "agent"});
        event.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        Event::from_value(&event).unwrap()
    }

    fn state(agent_state: &str) -> Value {
        json!({"observation": "agent_state_changed", "content": "", "extras": {"agent_state": agent_state, "reason": ""}})
    }

    fn think(cost: f64) -> Value {
        json!({"action": "think", "args": {"thought": "so"}, "llm_metrics": {"accumulated_cost": cost}})
    }

    /// Overview and state of a log that ends with `end`, after `between` events without effect.
    async fn overview(between: usize, end: &[Value]) -> (Overview, State) {
        let user =
            json!({"source": "user", "action": "message", "args": {"content": "\nFix\u{9b} login\nNow"}});
        let head = [
            json!({"record": "conversation_started", "args": {
                "agent": "CodeActAgent", "model": "m", "max_iterations": 5, "runtime": "local", "image": null,
                "workspace": "/work",
            }}),
            user,
            state("running"),
            think(0.25),
        ];
        let silent = json!({"observation": "think", "content": "so", "extras": {}});
        let bodies = head.iter().chain(std::iter::repeat_n(&silent, between)).chain(end);
        let events: Vec<_> = (0..).zip(bodies).map(|(id, body)| event(id, body)).collect();
        let (store, id) = (MemoryStore::default(), "one".parse::<ConversationId>().unwrap());
        store.append(&id, &events).await.unwrap();
        let list = store.conversations().await.unwrap();
        (Overview::read(&store, &list.conversations[0]).await.unwrap(), State::fold(&events))
    }

    #[tokio::test]
    async fn overview_equals_the_fold_of_the_whole_log() {
        let ends: [&[Value]; 4] =
            [&[], &[think(0.5)], &[state("finished")], &[think(1.5), state("error"), think(2.0)]];
        for between in [0, 3, 19, 20, 21, 22, 40, 60, 200, 900] {
            for end in ends {
                let (overview, state) = overview(between, end).await;
                assert_eq!(overview.agent_state, state.agent_state, "{between} {end:?}");
                assert_eq!(overview.cost.to_bits(), state.metrics.accumulated_cost.to_bits(), "{between}");
                assert_eq!((overview.title().as_str(), overview.folder()), ("Fix login", Some("/work")));
            }
        }
        let titled = json!({"record": "conversation_titled", "args": {"title": "Login"}});
        assert_eq!(overview(10, &[titled, think(1.0)]).await.0.title(), "Login");
    }

    #[tokio::test]
    async fn agent_is_running_when_the_tail_has_no_state_change() {
        let (overview, _) = overview(5000, &[]).await;
        assert_eq!(
            (overview.agent_state, overview.cost.to_bits()),
            (AgentState::Running, 0.25_f64.to_bits())
        );
    }
}
