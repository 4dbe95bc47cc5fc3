//! Standard error without the secrets: for the log and for what is said to people.
//!
//! The one thing that is known to the whole program: a log line may come from anywhere, also from a library.

use std::io::{self, Write};
use std::sync::OnceLock;

use engine::secrets::Redactor;

static REDACTOR: OnceLock<Redactor> = OnceLock::new();

/// From now on these secrets are hidden. A program has one configuration: a second word is not heard.
pub(crate) fn hide(redactor: Redactor) {
    let _ = REDACTOR.set(redactor);
}

/// Writes to standard error; each call is whole lines.
pub(crate) struct HidingStderr;

impl Write for HidingStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match REDACTOR.get() {
            Some(redactor) => io::stderr().lock().write_all(&redactor.bytes(bytes)),
            None => io::stderr().lock().write_all(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}
