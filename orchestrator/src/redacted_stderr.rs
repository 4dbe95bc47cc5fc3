//! Standard error for the log and for messages to the user. Redacts secrets and escapes C1 controls and format characters.
//!
//! The redactor is a global, because a log line may come from any module or library. A server replaces it when a user's secrets
//! are used.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::{PoisonError, RwLock};

use engine::secrets::Redactor;

use crate::terminal_text::escape_controls;

static REDACTOR: RwLock<Option<Redactor>> = RwLock::new(None);

/// Sets or replaces the redactor.
pub(crate) fn set_redactor(redactor: Redactor) {
    *REDACTOR.write().unwrap_or_else(PoisonError::into_inner) = Some(redactor);
}

/// Writer to standard error. Each call writes whole lines.
pub(crate) struct RedactedStderr;

impl Write for RedactedStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let text = String::from_utf8_lossy(bytes);
        let redactor = REDACTOR.read().unwrap_or_else(PoisonError::into_inner).clone();
        let text = redactor.as_ref().map_or(Cow::Borrowed(&*text), |redactor| redactor.text(&text));
        io::stderr().lock().write_all(escape_controls(&text).as_bytes())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}
