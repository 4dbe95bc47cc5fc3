//! The contract of event stores, as cases that run on each of them.
//!
//! A case receives a [`StoreBackend`] without conversations. `store_contract!` generates a test per
//! case, `stored_damage_contract!` a test per case about damaged rows, for stores in an SQL
//! database, and `blob_contract!` a test per case about large events in a blob store.

pub mod append;
pub mod blobs;
pub mod content;
pub mod damage;
pub mod list;
pub mod memory;
pub mod overviews;
pub mod postgres;
pub mod read;
pub mod sharing;
pub mod sqlite;

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use engine::events::{EventStore, StoreError};
use protocol::{ConversationId, Event, EventId};
use serde_json::json;
use storage::BlobStore;

/// A kind of store under test, with its own empty data.
#[async_trait]
pub trait StoreBackend: Send + Sync {
    /// Opens a store on the data, as another process would.
    async fn open(&self) -> Arc<dyn EventStore>;
}

/// A store in an SQL database with the tables `conversations` and `events`.
#[async_trait]
pub trait SqlBackend: StoreBackend {
    /// Opens a store on the data whose large events are in blobs.
    async fn open_with_blobs(&self, blobs: BlobStore) -> Arc<dyn EventStore>;

    /// Executes SQL, unnoticed by the stores.
    fn execute(&self, sql: &str);

    /// Returns an SQL expression for stored JSON that is not UTF-8.
    fn invalid_utf8(&self) -> &'static str;
}

/// Generates a test for every case of the contract on `$backend`. No case can be skipped.
#[macro_export]
macro_rules! store_contract {
    ($backend:expr) => {
        $crate::store_contract!($backend;
            append::appended_events_are_read_in_order,
            append::append_is_rejected_when_ids_do_not_continue,
            append::rejected_append_leaves_nothing,
            append::no_conversation_exists_when_first_append_is_rejected,
            append::many_conversations_append_concurrently,
            append::one_of_concurrent_appends_of_the_same_id_succeeds,
            sharing::append_of_another_handle_is_read,
            sharing::one_append_succeeds_when_two_handles_append_the_same_id,
            sharing::handles_can_be_opened_concurrently,
            read::reader_follows_by_cursor,
            read::limits_of_a_page_may_be_extreme,
            read::unknown_conversation_is_empty,
            read::page_ends_with_the_event_that_exceeds_its_bytes,
            content::text_is_stored_exactly,
            content::numbers_and_order_of_keys_are_stored_exactly,
            content::large_events_are_stored,
            list::list_is_sorted_by_latest_event,
            list::removed_conversation_is_gone_with_its_events,
            list::removal_is_idempotent,
            overviews::overview_equals_the_fold_of_its_log,
            overviews::rejected_append_does_not_change_the_overview,
            overviews::overview_is_that_of_the_new_log_after_a_removal,
            overviews::text_is_found_in_any_case_and_literally,
            overviews::conversations_are_selected_by_their_overview,
            overviews::pages_have_each_conversation_once,
        );
    };
    ($backend:expr; $($module:ident::$case:ident,)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            if let Some(backend) = $backend {
                $crate::store_contract::$module::$case(&backend).await;
            }
        })*
    };
}

/// Generates a test for every case about damaged rows on `$backend`.
#[macro_export]
macro_rules! stored_damage_contract {
    ($backend:expr) => {
        $crate::store_contract!($backend;
            damage::read_fails_when_a_row_is_no_json,
            damage::read_fails_when_a_row_is_no_text,
            damage::read_fails_when_a_row_has_another_event,
            damage::read_fails_when_a_row_is_missing,
            damage::only_one_append_fails_when_its_row_exists,
            damage::damaged_entry_is_named_and_the_others_are_listed,
            damage::damaged_entries_do_not_shorten_pages,
            damage::missing_overview_is_completed_when_opened,
            damage::overview_is_completed_up_to_a_damaged_event,
            damage::append_to_an_incomplete_overview_is_no_gap,
        );
    };
}

/// Generates a test for every case about blobs on `$backend`.
#[macro_export]
macro_rules! blob_contract {
    ($backend:expr) => {
        $crate::store_contract!($backend;
            blobs::only_large_events_are_in_blobs,
            blobs::read_fails_when_a_blob_is_missing_or_altered,
            blobs::read_fails_when_a_row_refers_to_no_blob,
            blobs::blob_is_written_again_when_it_was_damaged,
            blobs::removal_leaves_no_blob,
            blobs::blobs_are_kept_by_a_store_without_removal,
            blobs::failed_put_leaves_the_log_as_it_was,
            blobs::check_succeeds_while_the_place_is_available,
            blobs::removal_is_refused_or_complete_without_blobs,
            blobs::log_is_read_without_blobs_only_if_it_has_none,
            blobs::missing_overview_is_completed_from_blobs,
            blobs::overview_is_completed_up_to_a_damaged_blob,
        );
    };
}

/// Returns the id of a conversation.
pub fn conversation(name: &str) -> ConversationId {
    name.parse().unwrap()
}

/// Returns an event. Its timestamp has the id as seconds.
pub fn event(id: u64) -> Event {
    event_with(id, &format!("hello {id}, größer \u{1f9e4}"))
}

/// Returns an event with this text.
pub fn event_with(id: u64, content: &str) -> Event {
    Event::from_value(&json!({
        "id": id,
        "timestamp": format!("2025-10-03T12:00:{:02}.000000", id % 60),
        "source": "user",
        "action": "message",
        "args": { "content": content, "image_urls": null, "wait_for_response": false },
    }))
    .unwrap()
}

/// Returns the events with these ids.
pub fn events(ids: Range<u64>) -> Vec<Event> {
    ids.map(event).collect()
}

/// Returns the whole log of a conversation.
pub async fn log(store: &dyn EventStore, conversation: &ConversationId) -> Vec<Event> {
    store
        .read(conversation, EventId::FIRST, usize::MAX)
        .await
        .unwrap()
}

/// Checks that an append failed because of its ids.
pub fn assert_out_of_order(result: Result<(), StoreError>) {
    assert!(
        matches!(result, Err(StoreError::OutOfOrder { .. })),
        "{result:?}"
    );
}
