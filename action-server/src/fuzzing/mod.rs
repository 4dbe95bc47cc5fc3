//! What fuzz targets call: each reads bytes as hostile input and panics when something is not as it should be.
//!
//! Built only by a fuzzer (`cfg(fuzzing)`); the targets are in `action-server/fuzz`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a fuzzer is told by panicking")]
#![allow(missing_docs, reason = "named for their targets")]

mod archive;
mod choices;
mod edit;
mod scratch;

use protocol::sandbox_api::{ActionFrameDecoder, ActionRequest};

pub use archive::archive;
pub use edit::edit;

use crate::shell;

/// A request is refused, or is the same after it was written and read again. Frames never panic.
pub fn request(bytes: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<ActionRequest>(bytes) {
        let written = serde_json::to_vec(&request).unwrap();
        assert_eq!(serde_json::from_slice::<ActionRequest>(&written).unwrap(), request);
    }
    let mut decoder = ActionFrameDecoder::default();
    for chunk in bytes.chunks(7) {
        decoder.push(chunk);
        while let Ok(Some(_)) = decoder.next_frame() {}
    }
}

/// Marks are found wherever the bytes are cut, and no byte is lost.
pub fn marks(bytes: &[u8]) {
    let (cut, bytes) = split(bytes);
    assert_eq!(shell::fuzzing::marks(bytes.chunks(cut)), shell::fuzzing::marks([bytes]));
}

/// Output folds to the same text wherever it is cut, and holds no control character.
pub fn fold(bytes: &[u8]) {
    let (cut, bytes) = split(bytes);
    let text = shell::fuzzing::fold(bytes.chunks(cut));
    assert_eq!(text, shell::fuzzing::fold([bytes]));
    assert!(!text.chars().any(|char| char.is_ascii_control() && char != '\n' && char != '\t'), "{text:?}");
}

/// The first byte says how the rest is cut.
fn split(bytes: &[u8]) -> (usize, &[u8]) {
    bytes.split_first().map_or((1, bytes), |(cut, bytes)| (usize::from(*cut).max(1), bytes))
}
