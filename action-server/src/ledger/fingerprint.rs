//! Short stand-ins for requests and ids, so that remembering them costs the same whatever their length.

use std::hash::{BuildHasher as _, Hasher, RandomState};
use std::io::{self, BufWriter, Write as _};

use serde::Serialize;

/// Most requests are one piece.
const PIECE_BYTES: usize = 1 << 10;

/// 128 bits of two hashes with keys of this process: two that are equal by chance will not be met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint(u64, u64);

/// Makes fingerprints; those of different makers have nothing to do with each other.
#[derive(Debug, Default)]
pub(super) struct Fingerprints {
    first: RandomState,
    second: RandomState,
}

impl Fingerprints {
    /// Of what the request means, not of its bytes: blanks and the order of fields do not matter.
    pub(super) fn of_request(&self, request: &impl Serialize) -> Fingerprint {
        let mut sink = self.sink();
        // Hashing costs by the piece, and JSON is written in pieces of a few bytes.
        let mut pieces = BufWriter::with_capacity(PIECE_BYTES, &mut sink);
        let hashed = serde_json::to_writer(&mut pieces, request).map_err(io::Error::from);
        if let Err(error) = hashed.and_then(|()| pieces.flush()) {
            // Cannot happen: the sink takes everything and the request came from JSON. Were it to, the same request
            // would still give the same fingerprint.
            tracing::warn!(%error, "hashing a request");
        }
        drop(pieces);
        sink.fingerprint()
    }

    pub(super) fn of_id(&self, id: &str) -> Fingerprint {
        let mut sink = self.sink();
        sink.add(id.as_bytes());
        sink.fingerprint()
    }

    fn sink(&self) -> Sink<impl Hasher> {
        Sink { first: self.first.build_hasher(), second: self.second.build_hasher() }
    }
}

struct Sink<H> {
    first: H,
    second: H,
}

impl<H: Hasher> Sink<H> {
    fn add(&mut self, bytes: &[u8]) {
        self.first.write(bytes);
        self.second.write(bytes);
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint(self.first.finish(), self.second.finish())
    }
}

impl<H: Hasher> io::Write for Sink<H> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.add(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use protocol::sandbox_api::ActionRequest;

    use super::*;

    fn request(json: &str) -> ActionRequest {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_same_request_written_otherwise_is_the_same() {
        let fingerprints = Fingerprints::default();
        let one = request(r#"{"action":"run","args":{"command":"ls","hidden":false},"timeout":1}"#);
        let two = request(r#"{ "timeout": 1.0, "args": {"command": "ls"}, "action": "run", "id": 7 }"#);
        let other = request(r#"{"action":"run","args":{"command":"ls"},"timeout":2}"#);
        assert_eq!(fingerprints.of_request(&one), fingerprints.of_request(&two));
        assert_ne!(fingerprints.of_request(&one), fingerprints.of_request(&other));
    }
}
