//! Fingerprints of requests and ids. They have the same size for every length, so that many can be
//! remembered.

use std::hash::{BuildHasher as _, Hasher, RandomState};
use std::io::{self, BufWriter, Write as _};

use serde::Serialize;

/// Buffer size. Most requests fit.
const BUFFER_BYTES: usize = 1 << 10;

/// Two hashes of 64 bits each, with random keys of this process. Collisions are too unlikely to
/// handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint(u64, u64);

/// Computes fingerprints. Those of different instances are not comparable.
#[derive(Debug, Default)]
pub(super) struct Fingerprints {
    first: RandomState,
    second: RandomState,
}

impl Fingerprints {
    /// Hashes the parsed request, so that whitespace and the order of fields do not matter.
    pub(super) fn of_request(&self, request: &impl Serialize) -> Fingerprint {
        let mut sink = self.sink();
        // The hasher has a cost per call, and JSON is written in chunks of a few bytes.
        let mut buffer = BufWriter::with_capacity(BUFFER_BYTES, &mut sink);
        let hashed = serde_json::to_writer(&mut buffer, request).map_err(io::Error::from);
        if let Err(error) = hashed.and_then(|()| buffer.flush()) {
            // Cannot happen: the sink never fails, and the request came from JSON. If it did, equal
            // requests would still have equal fingerprints.
            tracing::warn!(%error, "cannot hash a request");
        }
        drop(buffer);
        sink.fingerprint()
    }

    pub(super) fn of_id(&self, id: &str) -> Fingerprint {
        let mut sink = self.sink();
        sink.add(id.as_bytes());
        sink.fingerprint()
    }

    fn sink(&self) -> HashSink<impl Hasher> {
        HashSink {
            first: self.first.build_hasher(),
            second: self.second.build_hasher(),
        }
    }
}

struct HashSink<H> {
    first: H,
    second: H,
}

impl<H: Hasher> HashSink<H> {
    fn add(&mut self, bytes: &[u8]) {
        self.first.write(bytes);
        self.second.write(bytes);
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint(self.first.finish(), self.second.finish())
    }
}

impl<H: Hasher> io::Write for HashSink<H> {
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
    fn fingerprints_are_equal_when_only_the_json_format_differs() {
        let fingerprints = Fingerprints::default();
        let one = request(r#"{"action":"run","args":{"command":"ls","hidden":false},"timeout":1}"#);
        let two =
            request(r#"{ "timeout": 1.0, "args": {"command": "ls"}, "action": "run", "id": 7 }"#);
        let other = request(r#"{"action":"run","args":{"command":"ls"},"timeout":2}"#);
        assert_eq!(fingerprints.of_request(&one), fingerprints.of_request(&two));
        assert_ne!(
            fingerprints.of_request(&one),
            fingerprints.of_request(&other)
        );
    }
}
