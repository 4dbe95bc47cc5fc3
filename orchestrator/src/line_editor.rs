//! Lines that a user edits at the terminal: cursor keys, history, and the other keys of readline.
//!
//! The editor reads keys in raw mode, in which ^C is a key too: it is turned into the signal that
//! it is elsewhere.

use std::io::{self, Write as _};

use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Behavior, Config, Editor};
use tokio::sync::oneshot;

/// Maximum number of lines that the cursor keys bring back.
const MAX_HISTORY: usize = 100;

/// Terminals without a cursor that can be moved.
const PLAIN_TERMINALS: [&str; 3] = ["dumb", "cons25", "emacs"];

/// Ends the mode in which a terminal marks pasted text.
const END_BRACKETED_PASTE: &[u8] = b"\x1b[?2004l";

/// Editor of lines at the terminal of this program.
pub(crate) struct LineEditor {
    editor: Editor<(), MemHistory>,
}

impl LineEditor {
    /// `None` if standard input is not the terminal of this program, or its cursor cannot be moved.
    pub(crate) fn open() -> Option<Self> {
        let is_plain =
            std::env::var("TERM").is_ok_and(|term| PLAIN_TERMINALS.contains(&term.as_str()));
        if is_plain || tcgetpgrp(io::stdin()).is_err() {
            return None;
        }
        // Not standard output, which may be a file.
        let config = Config::builder().behavior(Behavior::PreferTerm);
        let config = config.max_history_size(MAX_HISTORY).ok()?.build();
        let history = MemHistory::with_config(&config);
        Some(Self {
            editor: Editor::with_history(config, history).ok()?,
        })
    }

    /// Reads a line. `None` at the end of the input. Blocks.
    ///
    /// # Errors
    /// [`io::ErrorKind::Interrupted`] after ^C, which has sent its signal. Another error of the
    /// terminal.
    pub(crate) fn read(&mut self, prompt: &str) -> io::Result<Option<String>> {
        match self.editor.readline(prompt) {
            Ok(line) => Ok(Some(line)),
            Err(ReadlineError::Eof) => Ok(None),
            Err(ReadlineError::Interrupted) => {
                kill_process(getpid(), Signal::INT)?;
                Err(io::ErrorKind::Interrupted.into())
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Reads a line on a thread of its own. After ^C, waits for the caller to handle the signal. If
    /// this is dropped, the thread continues to read, and the terminal is as it was before. Lines
    /// that are no answer to a choice are `remembered`.
    pub(crate) async fn read_on_thread(
        mut self,
        prompt: String,
        is_remembered: bool,
    ) -> (Option<Self>, io::Result<Option<String>>) {
        let mut mode = ModeGuard {
            before: tcgetattr(io::stdin()).ok(),
        };
        let (send, receive) = oneshot::channel();
        let reading = std::thread::Builder::new()
            .name("line editor".to_owned())
            .spawn(move || {
                let line = self.read(&prompt);
                if let Ok(Some(line)) = &line
                    && is_remembered
                {
                    // Fails only if it is not stored, as an empty line is not.
                    let _ = self.editor.add_history_entry(line);
                }
                // Fails if the caller does not wait any more.
                let _ = send.send((self, line));
            });
        if let Err(error) = reading {
            return (None, Err(error));
        }
        match receive.await {
            Ok((_, Err(error))) if error.kind() == io::ErrorKind::Interrupted => {
                mode.before = None;
                std::future::pending().await
            }
            Ok((editor, line)) => {
                mode.before = None;
                (Some(editor), line)
            }
            Err(_) => (None, Err(io::Error::other("the line editor has panicked"))),
        }
    }
}

/// Restores the mode of the terminal on drop, unless the editor has done so.
struct ModeGuard {
    before: Option<Termios>,
}

impl Drop for ModeGuard {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
            let _ = io::stderr().lock().write_all(END_BRACKETED_PASTE);
        }
    }
}
