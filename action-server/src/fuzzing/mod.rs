//! Entry points of the fuzz targets. Each takes bytes as hostile input and panics if an invariant
//! is violated.
//!
//! Built by a fuzzer (`cfg(fuzzing)`), whose targets are in `action-server/fuzz`, and for property
//! tests.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic reports a finding to the fuzzer"
)]
#![allow(missing_docs, reason = "named for their targets")]

mod archive;
mod choices;
mod edit;
mod scratch;
#[cfg(test)]
mod tests;

use protocol::sandbox_api::{ActionFrameDecoder, ActionRequest};

pub use archive::archive;
pub use edit::edit;

use crate::shell;

/// A request is rejected or round-trips. The decoder of frames never panics.
pub fn request(bytes: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<ActionRequest>(bytes) {
        let written = serde_json::to_vec(&request).unwrap();
        assert_eq!(
            serde_json::from_slice::<ActionRequest>(&written).unwrap(),
            request
        );
    }
    let mut decoder = ActionFrameDecoder::default();
    for chunk in bytes.chunks(7) {
        decoder.push(chunk);
        while let Ok(Some(_)) = decoder.next_frame() {}
    }
}

/// Marks are found for any chunk size, and no byte is lost.
pub fn marks(bytes: &[u8]) {
    let (chunk_size, bytes) = split(bytes);
    assert_eq!(
        shell::fuzzing::marks(bytes.chunks(chunk_size)),
        shell::fuzzing::marks([bytes])
    );
}

/// Output folds to the same text for any chunk size, without control characters.
pub fn fold(bytes: &[u8]) {
    let (chunk_size, bytes) = split(bytes);
    let text = shell::fuzzing::fold(bytes.chunks(chunk_size));
    assert_eq!(text, shell::fuzzing::fold([bytes]));
    assert!(
        !text
            .chars()
            .any(|char| char.is_ascii_control() && char != '\n' && char != '\t'),
        "{text:?}"
    );
}

/// Returns the chunk size, from the first byte, and the other bytes.
fn split(bytes: &[u8]) -> (usize, &[u8]) {
    bytes
        .split_first()
        .map_or((1, bytes), |(cut, bytes)| (usize::from(*cut).max(1), bytes))
}
