//! Shells: V0's `run` action on a terminal.
//!
//! A [`Shell`] is a handle; behind it one task owns the terminal and the shell's process ([`session`]). Commands of one
//! shell run one after the other, shells are independent of each other. A command is stopped by its cancellation token,
//! by a key, or by the end of its shell, never by a lost caller or a timeout. Everything ends with [`Shell::shut_down`] or
//! with the last handle.
//!
//! The way of a command: [`channel`] carries it to the shell, which reads it because [`prompt`] told it to, and brings back the
//! report of its end; [`pty`] carries its input and output, [`output`] folds that into text, [`answers`] words the observation.
//! [`marks`] finds prompts, which say when the shell can be asked.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use protocol::Observation;
use protocol::action::RunAction;
use protocol::sandbox_api::CommandEnvironment;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

mod answers;
mod baseline;
mod channel;
mod cursor_query;
mod facts;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod loan;
mod marks;
mod output;
mod program;
mod prompt;
mod pty;
mod running;
mod script;
mod session;
mod shell_process;
mod start_error;
mod terminal;
#[cfg(test)]
mod tests;

pub(crate) use answers::{SHOWN_CHARS, content};
pub(crate) use output::Fold;
pub(crate) use program::ShellKind;
pub(crate) use prompt::PLAIN_TERMINAL;
pub(crate) use pty::close_inherited_files_on_exec;
pub(crate) use session::OutputSink;
pub(crate) use terminal::{MAX_TERMINALS, Program, Screen, Terminal, TerminalError};

use crate::environment::Environment;
use facts::Facts;
use program::ShellProgram;
use session::{Request, Session, Told};
use start_error::StartError;

/// What a shell needs to know.
#[derive(Debug, Clone)]
pub(crate) struct ShellConfig {
    /// Where it begins.
    pub(crate) working_dir: PathBuf,
    /// The shell's complete environment, but for what keeps programs from paging and for our prompt.
    pub(crate) environment: Environment,
    /// For the shell's script, where it cannot be kept in memory.
    pub(crate) scratch_dir: PathBuf,
    /// How long a command may be silent before its action is answered; V0's default is 10 s.
    pub(crate) no_change_timeout: Duration,
}

/// A handle to a shell. Cloning shares it.
#[derive(Clone)]
pub(crate) struct Shell(Arc<Handle>);

struct Handle {
    config: Arc<ShellConfig>,
    program: ShellProgram,
    facts: Facts,
    requests: mpsc::Sender<Request>,
    /// One action at a time. Whoever waits holds their own action, so the queue costs us nothing and a cancel leaves it
    /// at once.
    turn: Arc<Semaphore>,
    working_dir: watch::Receiver<PathBuf>,
    /// Whether a command runs whose action has been answered.
    running: Arc<AtomicBool>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// Which shell this machine has: what a client can write.
pub(crate) fn kind() -> ShellKind {
    ShellProgram::find(std::env::var_os("PATH").as_deref()).kind()
}

impl Shell {
    /// Starts the actor, and with it the machine's best shell. It must be called in a runtime.
    pub(crate) fn start(config: ShellConfig) -> Self {
        let program = ShellProgram::find(facts::search_path(&config.environment.current()));
        Self::start_program(config, program)
    }

    fn start_program(config: ShellConfig, program: ShellProgram) -> Self {
        let facts = Facts::gather(&config.environment.current());
        Self::start_session(Arc::new(config), program, facts, CancellationToken::new())
    }

    fn start_session(
        config: Arc<ShellConfig>,
        program: ShellProgram,
        facts: Facts,
        stop: CancellationToken,
    ) -> Self {
        let (folder, working_dir) = watch::channel(config.working_dir.clone());
        // Room for the one whose turn it is.
        let (requests, inbox) = mpsc::channel(1);
        let running = Arc::new(AtomicBool::new(false));
        let told = Told { working_dir: folder, running: Arc::clone(&running) };
        let session =
            Session::new(config.as_ref().clone(), program.clone(), facts.clone(), told, stop.clone());
        let tasks = TaskTracker::new();
        tasks.spawn(session.serve(inbox));
        let turn = Arc::new(Semaphore::new(1));
        let handle = Handle { config, program, facts, requests, turn, working_dir, running, stop, tasks };
        Self(Arc::new(handle))
    }

