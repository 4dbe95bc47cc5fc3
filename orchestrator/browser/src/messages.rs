//! Messages of the protocol: JSON, each followed by a zero byte. Messages above the limit are
//! skipped.

use serde::Deserialize;
use serde_json::Value;

/// Maximum length of a message. Screenshots and observations are far below. Parsed JSON may
/// temporarily take ninety times as much memory.
const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// A message of the browser: the response to a call, or an event.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Message {
    pub(crate) id: Option<u64>,
    pub(crate) session_id: Option<String>,
    pub(crate) method: String,
    pub(crate) params: Value,
    pub(crate) result: Value,
    pub(crate) error: Option<CallError>,
}

/// Error response of the browser.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CallError {
    pub(crate) message: String,
}

/// Splits a byte stream into messages.
#[derive(Default)]
pub(crate) struct MessageSplitter {
    buffer: Vec<u8>,
    is_skipping: bool,
}

impl MessageSplitter {
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut on_message: impl FnMut(Vec<u8>)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == 0) {
            let (last, rest) = bytes.split_at(end);
            self.append(last);
            let message = std::mem::take(&mut self.buffer);
            if !std::mem::take(&mut self.is_skipping) && !message.is_empty() {
                on_message(message);
            }
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.append(bytes);
    }

    fn append(&mut self, bytes: &[u8]) {
        if self.is_skipping || self.buffer.len() + bytes.len() > MAX_MESSAGE_BYTES {
            self.is_skipping = true;
            self.buffer = Vec::new();
        } else {
            self.buffer.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut splitter, mut messages) = (MessageSplitter::default(), Vec::new());
        chunks
            .iter()
            .for_each(|chunk| splitter.push(chunk, |message| messages.push(message)));
        messages
    }

    #[test]
    fn messages_are_assembled_from_chunks() {
        assert_eq!(
            split(&[b"{\"a\"", b":1}\0{}\0\0{", b"}", b"\0", b"rest"]),
            [b"{\"a\":1}".to_vec(), b"{}".to_vec(), b"{}".to_vec()]
        );
    }

    #[test]
    fn message_is_skipped_without_buffering_when_too_long() {
        let long = vec![b'x'; MAX_MESSAGE_BYTES];
        let mut splitter = MessageSplitter::default();
        let mut messages = Vec::new();
        for chunk in [b"y".as_slice(), &long, b"z\0{}\0"] {
            splitter.push(chunk, |message| messages.push(message));
            assert!(splitter.buffer.len() <= MAX_MESSAGE_BYTES);
        }
        assert_eq!(messages, [b"{}".to_vec()]);
    }
}
