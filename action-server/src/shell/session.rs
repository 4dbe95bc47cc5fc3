//! The session task, which owns a shell and performs one action after the other.
//!
//! It never signals a command on a timeout, and never runs two commands concurrently. Between
//! actions it keeps reading, so that no process blocks on a full terminal. It ends on request or
//! when no handle is left, and kills all processes of the shell.

use std::future::pending;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use protocol::Observation;
use protocol::action::RunAction;
use protocol::sandbox_api::CommandEnvironment;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

mod cancelling;
mod quiet_timer;
mod starting;

use super::ShellConfig;
use super::answers::{self, CommandOutcome, CommandReport};
use super::baseline;
use super::facts::MachineInfo;
use super::output::FoldedText;
use super::program::ShellProgram;
use super::running::{OutputListener, RunningCommand};
use super::shell_process::{ShellEvent, ShellProcess};
use super::start_error::StartError;
use crate::os::out_of_memory::OomKillCounter;
use quiet_timer::QuietTimer;
use starting::STARTUP_FILES_ENDED;

/// Maximum time to wait for a killed shell.
const KILL_TIMEOUT: Duration = Duration::from_millis(500);

/// A shorter command cannot use up the memory.
const MIN_OOM_TIME: Duration = Duration::from_millis(5);

const NEW_SHELL: &str = "The shell had ended before this command, which ran in a new one.";

const SILENCED: &str = "The shell could not report how its commands ended, and was killed.";

const REPLACED: &str =
    "It replaced the shell by `exec`. The next command gets a new shell after its exit.";

/// Receives the raw output of an action.
pub(crate) type OutputSink = Box<dyn FnMut(&[u8]) + Send>;

/// An action, and the channel for its observation.
pub(super) struct ShellRequest {
    pub(super) action: RunAction,
    pub(super) environment: CommandEnvironment,
    pub(super) timeout: Option<Duration>,
    pub(super) output: OutputSink,
    pub(super) cancel: CancellationToken,
    pub(super) reply: oneshot::Sender<Observation>,
    /// Released when the action is answered, for the next one in the queue.
    pub(super) turn: OwnedSemaphorePermit,
}

/// State that the handles of the shell read.
pub(super) struct SharedState {
    /// The working directory.
    pub(super) working_dir: watch::Sender<PathBuf>,
    /// Whether a command is running after its action was answered.
    pub(super) running: Arc<AtomicBool>,
    /// Whether new shells are started without the start-up files.
    pub(super) skips_startup_files: Arc<AtomicBool>,
}

/// The state of the task.
pub(super) struct Session {
    config: ShellConfig,
    program: ShellProgram,
    facts: MachineInfo,
    stop: CancellationToken,
    shared: SharedState,
    process: Option<ShellProcess>,
    /// The last command, until its outcome was reported.
    running: Option<RunningCommand>,
    quiet: QuietTimer,
    note: Option<&'static str>,
    oom_kills: OomKillCounter,
}

impl Session {
    pub(super) fn new(
        config: ShellConfig,
        program: ShellProgram,
        facts: MachineInfo,
        shared: SharedState,
        stop: CancellationToken,
    ) -> Self {
        Self {
            config,
            program,
            facts,
            stop,
            shared,
            process: None,
            running: None,
            quiet: QuietTimer::default(),
            note: None,
            oom_kills: OomKillCounter::start(),
        }
    }