    /// Runs one action to its ending. A new command has `environment` beside the shell's own, and it alone. `output` gets
    /// the raw bytes of the terminal as they come. `cancel` kills all that the command started; the observation still
    /// comes. Dropping the future does not stop a command that has begun; what it says next is told to the next action.
    pub(crate) async fn run(
        &self,
        action: RunAction,
        environment: CommandEnvironment,
        timeout: Option<Duration>,
        output: OutputSink,
        cancel: CancellationToken,
    ) -> Observation {
        let observation = match action.is_static {
            true => Box::pin(self.run_static(action, environment, timeout, output, cancel)).await,
            false => self.run_in_session(action, environment, timeout, output, cancel).await,
        };
        observation.unwrap_or_else(StartError::into_observation)
    }

    async fn run_in_session(
        &self,
        action: RunAction,
        environment: CommandEnvironment,
        timeout: Option<Duration>,
        output: OutputSink,
        cancel: CancellationToken,
    ) -> Result<Observation, StartError> {
        // The turn first: a cancel that comes with the action still has to end what runs.
        let turn = tokio::select! {
            biased;
            turn = Arc::clone(&self.0.turn).acquire_owned() => turn.map_err(|_| StartError::Stopped)?,
            () = cancel.cancelled() => return Ok(self.never_begun(&action)),
            () = self.0.stop.cancelled() => return Err(StartError::Stopped),
        };
        let (reply, observation) = oneshot::channel();
        let request = Request { action, environment, timeout, output, cancel, reply, turn };
        self.0.requests.send(request).await.map_err(|_| StartError::Stopped)?;
        observation.await.map_err(|_| StartError::Stopped)
    }

    /// A shell for one action, which ends with it: nobody could ask for more later. So silence does not end it, and
    /// what is left at its end or its timeout is killed.
    async fn run_static(
        &self,
        action: RunAction,
        environment: CommandEnvironment,
        timeout: Option<Duration>,
        output: OutputSink,
        cancel: CancellationToken,
    ) -> Result<Observation, StartError> {
        let folder = match &action.cwd {
            Some(folder) => self.working_dir().join(folder),
            None => self.0.config.working_dir.clone(),
        };
        if !folder.is_dir() {
            return Err(StartError::NoFolder(folder));
        }
        let config = Arc::new(ShellConfig { working_dir: folder, ..self.0.config.as_ref().clone() });
        let stop = self.0.stop.child_token();
        let shell = Self::start_session(config, self.0.program.clone(), self.0.facts.clone(), stop);
        let action = RunAction { blocking: true, ..action };
        // A task, so that a lost caller does not stop it; it is the parent shell's, whose end ends it.
        let run = self.0.tasks.spawn(async move {
            let observation = shell.run_in_session(action, environment, timeout, output, cancel).await;
            shell.shut_down().await;
            observation
        });
        run.await.unwrap_or(Err(StartError::Stopped))
    }

    fn never_begun(&self, action: &RunAction) -> Observation {
        answers::never_begun(action, &self.0.facts, &self.0.working_dir.borrow())
    }

    /// Where the session is: what relative paths of file actions begin with.
    pub(crate) fn working_dir(&self) -> PathBuf {
        self.0.working_dir.borrow().clone()
    }

    /// Whether an action is performed, or a command of one still runs.
    pub(crate) fn is_busy(&self) -> bool {
        self.0.turn.available_permits() == 0 || self.0.running.load(Ordering::Relaxed)
    }

    /// Kills everything that runs in this shell, within a second, and ends its task. Actions get their observation before.
    pub(crate) async fn shut_down(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

impl std::fmt::Debug for Shell {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let folder: &Path = &self.0.working_dir.borrow();
        formatter
            .debug_struct("Shell")
            .field("program", &self.0.program.path)
            .field("working_dir", &folder)
            .finish()
    }
}
