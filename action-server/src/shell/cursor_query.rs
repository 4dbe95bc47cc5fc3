//! Notices that a shell which edits its own lines asks the terminal where the cursor is.
//!
//! busybox ash asks at each prompt and waits 20 ms for the answer. It does not ask where it reads lines plainly, as it
//! does on a terminal that a command has damaged, and there an answer would become part of the command: so it gets one
//! exactly when it asked. Pure and incremental.

const QUERY: &[u8] = b"\x1b[6n";

/// The answer: the first column, where a shell wants to be at its prompt.
pub(super) const REPORT: &str = "\x1b[1;1R";

/// The search for a query in the output since a prompt.
#[derive(Debug, Default)]
pub(super) struct CursorQuery {
    matched: usize,
}

impl CursorQuery {
    /// Reads on.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.is_asked() {
                return;
            }
            // ESC is only the query's first byte, so a failed match can only begin again with the byte at hand.
            self.matched =
                if byte == QUERY[self.matched] { self.matched + 1 } else { usize::from(byte == QUERY[0]) };
        }
    }

    /// Whether an answer is waited for.
    pub(super) fn is_asked(&self) -> bool {
        self.matched == QUERY.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_found_however_it_is_cut() {
        let mut query = CursorQuery::default();
        for (bytes, asked) in
            [("\x1b[6", false), ("\x1b", false), ("[6", false), ("nx", true), ("\x1b", true)]
        {
            query.feed(bytes.as_bytes());
            assert_eq!(query.is_asked(), asked, "{bytes:?}");
        }
    }
}
