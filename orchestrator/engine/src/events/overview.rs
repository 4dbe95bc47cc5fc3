//! Overview of a conversation for lists: a fold of its log into a few short texts, the agent's
//! state and the cost.
//!
//! A store keeps it with the events, so that a list reads no event. The overview of the next events
//! alone is a change: a store merges its fields without knowing what the events mean.

use protocol::action::MessageAction;
use protocol::client_api::git::GitProvider;
use protocol::record::{ConversationStarted, ConversationTrigger, WorkspaceSetup};
use protocol::{
    Action, AgentState, Event, EventBody, EventSource, ObservationKind, Record, UserId,
};

use crate::title;

/// Maximum length of the part of the first message that a search finds, in characters.
pub const MAX_EXCERPT_CHARS: usize = 500;

/// Maximum length of a folder, URL or name, in characters: as long as a path can be.
const MAX_SETTING_CHARS: usize = 4096;

/// Overview of a conversation, or of some of its events. `None` if no event has a value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overview {
    /// The title that a user or a model gave it. The latest one counts.
    pub given_title: Option<String>,
    /// The first line of the user's first message, as long as a title. The earliest one counts.
    pub first_line: Option<String>,
    /// The latest model that a user chose.
    pub model: Option<String>,
    /// The folder that the conversation works in. `None` if it is created and removed with the
    /// sandbox.
    pub folder: Option<String>,
    /// URL of the repository in the workspace.
    pub repository: Option<String>,
    /// Branch of that repository.
    pub branch: Option<String>,
    /// Where that repository is hosted. `None` if the user did not choose it by its provider.
    pub git_provider: Option<GitProvider>,
    /// What created it. `None` for the command line.
    pub trigger: Option<ConversationTrigger>,
    /// The user who owns it. `None` if it is the operator's.
    pub owner: Option<UserId>,
    /// The last state of the agent.
    pub agent_state: Option<AgentState>,
    /// Cost of the model calls, in US dollars.
    pub cost: Option<f64>,
}

/// The texts that a search reads, in lower case. `None` if no event has a value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchText {
    /// The given title.
    pub title: Option<String>,
    /// The first [`MAX_EXCERPT_CHARS`] characters of the user's first message.
    pub message: Option<String>,
    /// The model that the conversation was started with, and the folder.
    pub settings: Option<String>,
}

/// What events change in the overview of their conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OverviewChange {
    /// The shown part.
    pub overview: Overview,
    /// The searched part.
    pub search: SearchText,
}

impl Overview {
    /// Returns the title, else the first line of the first message.
    pub fn title(&self) -> &str {
        self.given_title
            .as_ref()
            .or(self.first_line.as_ref())
            .map_or("", String::as_str)
    }

    /// Returns the state of the agent.
    pub fn agent_state(&self) -> AgentState {
        self.agent_state.unwrap_or_default()
    }

    /// Returns the cost of the model calls, in US dollars. 0 if no price is known.
    pub fn cost(&self) -> f64 {
        self.cost.unwrap_or_default()
    }
}

impl SearchText {
    /// Whether a text contains `text`, which is in lower case.
    pub fn contains(&self, text: &str) -> bool {
        let texts = [&self.title, &self.message, &self.settings];
        texts
            .into_iter()
            .flatten()
            .any(|candidate| candidate.contains(text))
    }
}

impl OverviewChange {
    /// Folds events.
    pub fn from_events<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut change = Self::default();
        events.into_iter().for_each(|event| change.apply(event));
        change
    }

    /// Applies the next event.
    pub fn apply(&mut self, event: &Event) {
        if let Some(metrics) = &event.llm_metrics {
            self.overview.cost = Some(metrics.accumulated_cost);
        }
        match &event.body {
            EventBody::Record(Record::ConversationStarted(started)) => self.apply_settings(started),
            EventBody::Record(Record::ConversationTitled(titled)) => {
                self.apply_title(&titled.title);
            }
            EventBody::Record(Record::ModelChanged(changed)) => {
                self.overview.model = Some(excerpt(&changed.model, MAX_SETTING_CHARS));
            }
            EventBody::Action(Action::Message(message)) if event.source == EventSource::User => {
                self.apply_user_message(message);
            }
            EventBody::Observation(observation) => {
                if let ObservationKind::AgentStateChanged(changed) = &observation.kind {
                    self.overview.agent_state = Some(changed.agent_state);
                }
            }
            _ => {}
        }
    }

    /// Whether a text changes, and not only the owner, the agent's state and the cost.
    pub fn has_texts(&self) -> bool {
        let overview = Overview {
            owner: None,
            agent_state: None,
            cost: None,
            ..self.overview.clone()
        };
        overview != Overview::default() || self.search != SearchText::default()
    }

    fn apply_settings(&mut self, started: &ConversationStarted) {
        let (repository, branch) = match &started.setup {
            Some(WorkspaceSetup::Repository { url, branch }) => (Some(url), branch.as_ref()),
            _ => (None, None),
        };
        let bounded = |text: &String| excerpt(text, MAX_SETTING_CHARS);
        let (model, folder) = (
            bounded(&started.model),
            started.workspace.as_ref().map(bounded),
        );
        let settings = [Some(model.as_str()), folder.as_deref()]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>();
        self.search.settings = Some(settings.join("\n").to_lowercase());
        self.overview = Overview {
            model: Some(model),
            folder,
            repository: repository.map(bounded),
            branch: branch.map(bounded),
            git_provider: started.git_provider,
            trigger: started.trigger,
            owner: started.owner.clone(),
            ..std::mem::take(&mut self.overview)
        };
    }

    fn apply_title(&mut self, title: &str) {
        let title = title::first_line(title);
        self.search.title = Some(title.to_lowercase());
        self.overview.given_title = Some(title);
    }

    fn apply_user_message(&mut self, message: &MessageAction) {
        if self.overview.first_line.is_none() {
            let excerpt = excerpt(message.content.trim_start(), MAX_EXCERPT_CHARS);
            self.overview.first_line = Some(title::first_line(&excerpt));
            self.search.message = Some(excerpt.to_lowercase());
        }
    }
}

