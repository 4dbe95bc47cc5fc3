//! Updates: what a follower of a conversation sees. The same in process and on the wire.

use serde::{Deserialize, Serialize};

use crate::agent_state::AgentState;
use crate::event::Event;
use crate::ids::EventId;

/// An update of a conversation, with its events in the form `E`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub enum ConversationUpdate<E = Event> {
    /// An event was appended.
    Event(E),
    /// An action that was started before the first event to report, and that still runs.
    Attached(E),
    /// The title has changed.
    Title {
        /// The title.
        title: String,
    },
    /// Output of an action in flight.
    Output {
        /// The action.
        action: EventId,
        /// Number of bytes of the action's output that precede these.
        offset: u64,
        /// The output, as the terminal received it. Invalid UTF-8 is replaced by U+FFFD.
        text: String,
    },
    /// Output that was received faster than it could be sent.
    OutputGap {
        /// The action.
        action: EventId,
        /// Offset of the first missing byte.
        from: u64,
        /// Offset of the first byte after the gap.
        to: u64,
    },
    /// Progress of a call to a model.
    Model {
        /// The delegate action whose agent makes the call. `None` for the conversation's own agent.
        agent: Option<EventId>,
        /// Progress of the call.
        progress: ModelProgress,
    },
    /// Progress of the sandbox's start.
    Start(SandboxStart),
    /// Something that the agent works without, such as a malformed file with knowledge.
    Problem {
        /// What is wrong, for people.
        message: String,
    },
    /// Updates between events were missed.
    LiveGap {},
    /// All events are reported, and the conversation waits for the user, whether it runs or not.
    Waiting(WaitState),
    /// All events are reported, and the conversation does not run. Further updates follow once it
    /// runs again.
    Closed {},
    /// The events cannot be read further. The last update of a stream.
    Error {
        /// What is wrong, for people.
        message: String,
    },
}

/// An update with the position of its stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamMessage<E = Event> {
    /// The event after which a client can continue. `None` for updates that are not stored.
    pub id: Option<EventId>,
    /// The update.
    #[serde(flatten)]
    pub update: ConversationUpdate<E>,
}

/// Progress of a call to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ModelProgress {
    /// A piece of the answer. The event that follows has all of it.
    Text {
        /// The piece.
        text: String,
    },
    /// A piece of the model's reasoning, if it exposes that.
    Reasoning {
        /// The piece.
        text: String,
    },
    /// The call failed and will be retried. The answer starts again.
    Retrying {
        /// Number of the next attempt, from 2.
        attempt: u32,
        /// Maximum number of attempts.
        attempts: u32,
        /// Delay before the next attempt, in seconds.
        after_secs: f64,
        /// Why it failed. Empty for clients of a server.
        reason: String,
    },
}

/// Progress of a sandbox's start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum SandboxStart {
    /// The image is being pulled.
    Pulling {
        /// The image. Empty for clients of a server.
        image: String,
        /// Bytes received so far.
        received_bytes: u64,
        /// Total size in bytes. `None` until the sizes of all layers are known.
        total_bytes: Option<u64>,
    },
    /// The sandbox is being created and started.
    Starting {},
    /// Waiting for its action server.
    Connecting {},
    /// An attempt has failed, and another one follows.
    Retrying {
        /// Delay before the next attempt, in seconds.
        after_secs: f64,
        /// Why it failed, in one line. Empty for clients of a server.
        reason: String,
    },
}

/// State of a conversation that waits for the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitState {
    /// State of the agent.
    pub agent_state: AgentState,
    /// Whether the conversation continues only with a command. `false` if an action awaits
    /// confirmation while other agents work.
    pub is_idle: bool,
    /// Outcome of the run so far.
    pub outcome: RunOutcome,
    /// The first action that awaits confirmation. `None` if there is none.
    pub action: Option<EventId>,
}

/// Outcome of a run of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// The agent finished its task.
    Finished,
    /// A limit stopped the agent.
    LimitReached,
    /// The agent waits for a message or an approval.
    AwaitingUser,
    /// The agent was stopped, or failed.
    Failed,
}

impl<E> ConversationUpdate<E> {
    /// Converts the event, if the update has one. `None` if the converter returns none.
    pub fn convert_event<F>(
        self,
        convert: impl FnOnce(E) -> Option<F>,
    ) -> Option<ConversationUpdate<F>> {
        Some(match self {
            Self::Event(event) => ConversationUpdate::Event(convert(event)?),
            Self::Attached(event) => ConversationUpdate::Attached(convert(event)?),
            Self::Title { title } => ConversationUpdate::Title { title },
            Self::Output {
                action,
                offset,
                text,
            } => ConversationUpdate::Output {
                action,
                offset,
                text,
            },
            Self::OutputGap { action, from, to } => {
                ConversationUpdate::OutputGap { action, from, to }
            }
            Self::Model { agent, progress } => ConversationUpdate::Model { agent, progress },
            Self::Start(start) => ConversationUpdate::Start(start),
            Self::Problem { message } => ConversationUpdate::Problem { message },
            Self::LiveGap {} => ConversationUpdate::LiveGap {},
            Self::Waiting(waiting) => ConversationUpdate::Waiting(waiting),
            Self::Closed {} => ConversationUpdate::Closed {},
            Self::Error { message } => ConversationUpdate::Error { message },
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn message_of_a_stream_is_read_as_it_is_written() {
        let event: Event = serde_json::from_value(json!({
            "id": 3, "timestamp": "2026-01-02T03:04:05", "source": "user", "action": "message",
            "args": {"content": "hi"},
        }))
        .unwrap();
        for (message, written) in [
            (
                StreamMessage {
                    id: Some(event.id),
                    update: ConversationUpdate::Event(event.clone()),
                },
                json!({"id": 3, "type": "event", "data": serde_json::to_value(&event).unwrap()}),
            ),
            (
                StreamMessage {
                    id: None,
                    update: ConversationUpdate::Start(SandboxStart::Starting {}),
                },
                json!({"id": null, "type": "start", "data": {"phase": "starting"}}),
            ),
            (
                StreamMessage {
                    id: None,
                    update: ConversationUpdate::Closed {},
                },
                json!({"id": null, "type": "closed", "data": {}}),
            ),
            (
                StreamMessage {
                    id: None,
                    update: ConversationUpdate::Waiting(WaitState {
                        agent_state: AgentState::Finished,
                        is_idle: true,
                        outcome: RunOutcome::Finished,
                        action: None,
                    }),
                },
                json!({"id": null, "type": "waiting", "data": {
                    "agent_state": "finished", "is_idle": true, "outcome": "finished", "action": null,
                }}),
            ),
        ] {
            assert_eq!(serde_json::to_value(&message).unwrap(), written);
            let text = written.to_string();
            assert_eq!(
                serde_json::from_str::<StreamMessage>(&text).unwrap(),
                message
            );
        }
    }
}
