//! A title for a conversation, found beside it.

use std::sync::Arc;

use engine::conversation::Conversation;
use engine::llm::Llm;
use protocol::{Action, EventBody, EventId, EventSource};

/// Has a title found as soon as the user has said something, if there is a model for it and no title. What fails in this has
/// no effect on the conversation; what is not done when the conversation ends is dropped.
pub(super) async fn entitle(conversation: &Conversation, llm: Option<Arc<dyn Llm>>) {
    let Some(llm) = llm.filter(|_| conversation.state().title.is_none()) else { return };
    let Some(message) = first_message(conversation).await else { return };
    if let Err(error) = conversation.entitle(llm, message) {
        tracing::debug!(%error, "no title is looked for");
    }
}

/// What the user says first, once it is said.
async fn first_message(conversation: &Conversation) -> Option<String> {
    let mut cursor = conversation.log().cursor(EventId::FIRST);
    loop {
        let events = cursor.next().await.ok().filter(|events| !events.is_empty())?;
        for event in events {
            if let (EventSource::User, EventBody::Action(Action::Message(message))) =
                (event.source, event.body)
            {
                return Some(message.content);
            }
        }
    }
}
