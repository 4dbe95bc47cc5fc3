//! Shells: V0's `run` action on a terminal.
//!
//! A [`Shell`] is a handle to a task that owns the terminal and the process of the shell
//! ([`session`]). The commands of one shell run one after the other; shells are independent of each
//! other. A command is stopped by its cancellation token, by a key, or by the end of its shell, but
//! not by a timeout or a caller that disconnects. All processes end with [`Shell::shut_down`] or
//! with the last handle.
//!
//! A command is sent through the [`channel`] to the shell, which reads it because of its
//! [`prompt`], and which sends a report at its end. [`pty`] carries input and output, [`output`]
//! converts that to text, and [`answers`] creates the observation. [`marks`] detects prompts, at
//! which the shell can be queried.

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
mod command_variables;
mod cursor_query;
mod facts;
#[cfg(any(fuzzing, test))]
pub(crate) mod fuzzing;
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
mod startup_files;
mod terminal;
#[cfg(test)]
mod tests;

pub(crate) use answers::{SHOWN_CHARS, content};
pub(crate) use output::OutputFold;
pub(crate) use program::ShellKind;
pub(crate) use prompt::PLAIN_TERMINAL;
pub(crate) use pty::close_inherited_files_on_exec;
pub(crate) use session::OutputSink;
pub(crate) use terminal::{
    MAX_TERMINALS, Terminal, TerminalError, TerminalProgram, TerminalScreen,
};

use crate::environment::Environment;
use facts::MachineInfo;
use program::ShellProgram;
use session::{Session, SharedState, ShellRequest};
use start_error::StartError;

/// Configuration of a shell.
#[derive(Debug, Clone)]
pub(crate) struct ShellConfig {
    /// The initial working directory.
    pub(crate) working_dir: PathBuf,
    /// The environment of the shell. Variables that disable pagers and set the prompt are added.
    pub(crate) environment: Environment,
    /// How long a command may have no output before its action is answered. V0's default is 10 s.
    pub(crate) no_change_timeout: Duration,
}

/// A handle to a shell. Clones share it.
#[derive(Clone)]
pub(crate) struct Shell(Arc<ShellState>);

struct ShellState {
    config: Arc<ShellConfig>,
    program: ShellProgram,
    facts: MachineInfo,
    requests: mpsc::Sender<ShellRequest>,
    /// One action at a time. A caller that waits holds its own action, so the queue uses no memory
    /// here, and a cancelled action leaves it immediately.
    turn: Arc<Semaphore>,
    working_dir: watch::Receiver<PathBuf>,
    /// Whether a command is running after its action was answered.
    running: Arc<AtomicBool>,
    /// Whether new shells are started without the start-up files, because those have failed.
    skips_startup_files: Arc<AtomicBool>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// Returns the kind of the machine's shell.
pub(crate) fn kind() -> ShellKind {
    ShellProgram::find(std::env::var_os("PATH").as_deref()).kind()
}

impl Shell {
    /// Starts the session task, which starts the best shell of the machine. Must be called in a
    /// runtime.
    pub(crate) fn start(config: ShellConfig) -> Self {
        let program = ShellProgram::find(facts::search_path(&config.environment.current()));
        Self::start_program(config, program)
    }

    fn start_program(config: ShellConfig, program: ShellProgram) -> Self {
        let facts = MachineInfo::collect(&config.environment.current());
        Self::start_session(
            Arc::new(config),
            program,
            facts,
            Arc::default(),
            CancellationToken::new(),
        )
    }

    fn start_session(
        config: Arc<ShellConfig>,
        program: ShellProgram,
        facts: MachineInfo,
        skips_startup_files: Arc<AtomicBool>,
        stop: CancellationToken,
    ) -> Self {
        let (folder, working_dir) = watch::channel(config.working_dir.clone());
        // Only the action whose turn it is sends a request.
        let (requests, inbox) = mpsc::channel(1);
        let running = Arc::new(AtomicBool::new(false));
        let shared = SharedState {
            working_dir: folder,
            running: Arc::clone(&running),
            skips_startup_files: Arc::clone(&skips_startup_files),
        };
        let session = Session::new(
            config.as_ref().clone(),
            program.clone(),
            facts.clone(),
            shared,
            stop.clone(),
        );
        let tasks = TaskTracker::new();
        tasks.spawn(session.serve(inbox));
        let turn = Arc::new(Semaphore::new(1));
        let handle = ShellState {
            config,
            program,
            facts,
            requests,
            turn,
            working_dir,
            running,
            skips_startup_files,
            stop,
            tasks,
        };
        Self(Arc::new(handle))
    }

    /// Runs one action. A new command has the variables in `environment`, which later commands do
    /// not have. `output` receives the output of the terminal as it is written. `cancel` kills all
    /// processes of the command; the observation is still returned. Dropping the future does not
    /// stop a command; its further output belongs to the next action.
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
            false => {
                self.run_in_session(action, environment, timeout, output, cancel)
                    .await
            }
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
        // The turn first: a cancelled action must still stop the running command.
        let turn = tokio::select! {
            biased;
            turn = Arc::clone(&self.0.turn).acquire_owned() => turn.map_err(|_| StartError::Stopped)?,
            () = cancel.cancelled() => return Ok(self.never_begun(&action)),
            () = self.0.stop.cancelled() => return Err(StartError::Stopped),
        };
        let (reply, observation) = oneshot::channel();
        let request = ShellRequest {
            action,
            environment,
            timeout,
            output,
            cancel,
            reply,
            turn,
        };
        self.0
            .requests
            .send(request)
            .await
            .map_err(|_| StartError::Stopped)?;
        observation.await.map_err(|_| StartError::Stopped)
    }

    /// Runs a static action in a shell of its own, which ends with it. As no later action could
    /// continue the command, missing output does not answer the action, and remaining processes are
    /// killed at its end or timeout.
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
        let config = Arc::new(ShellConfig {
            working_dir: folder,
            ..self.0.config.as_ref().clone()
        });
        let stop = self.0.stop.child_token();
        let (program, facts) = (self.0.program.clone(), self.0.facts.clone());
        let skips_startup_files = Arc::clone(&self.0.skips_startup_files);
        let shell = Self::start_session(config, program, facts, skips_startup_files, stop);
        let action = RunAction {
            blocking: true,
            ..action
        };
        // A task of the parent shell, so that a caller that disconnects does not stop it.
        let run = self.0.tasks.spawn(async move {
            let observation = shell
                .run_in_session(action, environment, timeout, output, cancel)
                .await;
            shell.shut_down().await;
            observation
        });
        run.await.unwrap_or(Err(StartError::Stopped))
    }

    fn never_begun(&self, action: &RunAction) -> Observation {
        answers::never_begun(action, &self.0.facts, &self.0.working_dir.borrow())
    }

    /// Returns the working directory of the shell, which relative paths of file actions refer to.
    pub(crate) fn working_dir(&self) -> PathBuf {
        self.0.working_dir.borrow().clone()
    }

    /// Returns whether an action or a command is running.
    pub(crate) fn is_busy(&self) -> bool {
        self.0.turn.available_permits() == 0 || self.0.running.load(Ordering::Relaxed)
    }

    /// Kills all processes of this shell, within a second, and ends its task. Running actions are
    /// answered before.
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
