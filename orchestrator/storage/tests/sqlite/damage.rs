//! Damage that only SQLite has: text that is not UTF-8. The cases of all databases are in
//! `tests/src/store_contract/damage.rs`.

use engine::events::EventStore as _;

use crate::fixture::{Fixture, conversation, events};

#[tokio::test]
async fn entry_is_damaged_when_its_time_is_no_text() {
    let fixture = Fixture::new();
    let store = fixture.store().await;
    for name in ["a", "b"] {
        store
            .append(&conversation(name), &events(0..1))
            .await
            .unwrap();
    }
    fixture.tamper("UPDATE conversations SET created_at = CAST(x'ff' AS TEXT) WHERE id = 'b'");
    let list = store.conversations().await.unwrap();
    assert_eq!(
        list.conversations
            .into_iter()
            .map(|known| known.id)
            .collect::<Vec<_>>(),
        [conversation("a")]
    );
    assert_eq!(
        list.damaged
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["the entry of conversation \"b\" is damaged"]
    );
}
