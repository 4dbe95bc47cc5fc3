//! An interactive shell or a command on its own terminal. The bytes are passed through unchanged;
//! the caller copies them and decides when to end it.
//!
//! Ends when the program exits, or with [`Terminal::kill`], which kills the whole process tree.
//! Dropping it hangs up the terminal.

use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;

use protocol::sandbox_api::TerminalQuery;
use tokio::process::Command;
use uuid::Uuid;

use super::facts::search_path;
use super::program::ShellProgram;
use super::pty::Pty;
use crate::environment::Variables;
use crate::os::children::{self, OwnChild};
use crate::os::process_tree::{ProcessTree, SESSION_VARIABLE};

/// Maximum length of `TERM`.
const MAX_TERM_BYTES: usize = 64;

/// Maximum number of terminals.
pub(crate) const MAX_TERMINALS: usize = 64;

/// Reason why a terminal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TerminalError {
    #[error("parameter `{name}`: {problem}")]
    Invalid {
        name: &'static str,
        problem: &'static str,
    },
    #[error("cannot start {program} on a terminal: {source}")]
    Spawn { program: String, source: io::Error },
    #[error("{MAX_TERMINALS} terminals are open, which is the maximum")]
    TooMany,
}

/// A terminal with its program.
pub(crate) struct Terminal {
    pub(crate) screen: TerminalScreen,
    pub(crate) program: TerminalProgram,
}

/// The terminal.
pub(crate) struct TerminalScreen(Pty);

/// The program on it.
pub(crate) struct TerminalProgram {
    child: OwnChild,
    tree: Arc<ProcessTree>,
}

impl Terminal {
    /// Starts the requested program in `working_dir`.
    pub(crate) fn start(
        query: &TerminalQuery,
        environment: &Variables,
        working_dir: &Path,
    ) -> Result<Self, TerminalError> {
        check(query)?;
        let shell = ShellProgram::find(search_path(environment));
        let mark = Uuid::now_v7().simple().to_string();
        let started = || {
            let pty = Pty::interactive(query.columns, query.rows)?;
            let mut command = Command::new(&shell.path);
            command
                .args(shell.arguments_for_a_person(query.command.as_deref()))
                .env_clear()
                .envs(environment.iter().map(|(name, value)| (name, value)))
                .env("TERM", &query.term)
                .env(SESSION_VARIABLE, &mark)
                .current_dir(working_dir);
            pty.attach(&mut command, [])?;
            Ok((pty, children::spawn(&mut command)?))
        };
        let (pty, child) = started().map_err(|source| TerminalError::Spawn {
            program: shell.path.display().to_string(),
            source,
        })?;
        let tree = Arc::new(ProcessTree::new(child.pid(), mark));
        Ok(Self {
            screen: TerminalScreen(pty),
            program: TerminalProgram { child, tree },
        })
    }
}

fn check(query: &TerminalQuery) -> Result<(), TerminalError> {
    let refuse = |name, problem| Err(TerminalError::Invalid { name, problem });
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
    match query {
        TerminalQuery { columns: 0, .. } => refuse("columns", "a terminal has at least one"),
        TerminalQuery { rows: 0, .. } => refuse("rows", "a terminal has at least one"),
        TerminalQuery { term, .. }
            if term.len() > MAX_TERM_BYTES || !term.bytes().all(is_name_byte) =>
        {
            refuse("term", "it is not a valid terminal name")
        }
        TerminalQuery {
            command: Some(command),
            ..
        } if command.contains('\0') => refuse("command", "it contains a NUL byte"),
        _ => Ok(()),
    }
}

impl TerminalScreen {
    /// Reads output, like [`Pty::read`]; 0 if no process has the terminal open.
    pub(crate) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).await
    }

    /// As [`Pty::read_now`].
    pub(crate) fn read_now(&self, buffer: &mut [u8]) -> usize {
        self.0.read_now(buffer)
    }

    /// As [`Pty::write`].
    pub(crate) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write_now(bytes) {
            0 => self.0.write(bytes).await,
            written => Ok(written),
        }
    }

    /// Like [`Pty::resize`], but ignores an empty size.
    pub(crate) fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        if columns == 0 || rows == 0 {
            Ok(())
        } else {
            self.0.resize(columns, rows)
        }
    }
}

impl TerminalProgram {
    /// Returns whether the program has exited.
    pub(crate) fn has_ended(&self) -> bool {
        self.child.child.id().is_none()
    }

    /// Waits for the exit of the program. Cancel-safe.
    pub(crate) async fn exited(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.child.wait().await;
        self.tree.set_root_reaped();
        status
    }

    /// Kills the process tree, and waits for the exit of the program.
    pub(crate) async fn kill(&mut self) -> io::Result<ExitStatus> {
        let tree = Arc::clone(&self.tree);
        let killing = tokio::task::spawn_blocking(move || tree.kill());
        let status = self.exited().await;
        // Fails if the runtime shuts down, which kills all processes.
        _ = killing.await;
        status
    }
}
