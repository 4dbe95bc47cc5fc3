//! What an agent says to the user in a turn.

use std::pin::Pin;
use std::sync::Arc;

use accounts::Caller;
use conversations::{ConversationsError, Turn, TurnEnd, TurnOutcome, TurnUpdate};
use protocol::record::Limit;
use protocol::{ConversationId, Event, EventBody, EventId, EventSource};

use super::response::{FinishReason, Usage};
use crate::error::ApiError;
use crate::state::ServerState;
use crate::view;

/// Maximum length of an answer, in bytes. An agent could send messages without end.
const MAX_LENGTH: usize = 4 << 20;

/// Text between messages.
const SEPARATOR: &str = "\n\n";

/// Reads an answer from a turn. Ends early if the server shuts down, or the caller's key is
/// revoked.
pub(super) struct Answer {
    turn: Turn,
    /// Completes when the caller may no longer be served.
    unserved: Pin<Box<dyn Future<Output = ApiError> + Send>>,
    length: usize,
    /// The last action of an agent.
    action: Option<Arc<Event>>,
    /// The end that follows the last text.
    end: Option<AnswerPart>,
}

/// A part of an answer.
#[derive(Debug)]
pub(super) enum AnswerPart {
    /// Text to append.
    Text(String),
    /// The last part.
    End {
        /// Why the answer ends.
        reason: FinishReason,
        /// The usage of the turn.
        usage: Usage,
    },
}

impl Answer {
    pub(super) fn new(state: Arc<ServerState>, caller: Caller, turn: Turn) -> Self {
        let unserved = Box::pin(async move {
            tokio::select! {
                () = state.streams.cancelled() => ConversationsError::ShuttingDown.into(),
                () = state.until_revoked(&caller) => ApiError::WrongKey,
            }
        });
        Self {
            turn,
            unserved,
            length: 0,
            action: None,
            end: None,
        }
    }

    /// Returns the conversation.
    pub(super) fn conversation(&self) -> &ConversationId {
        self.turn.conversation()
    }

    /// Waits for the next part. Not called again after the end or an error.
    ///
    /// # Errors
    /// [`ApiError::UnfinishedTurn`] if the agent does not come to an answer, or an error of the
    /// store.
    pub(super) async fn next(&mut self) -> Result<AnswerPart, ApiError> {
        if let Some(end) = self.end.take() {
            return Ok(end);
        }
        loop {
            let update = tokio::select! {
                update = self.turn.next() => update?,
                error = &mut self.unserved => {
                    // A conversation continues after a restart of the server.
                    if !matches!(error, ApiError::WrongKey) {
                        self.turn.detach();
                    }
                    return Err(error);
                }
            };
            match update {
                TurnUpdate::Event(event) => {
                    let text = view::agent_text(&event).and_then(|text| self.append(text));
                    self.track(event);
                    if let Some(text) = text {
                        return Ok(AnswerPart::Text(text));
                    }
                }
                TurnUpdate::Ended(end) => return self.end(end),
            }
        }
    }

    /// Remembers what the agent does, to describe an action that awaits confirmation.
    fn track(&mut self, event: Arc<Event>) {
        if event.source == EventSource::Agent && matches!(event.body, EventBody::Action(_)) {
            self.action = Some(event);
        }
    }

    /// Returns the text with its separator. `None` if there is none, or the answer is at its
    /// maximum length.
    fn append(&mut self, text: &str) -> Option<String> {
        let text = if text.trim().is_empty() {
            return None;
        } else {
            text
        };
        let separator = if self.length == 0 { "" } else { SEPARATOR };
        let mut text = format!("{separator}{text}");
        text.truncate(text.floor_char_boundary(MAX_LENGTH.saturating_sub(self.length)));
        self.length += text.len();
        Some(text).filter(|text| !text.is_empty())
    }

    fn end(&mut self, TurnEnd { outcome, usage }: TurnEnd) -> Result<AnswerPart, ApiError> {
        let is_cut = self.length >= MAX_LENGTH;
        let reason = if is_cut {
            FinishReason::Length
        } else {
            FinishReason::Stop
        };
        let end = AnswerPart::End {
            reason,
            usage: Usage::from(usage),
        };
        match outcome {
            TurnOutcome::Finished | TurnOutcome::AwaitingMessage | TurnOutcome::Rejected => Ok(end),
            TurnOutcome::AwaitingConfirmation { action } => {
                let text = self.confirmation_request(action);
                match self.append(&text) {
                    Some(text) => {
                        self.end = Some(end);
                        Ok(AnswerPart::Text(text))
                    }
                    None => Ok(end),
                }
            }
            outcome => Err(failure(outcome)),
        }
    }

    fn confirmation_request(&self, id: EventId) -> String {
        let action = self.action.as_ref().filter(|action| action.id == id);
        let action = action
            .map(|action| format!(": {}", view::describe_action(action)))
            .unwrap_or_default();
        let conversation = self.conversation();
        format!(
            "Action {id} awaits confirmation{action}\n\nConfirm it with POST /api/conversations/{conversation}/events and \
             {{\"action\": \"change_agent_state\", \"args\": {{\"agent_state\": \"user_confirmed\", \"action_id\": {id}}}}}, \
             reject it with user_rejected, or reject it with a message to this conversation that says what to do instead."
        )
    }
}

/// Returns the error of a turn that does not end with an answer.
fn failure(outcome: TurnOutcome) -> ApiError {
    let (code, reason) = match outcome {
        TurnOutcome::LimitReached(Limit::Iterations) => (
            "AGENT$LIMIT_REACHED",
            "the agent has reached the maximum number of its steps".to_owned(),
        ),
        TurnOutcome::LimitReached(Limit::Budget) => (
            "AGENT$LIMIT_REACHED",
            "the agent has reached the maximum cost of its model calls".to_owned(),
        ),
        TurnOutcome::Stopped => ("AGENT$STOPPED", "the agent was stopped".to_owned()),
        TurnOutcome::Paused => ("AGENT$PAUSED", "the agent was paused".to_owned()),
        TurnOutcome::TimedOut => (
            "AGENT$WORKING",
            "the agent works for longer than a request may take, and continues".to_owned(),
        ),
        TurnOutcome::Failed(reason) if !reason.is_empty() => {
            ("AGENT$FAILED", format!("the agent has failed: {reason}"))
        }
        TurnOutcome::Failed(_) => ("AGENT$FAILED", "the agent has failed".to_owned()),
        TurnOutcome::Closed
        | TurnOutcome::Finished
        | TurnOutcome::AwaitingMessage
        | TurnOutcome::AwaitingConfirmation { .. }
        | TurnOutcome::Rejected => (
            "CONVERSATION$CLOSED",
            "the conversation was closed while the agent worked".to_owned(),
        ),
    };
    ApiError::UnfinishedTurn { code, reason }
}
