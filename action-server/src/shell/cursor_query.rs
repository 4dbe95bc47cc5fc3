//! Detects that a shell which edits its own lines queries the cursor position.
//!
//! busybox ash queries it at each prompt and waits 20 ms for the response. It does not query it on
//! a terminal that a command has damaged; there, a response would become part of the command. So a
//! response is sent only to a query. Pure and incremental.

const QUERY: &[u8] = b"\x1b[6n";

/// The response: the first column, where the shell expects its prompt.
pub(super) const REPORT: &str = "\x1b[1;1R";

/// Searches the output since a prompt for a query.
#[derive(Debug, Default)]
pub(super) struct CursorQuery {
    matched: usize,
}

impl CursorQuery {
    /// Processes output.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.is_asked() {
                return;
            }
            // ESC occurs only at the start of the query, so a failed match can only restart at the
            // current byte.
            self.matched = if byte == QUERY[self.matched] {
                self.matched + 1
            } else {
                usize::from(byte == QUERY[0])
            };
        }
    }

    /// Returns whether the shell waits for a response.
    pub(super) fn is_asked(&self) -> bool {
        self.matched == QUERY.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_detected_for_any_chunk_size() {
        let mut query = CursorQuery::default();
        for (bytes, asked) in [
            ("\x1b[6", false),
            ("\x1b", false),
            ("[6", false),
            ("nx", true),
            ("\x1b", true),
        ] {
            query.feed(bytes.as_bytes());
            assert_eq!(query.is_asked(), asked, "{bytes:?}");
        }
    }
}
