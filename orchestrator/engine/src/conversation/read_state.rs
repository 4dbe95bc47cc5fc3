//! The state of a conversation that is not open in this process.

use protocol::ConversationId;

use super::State;
use crate::events::{EventStore, StoreError};

/// Number of events per read. Limits the memory for a long log.
const PAGE_SIZE: usize = 256;

/// Folds a stored log page by page. Returns the default state if there is no such conversation.
///
/// # Errors
/// See [`EventStore::read`].
pub async fn read_state(
    store: &dyn EventStore,
    conversation: &ConversationId,
) -> Result<State, StoreError> {
    let mut state = State::default();
    loop {
        let page = store.read(conversation, state.next_id, PAGE_SIZE).await?;
        if page.is_empty() {
            return Ok(state);
        }
        page.iter().for_each(|event| state.apply(event));
    }
}
