//! The fuzz targets. Each takes bytes as hostile input and panics if an invariant is violated.
//!
//! `action-server` includes this file as a module of its tests, where the targets are property
//! tests. So paths here start with `super` or `action_server`, never with `crate`.

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

use action_server::fuzzing as server;
use protocol::sandbox_api::{ActionFrameDecoder, ActionRequest};

pub use archive::archive;
pub use edit::edit;

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
        server::marks(bytes.chunks(chunk_size)),
        server::marks([bytes])
    );
}

/// Output folds to the same text for any chunk size, without control characters.
pub fn fold(bytes: &[u8]) {
    let (chunk_size, bytes) = split(bytes);
    let text = server::fold(bytes.chunks(chunk_size));
    assert_eq!(text, server::fold([bytes]));
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
