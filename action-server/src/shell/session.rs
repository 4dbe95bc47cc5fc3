//! The session actor: one task that owns a shell and answers one action after the other.
//!
//! It never signals a command because of a timeout, and never runs two commands at once. Between actions it goes on
//! reading, so that nothing blocks on a full terminal. It ends when it is told to or when no handle is left, and kills
//! everything the shell started.

use std::future::pending;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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
use super::answers::{self, Answer, Ending};
use super::facts::Facts;
use super::output::Folded;
use super::program::ShellProgram;
use super::running::{Listener, Running};
use super::shell_process::{Event, ShellProcess};
use super::start_error::StartError;
use crate::os::out_of_memory::OomKillCounter;
use quiet_timer::QuietTimer;

/// How long a killed shell is waited for.
const KILL_PATIENCE: Duration = Duration::from_millis(500);

/// What no command takes less than to fill a memory worth the name.
const GREED_TIME: Duration = Duration::from_millis(5);

const NEW_SHELL: &str = "The shell had ended before this command, which ran in a new one.";

const SILENCED: &str = "The shell could not report how its commands ended, and was killed.";

const REPLACED: &str =
    "It runs in the place of the shell, by `exec`. The next command gets a new shell when it has ended.";

/// Where an action's raw output goes.
pub(crate) type OutputSink = Box<dyn FnMut(&[u8]) + Send>;

/// One action, and where its observation goes.
pub(super) struct Request {
    pub(super) action: RunAction,
    pub(super) environment: CommandEnvironment,
    pub(super) timeout: Option<Duration>,
    pub(super) output: OutputSink,
    pub(super) cancel: CancellationToken,
    pub(super) reply: oneshot::Sender<Observation>,
    /// Held until the action is answered: the next in the queue goes on when it is dropped.
    pub(super) turn: OwnedSemaphorePermit,
}

/// What the handles of the shell can see.
pub(super) struct Told {
    /// Where it is.
    pub(super) working_dir: watch::Sender<PathBuf>,
    /// Whether a command runs whose action has been answered.
    pub(super) running: Arc<AtomicBool>,
}

/// The actor's state.
pub(super) struct Session {
    config: ShellConfig,
    program: ShellProgram,
    facts: Facts,
    stop: CancellationToken,
    told: Told,
    process: Option<ShellProcess>,
    /// The command that was sent last, until its ending has been told.
    running: Option<Running>,
    quiet: QuietTimer,
    note: Option<&'static str>,
    oom_kills: OomKillCounter,
}

impl Session {
    pub(super) fn new(
        config: ShellConfig,
        program: ShellProgram,
        facts: Facts,
        told: Told,
        stop: CancellationToken,
    ) -> Self {
        Self {
            config,
            program,
            facts,
            stop,
            told,
            process: None,
            running: None,
            quiet: QuietTimer::default(),
            note: None,
            oom_kills: OomKillCounter::start(),
        }
    }

