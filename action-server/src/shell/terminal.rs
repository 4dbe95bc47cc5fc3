//! A shell, or one command, on a terminal of its own, for a person: nothing is announced, marked or folded here, the bytes
//! are the terminal's. Whoever has it carries them, and says when it is to end.
//!
//! Ends by itself, or with [`Terminal::kill`], which takes all that came of it. Dropped without, it hangs up.

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

/// The longest name of a kind of terminal.
const MAX_TERM_BYTES: usize = 64;

/// More terminals than people look at.
pub(crate) const MAX_TERMINALS: usize = 64;

/// Why there is no terminal.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TerminalError {
    #[error("parameter `{name}`: {problem}")]
    Invalid { name: &'static str, problem: &'static str },
    #[error("starting {program} on a terminal: {source}")]
    Spawn { program: String, source: io::Error },
    #[error("{MAX_TERMINALS} terminals are open, no more are begun")]
    TooMany,
}

/// A running one.
pub(crate) struct Terminal {
    pub(crate) screen: Screen,
    pub(crate) program: Program,
}

/// What is in front of the program.
pub(crate) struct Screen(Pty);

/// What runs on it.
pub(crate) struct Program {
    child: OwnChild,
    tree: Arc<ProcessTree>,
}

impl Terminal {
    /// Starts what was asked for in `working_dir`.
    pub(crate) fn start(
        asked: &TerminalQuery,
        environment: &Variables,
        working_dir: &Path,
    ) -> Result<Self, TerminalError> {
        check(asked)?;
        let shell = ShellProgram::find(search_path(environment));
        let mark = Uuid::now_v7().simple().to_string();
        let started = || {
            let pty = Pty::for_a_person(asked.columns, asked.rows)?;
            let mut command = Command::new(&shell.path);
            command
                .args(shell.arguments_for_a_person(asked.command.as_deref()))
                .env_clear()
                .envs(environment.iter().map(|(name, value)| (name, value)))
                .env("TERM", &asked.term)
                .env(SESSION_VARIABLE, &mark)
                .current_dir(working_dir);
            pty.attach(&mut command, [])?;
            Ok((pty, children::spawn(&mut command)?))
        };
        let (pty, child) = started()
            .map_err(|source| TerminalError::Spawn { program: shell.path.display().to_string(), source })?;
        let tree = Arc::new(ProcessTree::new(child.pid(), mark));
        Ok(Self { screen: Screen(pty), program: Program { child, tree } })
    }
}

fn check(asked: &TerminalQuery) -> Result<(), TerminalError> {
    let refuse = |name, problem| Err(TerminalError::Invalid { name, problem });
    let is_of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
    match asked {
        TerminalQuery { columns: 0, .. } => refuse("columns", "a terminal has at least one"),
        TerminalQuery { rows: 0, .. } => refuse("rows", "a terminal has at least one"),
        TerminalQuery { term, .. } if term.len() > MAX_TERM_BYTES || !term.bytes().all(is_of_a_name) => {
            refuse("term", "it is no terminal's name")
        }
        TerminalQuery { command: Some(command), .. } if command.contains('\0') => {
            refuse("command", "it holds a NUL")
        }
        _ => Ok(()),
    }
}

impl Screen {
    /// As [`Pty::read`]: what is to be shown; 0 when nobody has the terminal open any more.
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

    /// As [`Pty::resize`]. A size of nothing is passed over.
    pub(crate) fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        if columns == 0 || rows == 0 { Ok(()) } else { self.0.resize(columns, rows) }
    }
}

impl Program {
    /// Whether its end was waited for.
    pub(crate) fn has_ended(&self) -> bool {
        self.child.child.id().is_none()
    }

    /// Waits for its end. Cancel-safe.
    pub(crate) async fn exited(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.child.wait().await;
        self.tree.set_root_reaped();
        status
    }

    /// Kills it and all that came of it, and waits for its end.
    pub(crate) async fn kill(&mut self) -> io::Result<ExitStatus> {
        let tree = Arc::clone(&self.tree);
        let killing = tokio::task::spawn_blocking(move || tree.kill());
        let status = self.exited().await;
        // It fails when the runtime ends, and every process with it.
        _ = killing.await;
        status
    }
}
