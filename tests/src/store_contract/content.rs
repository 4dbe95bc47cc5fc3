//! Cases of events that a database could change or reject.

use protocol::Event;
use serde_json::json;

use super::{StoreBackend, conversation, event_with, log};

/// Text of a large event: as large as a long output or a screenshot, and hard to compress.
const LARGE_BYTES: usize = 3 << 20;

/// NUL and other control characters, quotes and all of Unicode are stored exactly.
pub async fn text_is_stored_exactly(backend: &dyn StoreBackend) {
    let (store, a) = (backend.open().await, conversation("a"));
    let texts = [
        "",
        "NUL \0 in the middle, and escaped \\u0000",
        "all controls \u{1}\u{7}\u{8}\t\n\u{b}\u{c}\r\u{1b}[31m\u{7f}\u{80}\u{9f}",
        "quotes ' \" ` $$ $1 %s {} \\ \\\\ \\x41",
        "größer \u{1f9e4} \u{1f469}\u{200d}\u{1f52c} e\u{301} \u{feff} \u{fffe} \u{ffff} \u{10ffff}",
        "\u{202e}right to left\u{2028}\u{2029}",
    ];
    let events: Vec<_> = (0..)
        .zip(texts)
        .map(|(id, text)| event_with(id, text))
        .collect();
    store.append(&a, &events).await.unwrap();
    assert_eq!(log(&*store, &a).await, events);
}

/// Numbers keep their digits and objects the order of their keys, also in parts that Glovebox does
/// not interpret.
pub async fn numbers_and_order_of_keys_are_stored_exactly(backend: &dyn StoreBackend) {
    let (store, a) = (backend.open().await, conversation("a"));
    let tool_call = json!({
        "function_name": "f", "tool_call_id": "call_1", "total_calls_in_response": 1,
        "model_response": { "z": 1.0, "a": 1e300, "cost": 0.1, "exact": 12_345_678_901_234_567_890_u64, "b": -0.0 },
    });
    let event = Event::from_value(&json!({
        "id": 0, "timestamp": "2025-10-03T12:00:00", "source": "agent", "timeout": 0.1,
        "action": "run", "args": { "command": "ls" }, "tool_call_metadata": tool_call, "unknown": [null, {}],
    }))
    .unwrap();
    store
        .append(&a, std::slice::from_ref(&event))
        .await
        .unwrap();
    let stored = log(&*store, &a).await;
    assert_eq!(stored, std::slice::from_ref(&event));
    assert_eq!(
        serde_json::to_string(&stored[0]).unwrap(),
        serde_json::to_string(&event).unwrap()
    );
}

/// Events of several megabytes are stored.
pub async fn large_events_are_stored(backend: &dyn StoreBackend) {
    let (store, a) = (backend.open().await, conversation("a"));
    let mut state = 1_u64;
    let random = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        char::from(b' ' + u8::try_from((state >> 33) % 94).unwrap())
    });
    let text: String = random.take(LARGE_BYTES).collect();
    let large = [
        event_with(0, &text),
        event_with(1, "small"),
        event_with(2, &text),
    ];
    store.append(&a, &large).await.unwrap();
    assert_eq!(log(&*store, &a).await, large);
}