    /// Serves until the end.
    pub(super) async fn serve(mut self, mut requests: mpsc::Receiver<Request>) {
        // Early, so that the first command does not wait for it; an error shows when a command needs the shell.
        if let Err(error) = self.start_process() {
            tracing::debug!(error = &error as &dyn std::error::Error, "the shell does not start yet");
        }
        let stop = self.stop.clone();
        loop {
            let runs = self.running.as_ref().is_some_and(|running| running.ending().is_none());
            self.told.running.store(runs, Ordering::Relaxed);
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                request = requests.recv() => match request {
                    Some(request) => self.answer_request(request).await,
                    None => break,
                },
                event = next_event(&mut self.process) => self.on_event(event, &mut None),
            }
        }
        self.kill().await;
    }

    async fn answer_request(&mut self, mut request: Request) {
        let observation = match self.perform(&mut request).await {
            Ok(observation) => observation,
            Err(error) => error.into_observation(),
        };
        // Before the reply: whoever has it may come again at once, and must not find the turn taken.
        drop(request.turn);
        // Whoever asked may be gone; the command is not theirs alone, and what it says next goes to who asks next.
        let _ = request.reply.send(observation);
    }

    async fn perform(&mut self, request: &mut Request) -> Result<Observation, StartError> {
        let (action, begun) = (&request.action, Instant::now());
        let wants_new_command = !action.is_input && !action.command.is_empty();
        if wants_new_command && self.running.as_ref().is_some_and(|running| running.ending().is_some()) {
            // It ended while nobody listened, and nobody asked.
            self.running = None;
        }
        let ending = match &mut self.running {
            None if wants_new_command => self.run_command(request).await?,
            None => return Ok(answers::nothing_runs(action, &self.facts, &self.told.working_dir.borrow())),
            Some(running) => {
                running.catch_up(&mut request.output);
                match running.ending() {
                    Some(ending) => {
                        let ending = ending.clone();
                        if action.is_input && !action.command.is_empty() {
                            self.note = Some("It had ended before this could be typed; nothing was typed.");
                        }
                        ending
                    }
                    None if wants_new_command => Ending::NotExecuted,
                    None => {
                        self.send_input(action);
                        self.watch(request).await
                    }
                }
            }
        };
        let out_of_memory = self.is_out_of_memory(&ending, begun.elapsed());
        Ok(self.report(&request.action, &ending, out_of_memory))
    }

    /// Starts a command and watches it. A shell that ends before it has read the command is replaced once: nothing has been
    /// run.
    async fn run_command(&mut self, request: &mut Request) -> Result<Ending, StartError> {
        let ending = self.try_command(request).await?;
        if ending != Ending::NeverRead {
            return Ok(ending);
        }
        self.running = None;
        self.note = Some(NEW_SHELL);
        self.try_command(request).await
    }

    async fn try_command(&mut self, request: &mut Request) -> Result<Ending, StartError> {
        tokio::select! {
            biased;
            () = request.cancel.cancelled() => return Ok(Ending::NeverBegun),
            ready = self.make_ready() => ready?,
        }
        let Some(process) = &mut self.process else { return Err(StartError::Ended { status: -1 }) };
        let sent = process.send_command(&request.action.command, &request.environment);
        let baseline = sent.map_err(StartError::Command)?;
        self.running = Some(Running::new(baseline, answers::content_limit(&request.action)));
        Ok(self.watch(request).await)
    }

    fn send_input(&mut self, action: &RunAction) {
        let Some(process) = &mut self.process else { return };
        match answers::key(&action.command) {
            _ if action.command.is_empty() => {}
            Some(letter) => process.send_input(&[letter as u8 & 0x1f]),
            // Enter is CR on a terminal; it makes NL of it unless a program asked for the key itself.
            None => process.send_input(format!("{}\r", action.command).as_bytes()),
        }
    }

    /// Listens to the running command until the action has an ending.
    async fn watch(&mut self, request: &mut Request) -> Ending {
        let Request { action, timeout, output, cancel, .. } = request;
        let stop = self.stop.clone();
        let mut deadline = pin!(until(timeout.and_then(|timeout| Instant::now().checked_add(timeout))));
        let patience = self.config.no_change_timeout;
        let mut said_at = Instant::now();
        loop {
            if let Some(ending) = self.running.as_ref().and_then(Running::ending) {
                return ending.clone();
            }
            // In this order: a command that floods the terminal must not hold up its own end.
            tokio::select! {
                biased;
                () = stop.cancelled() => return self.kill().await,
                () = cancel.cancelled() => return self.cancel(output).await,
                () = &mut deadline => return Ending::TimedOut { after: timeout.unwrap_or_default() },
                event = next_event(&mut self.process) => {
                    said_at = Instant::now();
                    self.on_event(event, &mut Some(&mut **output));
                }
                () = self.quiet.passed(said_at, patience), if !action.blocking => {
                    return Ending::Quiet { after: patience };
                }
            }
        }
    }

    /// Takes what happened to the command it belongs to.
    fn on_event(&mut self, event: Event, output: &mut Listener<'_>) {
        let Self { process, running, told, note, .. } = self;
        match event {
            Event::Output(count) => {
                let Some(process) = process else { return };
                process.output(count, |bytes| {
                    if let Some(running) = running {
                        running.on_output(bytes, output);
                    }
                });
            }
            Event::Prompted { working_dir, ended, is_lost } => {
                match (ended, running) {
                    (Some(status), Some(running)) => running.end(Ending::Completed { status }),
                    (None, Some(running)) if is_lost => running.begin_anew(),
                    _ => {}
                }
                if working_dir.is_absolute() {
                    told.working_dir.send_if_modified(|known| {
                        let is_new = *known != working_dir;
                        *known = working_dir;
                        is_new
                    });
                }
            }
            Event::Exited { status, unread, is_silenced } => {
                *process = None;
                if is_silenced && running.is_some() {
                    *note = Some(SILENCED);
                }
                match running {
                    Some(running) if unread => running.end(Ending::NeverRead),
                    Some(running) => running.end(Ending::ShellEnded { status }),
                    None => *note = Some(NEW_SHELL),
                }
            }
        }
    }

    /// Whether the kernel has killed for lack of memory since this was asked last. Not asked after what was too short to
    /// take much, unless it was killed itself: short commands are many.
    fn is_out_of_memory(&mut self, ending: &Ending, lasted: Duration) -> bool {
        (lasted >= GREED_TIME || ending.is_a_kill()) && self.oom_kills.has_increased()
    }

    /// The observation, and the end of the command if that is what it tells.
    fn report(&mut self, action: &RunAction, ending: &Ending, out_of_memory: bool) -> Observation {
        let (folded, first) = self.running.as_mut().map_or_else(|| (Folded::default(), true), Running::take);
        if ending.is_final() {
            self.running = None;
        }
        let running = self.process.as_ref().filter(|_| !ending.is_final());
        if running.is_some_and(ShellProcess::is_replaced) {
            self.note.get_or_insert(REPLACED);
        }
        let answer = Answer {
            ending,
            folded,
            first,
            running: running.and_then(ShellProcess::foreground_group),
            working_dir: &self.told.working_dir.borrow(),
            note: self.note.take(),
            out_of_memory,
        };
        answers::answer(action, &self.facts, answer)
    }
}

async fn next_event(process: &mut Option<ShellProcess>) -> Event {
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