fn excerpt(text: &str, max_chars: usize) -> String {
    text.chars().take(max_chars).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::conversation::State;

    fn event(id: usize, body: &Value) -> Event {
        let mut event =
            json!({"id": id, "timestamp": "2025-10-03T12:00:00.000000", "source": "agent"});
        event
            .as_object_mut()
            .unwrap()
            .extend(body.as_object().unwrap().clone());
        Event::from_value(&event).unwrap()
    }

    fn log(bodies: &[Value]) -> Vec<Event> {
        bodies
            .iter()
            .enumerate()
            .map(|(id, body)| event(id, body))
            .collect()
    }

    fn state(agent_state: &str) -> Value {
        json!({"observation": "agent_state_changed", "content": "", "extras": {"agent_state": agent_state, "reason": ""}})
    }

    fn think(cost: f64) -> Value {
        json!({"action": "think", "args": {"thought": "so"}, "llm_metrics": {"accumulated_cost": cost}})
    }

    fn user(content: &str) -> Value {
        json!({"source": "user", "action": "message", "args": {"content": content}})
    }

    fn titled(title: &str) -> Value {
        json!({"record": "conversation_titled", "args": {"title": title}})
    }

    fn started() -> Value {
        json!({"record": "conversation_started", "args": {
            "agent": "CodeActAgent", "model": "Sonnet", "max_iterations": 5, "runtime": "local", "image": null,
            "workspace": "/Work", "setup": {"from": "repository", "url": "https://host/a/b", "branch": "main"},
            "owner": "ada", "git_provider": "gitlab", "trigger": "slack",
        }})
    }

    #[test]
    fn overview_equals_the_fold_of_the_whole_log() {
        let head = [
            started(),
            user("\nFix\u{9b} Login\nNow"),
            user("then Logout"),
            state("running"),
            think(0.25),
        ];
        let ends: [&[Value]; 4] = [
            &[],
            &[think(0.5)],
            &[state("finished")],
            &[think(1.5), state("error"), think(2.0)],
        ];
        for end in ends {
            let events = log(&[&head, end].concat());
            let (change, state) = (OverviewChange::from_events(&events), State::fold(&events));
            let overview = change.overview;
            assert_eq!(overview.agent_state(), state.agent_state, "{end:?}");
            assert_eq!(
                overview.cost().to_bits(),
                state.metrics.accumulated_cost.to_bits(),
                "{end:?}"
            );
            assert_eq!(
                (overview.title(), overview.folder.as_deref()),
                ("Fix Login", Some("/Work"))
            );
            assert_eq!(overview.repository.as_deref(), Some("https://host/a/b"));
            assert_eq!(overview.branch.as_deref(), Some("main"));
            assert_eq!(overview.git_provider, Some(GitProvider::GitLab));
            assert_eq!(overview.trigger, Some(ConversationTrigger::Slack));
            assert_eq!(
                overview.owner,
                state.started.and_then(|started| started.owner)
            );
            assert_eq!(overview.owner.as_ref().map(UserId::as_str), Some("ada"));
            assert!(
                ["login\nnow", "sonnet", "/work"]
                    .iter()
                    .all(|text| change.search.contains(text))
            );
            assert!(
                !change.search.contains("logout"),
                "only the first message is searched"
            );
        }
    }

    #[test]
    fn latest_title_replaces_the_first_line() {
        let events = log(&[
            user("Fix"),
            titled("One"),
            titled("Two\nand more"),
            think(1.0),
        ]);
        let change = OverviewChange::from_events(&events);
        assert_eq!(change.overview.title(), "Two");
        assert!(
            change.search.contains("two")
                && change.search.contains("fix")
                && !change.search.contains("one")
        );
    }

    #[test]
    fn latest_model_is_shown() {
        let changed = json!({"record": "model_changed", "args": {"model": "Opus"}});
        let change = OverviewChange::from_events(&log(&[started(), changed.clone()]));
        assert_eq!(change.overview.model.as_deref(), Some("Opus"));
        assert!(change.search.contains("sonnet"));
        let change = OverviewChange::from_events(&log(&[changed]));
        assert!(change.has_texts() && change.search == SearchText::default());
    }

    #[test]
    fn overview_is_bounded_when_texts_are_long() {
        let long = "ÄB".repeat(1 << 20);
        let change = OverviewChange::from_events(&log(&[user(&long), titled(&long)]));
        assert_eq!(
            change.search.message.map(|text| text.chars().count()),
            Some(MAX_EXCERPT_CHARS)
        );
        assert!(change.overview.title().chars().count() <= 61);
        assert!(
            change
                .search
                .title
                .is_some_and(|text| text.chars().count() <= 61)
        );
    }

    #[test]
    fn most_events_change_no_text() {
        let change = OverviewChange::from_events(&log(&[think(1.0), state("running")]));
        assert!(!change.has_texts() && change != OverviewChange::default());
        for body in [started(), user(""), titled("")] {
            assert!(
                OverviewChange::from_events(&log(std::slice::from_ref(&body))).has_texts(),
                "{body}"
            );
        }
    }
}