    /// Serves requests until the end.
    pub(super) async fn serve(mut self, mut requests: mpsc::Receiver<ShellRequest>) {
        // Before the first command, so that it does not wait. An error is reported by a command
        // that needs the shell.
        if let Err(error) = self.start_process() {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "cannot start the shell yet"
            );
        }
        let stop = self.stop.clone();
        loop {
            let startup_deadline = self.startup_deadline();
            let runs = self
                .running
                .as_ref()
                .is_some_and(|running| running.ending().is_none());
            self.shared.running.store(runs, Ordering::Relaxed);
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                request = requests.recv() => match request {
                    Some(request) => self.answer_request(request).await,
                    None => break,
                },
                event = next_event(&mut self.process) => self.on_event(event, &mut None),
                () = until(startup_deadline) => self.stop_startup_files().await,
            }
        }
        self.kill().await;
    }

    async fn answer_request(&mut self, mut request: ShellRequest) {
        let observation = match self.perform(&mut request).await {
            Ok(observation) => observation,
            Err(error) => error.into_observation(),
        };
        // Before the reply, so that the caller can send its next action immediately.
        drop(request.turn);
        // Fails if the caller has disconnected. Further output of the command belongs to the next
        // action.
        let _ = request.reply.send(observation);
    }

    async fn perform(&mut self, request: &mut ShellRequest) -> Result<Observation, StartError> {
        let (action, started) = (&request.action, Instant::now());
        let is_new_command = !action.is_input && !action.command.is_empty();
        if is_new_command
            && self
                .running
                .as_ref()
                .is_some_and(|running| running.ending().is_some())
        {
            // It has ended while no action was attached.
            self.running = None;
        }
        let ending = match &mut self.running {
            None if is_new_command => self.run_command(request).await?,
            None => {
                return Ok(answers::nothing_runs(
                    action,
                    &self.facts,
                    &self.shared.working_dir.borrow(),
                ));
            }
            Some(running) => {
                running.catch_up(&mut request.output);
                match running.ending() {
                    Some(ending) => {
                        let ending = ending.clone();
                        if action.is_input && !action.command.is_empty() {
                            self.note =
                                Some("It had ended before this could be typed; nothing was typed.");
                        }
                        ending
                    }
                    None if is_new_command => CommandOutcome::NotExecuted,
                    None => {
                        self.send_input(action);
                        self.watch(request).await
                    }
                }
            }
        };
        let out_of_memory = self.is_out_of_memory(&ending, started.elapsed());
        Ok(self.report(&request.action, &ending, out_of_memory))
    }

    /// Starts a command and watches it. A shell that ends before it has read the command is
    /// replaced once, because nothing was run.
    async fn run_command(
        &mut self,
        request: &mut ShellRequest,
    ) -> Result<CommandOutcome, StartError> {
        let ending = self.try_command(request).await?;
        if ending != CommandOutcome::NeverRead {
            return Ok(ending);
        }
        self.running = None;
        self.note = Some(NEW_SHELL);
        self.try_command(request).await
    }

    async fn try_command(
        &mut self,
        request: &mut ShellRequest,
    ) -> Result<CommandOutcome, StartError> {
        tokio::select! {
            biased;
            () = request.cancel.cancelled() => return Ok(CommandOutcome::NotStarted),
            ready = self.make_ready() => ready?,
        }
        let Some(process) = &mut self.process else {
            return Err(StartError::Ended { status: -1 });
        };
        let sent = process.send_command(&request.action.command, &request.environment);
        let baseline = sent.map_err(StartError::Command)?;
        self.running = Some(RunningCommand::new(
            baseline,
            answers::content_limit(&request.action),
        ));
        Ok(self.watch(request).await)
    }

    fn send_input(&mut self, action: &RunAction) {
        let Some(process) = &mut self.process else {
            return;
        };
        if let Some(running) = &self.running {
            // A program can have stopped it: then it handles no key, and reports no end.
            baseline::send(running.baseline().shell(), Signal::SIGCONT);
        }
        match answers::key(&action.command) {
            _ if action.command.is_empty() => {}
            Some(letter) => process.send_input(&[letter as u8 & 0x1f]),
            // The Enter key sends CR, which the terminal converts to NL, unless a program reads raw
            // keys.
            None => process.send_input(format!("{}\r", action.command).as_bytes()),
        }
    }

    /// Watches the running command until the action can be answered.
    async fn watch(&mut self, request: &mut ShellRequest) -> CommandOutcome {
        let ShellRequest {
            action,
            timeout,
            output,
            cancel,
            ..
        } = request;
        let stop = self.stop.clone();
        let mut deadline = pin!(until(
            timeout.and_then(|timeout| Instant::now().checked_add(timeout))
        ));
        let no_change_timeout = self.config.no_change_timeout;
        let mut last_output_at = Instant::now();
        loop {
            if let Some(ending) = self.running.as_ref().and_then(RunningCommand::ending) {
                return ending.clone();
            }
            // In this order: a command that floods the terminal must not delay its cancellation.
            tokio::select! {
                biased;
                () = stop.cancelled() => return self.kill().await,
                () = cancel.cancelled() => return self.cancel(output).await,
                () = &mut deadline => return CommandOutcome::TimedOut { after: timeout.unwrap_or_default() },
                event = next_event(&mut self.process) => {
                    last_output_at = Instant::now();
                    self.on_event(event, &mut Some(&mut **output));
                }
                () = self.quiet.elapsed(last_output_at, no_change_timeout), if !action.blocking => {
                    return CommandOutcome::Quiet { after: no_change_timeout };
                }
            }
        }
    }

    /// Handles an event of the shell.
    fn on_event(&mut self, event: ShellEvent, output: &mut OutputListener<'_>) {
        let Self {
            process,
            running,
            shared,
            note,
            facts,
            ..
        } = self;
        match event {
            ShellEvent::Output(count) => {
                let Some(process) = process else { return };
                process.output(count, |bytes| {
                    if let Some(running) = running {
                        running.on_output(bytes, output);
                    }
                });
            }
            ShellEvent::Reported {
                working_dir,
                ended,
                is_lost,
            } => {
                match (ended, running) {
                    (Some(status), Some(running)) => {
                        running.end(CommandOutcome::Completed { status });
                    }
                    (None, Some(running)) if is_lost => running.restart(),
                    _ => {}
                }
                if let Some(output) = process.as_mut().and_then(ShellProcess::take_startup_output) {
                    facts.python = output.python().or(facts.python.take());
                    if output.is_of_files() {
                        tracing::warn!("dropped what the shell's start-up files have printed");
                    }
                }
                if working_dir.is_absolute() {
                    shared.working_dir.send_if_modified(|known| {
                        let is_new = *known != working_dir;
                        *known = working_dir;
                        is_new
                    });
                }
            }
            ShellEvent::Exited { .. }
                if process
                    .as_ref()
                    .is_some_and(ShellProcess::reads_startup_files) =>
            {
                *process = None;
                self.skip_startup_files(STARTUP_FILES_ENDED);
            }
            ShellEvent::Exited {
                status,
                unread,
                is_silenced,
            } => {
                *process = None;
                if is_silenced && running.is_some() {
                    *note = Some(SILENCED);
                }
                match running {
                    Some(running) if unread => running.end(CommandOutcome::NeverRead),
                    Some(running) => running.end(CommandOutcome::ShellEnded { status }),
                    None => *note = Some(NEW_SHELL),
                }
            }
        }
    }

    /// Returns whether the kernel has killed a process because memory ran out, since the last call.
    /// Skipped for commands that were too short, unless they were killed, because there are many
    /// short commands.
    fn is_out_of_memory(&mut self, ending: &CommandOutcome, lasted: Duration) -> bool {
        (lasted >= MIN_OOM_TIME || ending.is_a_kill()) && self.oom_kills.has_increased()
    }

    /// Creates the observation, and ends the command if it has ended.
    fn report(
        &mut self,
        action: &RunAction,
        ending: &CommandOutcome,
        out_of_memory: bool,
    ) -> Observation {
        let (folded, first) = self
            .running
            .as_mut()
            .map_or_else(|| (FoldedText::default(), true), RunningCommand::take_text);
        if ending.is_final() {
            self.running = None;
        }
        let running = self.process.as_ref().filter(|_| !ending.is_final());
        if running.is_some_and(ShellProcess::is_replaced) {
            self.note.get_or_insert(REPLACED);
        }
        let answer = CommandReport {
            ending,
            folded,
            first,
            running: running.and_then(ShellProcess::foreground_group),
            working_dir: &self.shared.working_dir.borrow(),
            note: self.note.take(),
            out_of_memory,
        };
        answers::answer(action, &self.facts, answer)
    }
}

async fn next_event(process: &mut Option<ShellProcess>) -> ShellEvent {
    match process {
        Some(process) => process.next_event().await,
        None => pending().await,
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
