//! Standard error for the log and for messages to the user. Redacts secrets and escapes C1 controls
//! and format characters.
//!
//! The redactors are global, because a log line may come from any module or library: that of the
//! configuration, and on a server the conversations'. So is the status line, which must not stay in
//! the line that is written.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError, RwLock};

use console::Term;
use engine::secrets::{Redactor, WeakRedactor};
use indicatif::{ProgressBar, ProgressDrawTarget, WeakProgressBar};

use crate::status_terminal;
use crate::terminal_text::{escape_controls, escape_log_controls};

static REDACTORS: RwLock<Redactors> = RwLock::new(Redactors {
    own: None,
    shared: Vec::new(),
});

struct Redactors {
    /// That of the configuration.
    own: Option<Redactor>,
    /// Those of conversations, of which some may have ended.
    shared: Vec<WeakRedactor>,
}

/// The latest status line on the terminal.
static STATUS: Mutex<Option<WeakProgressBar>> = Mutex::new(None);

/// Sets the status line that is cleared while text is written, and drawn again below the text.
pub(crate) fn set_status(status: &ProgressBar) {
    *STATUS.lock().unwrap_or_else(PoisonError::into_inner) = Some(status.downgrade());
}

fn status() -> Option<ProgressBar> {
    STATUS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .and_then(WeakProgressBar::upgrade)
}

/// Writes while the status line is cleared.
fn above_status<T>(write: impl FnOnce() -> T) -> T {
    match status() {
        Some(status) => status.suspend(write),
        None => write(),
    }
}

/// Asks the user while there is no status line, which would overwrite the question. Unlike
/// [`above_status`], this does not block the tasks that change the status.
pub(crate) fn without_status<T>(ask: impl FnOnce() -> T) -> T {
    let Some(status) = status().filter(|status| !status.is_hidden()) else {
        return ask();
    };
    status.set_draw_target(ProgressDrawTarget::hidden());
    let _ = Term::stderr().clear_line(); // the question is asked all the same
    let answer = ask();
    status.set_draw_target(status_terminal::target());
    answer
}

/// Sets the redactor of the configuration.
pub(crate) fn set_redactor(redactor: Redactor) {
    REDACTORS
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .own = Some(redactor);
}

/// Adds a redactor that is used while others hold it.
pub(crate) fn add_redactor(redactor: WeakRedactor) {
    let shared = &mut REDACTORS
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .shared;
    shared.retain(|other| other.upgrade().is_some());
    shared.push(redactor);
}

/// Returns the redactors in use.
fn redactors() -> Vec<Redactor> {
    let Redactors { own, shared } = &*REDACTORS.read().unwrap_or_else(PoisonError::into_inner);
    own.iter()
        .cloned()
        .chain(shared.iter().filter_map(WeakRedactor::upgrade))
        .collect()
}

/// Writer to standard error. Each call writes whole lines.
pub(crate) struct RedactedStderr;

impl Write for RedactedStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let text = String::from_utf8_lossy(bytes);
        let text = redactors()
            .iter()
            .fold(text, |text, redactor| match redactor.text(&text) {
                Cow::Borrowed(_) => text,
                Cow::Owned(redacted) => redacted.into(),
            });
        above_status(|| {
            io::stderr()
                .lock()
                .write_all(escape_controls(&text).as_bytes())
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}

/// Writer of the log. An error may quote a model or a sandbox, whose controls a terminal would act
/// on when the log is read.
pub(crate) struct LogStderr;

impl Write for LogStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let text = String::from_utf8_lossy(bytes);
        RedactedStderr.write_all(escape_log_controls(&text).as_bytes())
    }

    fn flush(&mut self) -> io::Result<()> {
        RedactedStderr.flush()
    }
}
