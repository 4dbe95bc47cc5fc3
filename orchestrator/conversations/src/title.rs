//! Finds a title for a conversation, alongside the agent's work.

use std::sync::Arc;

use engine::conversation::Conversation;
use engine::llm::Llm;
use protocol::{Action, EventBody, EventId, EventSource};

/// Requests a title once the user has sent a message. A failure has no effect on the conversation.
pub(crate) async fn find_title(conversation: Arc<Conversation>, llm: Arc<dyn Llm>) {
    let Some(message) = first_message(&conversation).await else {
        return;
    };
    if let Err(error) = conversation.request_title(llm, message) {
        tracing::debug!(%error, "cannot request a title");
    }
}

/// Waits for the first message of the user. `None` if the conversation ends first, or if its log
/// cannot be read.
async fn first_message(conversation: &Conversation) -> Option<String> {
    let mut cursor = conversation.log().cursor(EventId::FIRST);
    loop {
        let events = cursor
            .next()
            .await
            .ok()
            .filter(|events| !events.is_empty())?;
        for event in events {
            if let (EventSource::User, EventBody::Action(Action::Message(message))) =
                (event.source, &event.body)
            {
                return Some(message.content.clone());
            }
        }
    }
}
