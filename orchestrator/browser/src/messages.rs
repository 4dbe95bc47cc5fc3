//! The protocol's messages: JSON with a zero byte after each. What is too long to be believed is passed over.

use serde::Deserialize;
use serde_json::Value;

/// The longest message, in bytes: a screenshot or an observation is far below. As JSON values it may take ninety times as
/// much for a moment.
const LONGEST: usize = 4 << 20;

/// A message from the browser: an answer to a call, or something that happened.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Message {
    pub(crate) id: Option<u64>,
    pub(crate) session_id: Option<String>,
    pub(crate) method: String,
    pub(crate) params: Value,
    pub(crate) result: Value,
    pub(crate) error: Option<Refusal>,
}

/// How the browser says no.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Refusal {
    pub(crate) message: String,
}

/// Takes bytes as they come, gives whole messages.
#[derive(Default)]
pub(crate) struct Splitter {
    held: Vec<u8>,
    is_passing_over: bool,
}

impl Splitter {
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut on_message: impl FnMut(Vec<u8>)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == 0) {
            let (last, rest) = bytes.split_at(end);
            self.hold(last);
            let whole = std::mem::take(&mut self.held);
            if !std::mem::take(&mut self.is_passing_over) && !whole.is_empty() {
                on_message(whole);
            }
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.hold(bytes);
    }

    fn hold(&mut self, bytes: &[u8]) {
        if self.is_passing_over || self.held.len() + bytes.len() > LONGEST {
            self.is_passing_over = true;
            self.held = Vec::new();
        } else {
            self.held.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut splitter, mut messages) = (Splitter::default(), Vec::new());
        pieces.iter().for_each(|piece| splitter.push(piece, |message| messages.push(message)));
        messages
    }

    #[test]
    fn messages_are_put_together_from_pieces() {
        assert_eq!(
            split(&[b"{\"a\"", b":1}\0{}\0\0{", b"}", b"\0", b"rest"]),
            [b"{\"a\":1}".to_vec(), b"{}".to_vec(), b"{}".to_vec()]
        );
    }

    #[test]
    fn what_is_too_long_is_passed_over_and_takes_no_memory() {
        let long = vec![b'x'; LONGEST];
        let mut splitter = Splitter::default();
        let mut messages = Vec::new();
        for piece in [b"y".as_slice(), &long, b"z\0{}\0"] {
            splitter.push(piece, |message| messages.push(message));
            assert!(splitter.held.len() <= LONGEST);
        }
        assert_eq!(messages, [b"{}".to_vec()]);
    }
}
