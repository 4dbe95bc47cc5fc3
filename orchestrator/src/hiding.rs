//! Standard error without the secrets and without controls that a terminal acts on, but for our own: for the log and for
//! what is said to people.
//!
//! The one thing that is known to the whole program: a log line may come from anywhere, also from a library.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::OnceLock;

use engine::secrets::Redactor;

use crate::terminal_text::escape_controls;

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
        let text = String::from_utf8_lossy(bytes);
        let text = REDACTOR.get().map_or(Cow::Borrowed(&*text), |redactor| redactor.text(&text));
        io::stderr().lock().write_all(escape_controls(&text).as_bytes())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}
