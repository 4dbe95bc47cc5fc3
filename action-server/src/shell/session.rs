//! The session actor: one task that owns a shell and answers one action after the other.
//!
//! It never signals a command because of a timeout, and never runs two commands at once. Between actions it goes on
//! reading, so that nothing blocks on a full terminal. It ends when it is told to or when no handle is left, and kills
//! everything the shell started.

use std::future::pending;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use nix::sys::signal::Signal;
use protocol::Observation;
use protocol::action::RunAction;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::ShellConfig;
use super::answers::{self, Answer, Ending};
use super::facts::Facts;
use super::marks::{Mark, Piece};
use super::output::Folded;
use super::process_tree;
use super::program::ShellProgram;
use super::running::{Meaning, Running};
use super::shell_process::{Heard, Readiness, ShellProcess};
use super::start_error::StartError;

/// A shell without startup files needs milliseconds; on a machine that is this slow nothing works.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// How long a shell at its prompt may take to ask for its cursor: it does so at once, or never.
const QUERY_PATIENCE: Duration = Duration::from_millis(20);

/// How long a shell may take to come back to its prompt after everything it ran was killed.
const CANCEL_PATIENCE: Duration = Duration::from_secs(1);

/// After how long a cancel looks again for what was forked while it killed. Doubled each time: a shell that is
/// interrupted again and again never gets to its prompt.
const CANCEL_ROUND: Duration = Duration::from_millis(10);

/// How long a killed shell is waited for.
const KILL_PATIENCE: Duration = Duration::from_millis(500);

const NEW_SHELL: &str = "The shell had ended before this command, which ran in a new one.";

/// Where an action's raw output goes.
pub(super) type OutputSink = Box<dyn FnMut(&[u8]) + Send>;

/// One action, and where its observation goes.
pub(super) struct Request {
    pub(super) action: RunAction,
    pub(super) timeout: Option<Duration>,
    pub(super) output: OutputSink,
    pub(super) cancel: CancellationToken,
    pub(super) reply: oneshot::Sender<Observation>,
    /// Held until the action is answered: the next in the queue goes on when it is dropped.
    pub(super) turn: OwnedSemaphorePermit,
}

/// The actor's state.
pub(super) struct Session {
    config: ShellConfig,
    program: ShellProgram,
    facts: Facts,
    stop: CancellationToken,
    working_dir: watch::Sender<PathBuf>,
    process: Option<ShellProcess>,
    /// The command that was sent last, until its ending has been told.
    running: Option<Running>,
    note: Option<&'static str>,
}

impl Session {
    pub(super) fn new(
        config: ShellConfig,
        program: ShellProgram,
        facts: Facts,
        working_dir: watch::Sender<PathBuf>,
        stop: CancellationToken,
    ) -> Self {
        Self { config, program, facts, stop, working_dir, process: None, running: None, note: None }
    }

    /// Serves until the end.
    pub(super) async fn serve(mut self, mut requests: mpsc::Receiver<Request>) {
        // Early, so that the first command does not wait for it; an error shows when a command needs the shell.
        if let Err(error) = self.start_process() {
            tracing::debug!(error = &error as &dyn std::error::Error, "the shell does not start yet");
        }
        let stop = self.stop.clone();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                request = requests.recv() => match request {
                    Some(request) => self.answer_request(request).await,
                    None => break,
                },
                heard = hear(&mut self.process) => self.absorb(heard, &mut None),
            }
        }
        if let Some(process) = self.process.take() {
            process.kill_all(KILL_PATIENCE).await;
        }
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
        let action = &request.action;
        let wants_new_command = !action.is_input && !action.command.is_empty();
        if wants_new_command && self.running.as_ref().is_some_and(|running| running.ending().is_some()) {
            // It ended while nobody listened, and nobody asked.
            self.running = None;
        }
        let ending = match &mut self.running {
            None if wants_new_command => self.run_command(request).await?,
            None => return Ok(answers::nothing_runs(action, &self.facts, &self.working_dir.borrow())),
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
        Ok(self.report(&request.action, &ending))
    }

    /// Starts a command and watches it. A shell that ends before the command has begun (it had its input closed, say) is
    /// replaced once: nothing has been run.
    async fn run_command(&mut self, request: &mut Request) -> Result<Ending, StartError> {
        let ending = self.try_command(request).await?;
        let begun = self.running.as_ref().is_none_or(Running::has_begun);
        if begun || !matches!(ending, Ending::ShellEnded { .. }) {
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
        let (baseline, sequence) =
            process.send_command(&request.action.command).map_err(StartError::Script)?;
        self.running = Some(Running::new(sequence, baseline, answers::content_limit(&request.action)));
        Ok(self.watch(request).await)
    }

    /// A shell at its prompt.
    async fn make_ready(&mut self) -> Result<(), StartError> {
        let mut fresh = self.process.is_none();
        if fresh {
            self.start_process()?;
        }
        let stop = self.stop.clone();
        let mut patience = pin!(sleep(START_PATIENCE));
        loop {
            let readiness = self.process.as_ref().map_or(Readiness::Busy, ShellProcess::readiness);
            if readiness == Readiness::Ready {
                return Ok(());
            }
            tokio::select! {
                heard = hear(&mut self.process) => {
                    let exited = if let Heard::Exited(status) = heard { Some(status) } else { None };
                    self.absorb(heard, &mut None);
                    match exited {
                        Some(status) if fresh => return Err(StartError::Ended { status }),
                        Some(_) => {
                            self.start_process()?;
                            fresh = true;
                        }
                        None => {}
                    }
                }
                () = sleep(QUERY_PATIENCE), if readiness == Readiness::Hesitant => return Ok(()),
                () = &mut patience => return Err(StartError::NoPrompt(START_PATIENCE)),
                () = stop.cancelled() => return Err(StartError::Stopped),
            }
        }
    }

    fn start_process(&mut self) -> Result<(), StartError> {
        let here = self.working_dir.borrow().clone();
        // A command may have removed the folder it was in.
        let folders = [here.as_path(), self.config.working_dir.as_path(), "/".as_ref()];
        let folder = folders.into_iter().find(|folder| folder.is_dir()).unwrap_or("/".as_ref());
        let process =
            ShellProcess::start(&self.program, &self.config.environment, folder, &self.config.scratch_dir)
                .map_err(|source| StartError::Spawn { program: self.program.path.clone(), source })?;
        self.process = Some(process);
        Ok(())
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
        let quiet_after = Some(self.config.no_change_timeout).filter(|_| !action.blocking);
        let mut deadline = pin!(until(timeout.and_then(|timeout| Instant::now().checked_add(timeout))));
        let quiet_at = |now: Instant| quiet_after.and_then(|quiet| now.checked_add(quiet));
        let mut quiet = pin!(until(quiet_at(Instant::now())));
        let mut said_at = None;
        loop {
            if let Some(ending) = self.running.as_ref().and_then(Running::ending) {
                return ending.clone();
            }
            // In this order: a command that floods the terminal must not hold up its own end.
            tokio::select! {
                biased;
                () = stop.cancelled() => return self.cancel(output).await,
                () = cancel.cancelled() => return self.cancel(output).await,
                () = &mut deadline => return Ending::TimedOut { after: timeout.unwrap_or_default() },
                heard = hear(&mut self.process) => {
                    said_at = Some(Instant::now());
                    self.absorb(heard, &mut Some(&mut **output));
                }
                () = &mut quiet => match said_at.take() {
                    // One timer for all output, moved only when it fires: output comes far more often.
                    Some(said_at) => quiet.set(until(quiet_at(said_at))),
                    None => return Ending::Quiet { after: quiet_after.unwrap_or_default() },
                },
            }
        }
    }

    /// Takes what was heard to the command it belongs to.
    fn absorb(&mut self, heard: Heard, output: &mut Option<&mut dyn FnMut(&[u8])>) {
        match heard {
            Heard::Bytes(count) => self.absorb_bytes(count, output),
            Heard::Exited(status) => {
                self.process = None;
                match &mut self.running {
                    Some(running) => running.end(Ending::ShellEnded { status }),
                    None => self.note = Some(NEW_SHELL),
                }
            }
        }
    }

    fn absorb_bytes(&mut self, count: usize, output: &mut Option<&mut dyn FnMut(&[u8])>) {
        let Self { process: Some(process), running, working_dir, .. } = self else { return };
        let mut started = false;
        process.pieces(count, |piece| {
            let meaning = match running {
                Some(running) => running.hear(piece, output),
                None => idle_meaning(piece),
            };
            match meaning {
                Meaning::Prompted(folder) if folder.is_absolute() => drop(working_dir.send_replace(folder)),
                Meaning::Started => started = true,
                Meaning::Prompted(_) | Meaning::Said | Meaning::Nothing => {}
            }
        });
        if running.as_ref().is_some_and(|running| running.ending().is_some()) {
            process.forget_input();
        } else if started {
            process.command_started();
        }
    }

    /// Kills what the running command started, and the shell too if that does not bring it back to its prompt.
    async fn cancel(&mut self, output: &mut OutputSink) -> Ending {
        let give_up = Instant::now() + CANCEL_PATIENCE;
        let mut shell_lost = self.ignores_interrupt();
        let mut patience = CANCEL_ROUND;
        while !shell_lost && !self.has_ended() {
            self.kill_once();
            let round = give_up.min(Instant::now() + patience);
            patience *= 2;
            while !self.has_ended() {
                tokio::select! {
                    biased;
                    () = sleep_until(round) => break,
                    heard = hear(&mut self.process) => self.absorb(heard, &mut Some(&mut **output)),
                }
            }
            shell_lost = round == give_up && !self.has_ended();
        }
        shell_lost |= self.process.is_none();
        if shell_lost {
            if let Some(process) = self.process.take() {
                process.kill(KILL_PATIENCE).await;
            }
        }
        self.kill_stragglers(give_up);
        Ending::Cancelled { shell_lost }
    }

    fn has_ended(&self) -> bool {
        self.running.as_ref().is_none_or(|running| running.ending().is_some())
    }

    /// A shell that ignores SIGINT would go on with the rest of the script when what it waits for is killed.
    fn ignores_interrupt(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|running| process_tree::ignores_interrupt(running.baseline().shell()))
    }

    /// SIGINT first: it is what makes a shell give up the rest of its script, and it has it before it can notice that
    /// the process it waits for is dead.
    fn kill_once(&self) {
        let (Some(process), Some(running)) = (&self.process, &self.running) else { return };
        let shell = running.baseline().shell();
        process_tree::send(shell, Signal::SIGINT);
        if let Some(group) = process.foreground_group().filter(|&group| group != shell) {
            process_tree::send_to_group(group, Signal::SIGKILL);
        }
        running.baseline().kill_new();
    }

    /// What was forked while the last were killed. Bounded: a fork bomb may be quicker than we are.
    fn kill_stragglers(&self, give_up: Instant) {
        let Some(running) = &self.running else { return };
        while running.baseline().kill_new() && Instant::now() < give_up {}
    }

    /// The observation, and the end of the command if that is what it tells.
    fn report(&mut self, action: &RunAction, ending: &Ending) -> Observation {
        let (folded, first) = self.running.as_mut().map_or_else(|| (Folded::default(), true), Running::take);
        if ending.is_final() {
            self.running = None;
        }
        let group = self.process.as_ref().and_then(ShellProcess::foreground_group);
        let answer = Answer {
            ending,
            folded,
            first,
            running: group.filter(|_| !ending.is_final()),
            working_dir: &self.working_dir.borrow(),
            note: self.note.take(),
        };
        answers::answer(action, &self.facts, answer)
    }
}

/// Without a command only prompts mean anything.
fn idle_meaning(piece: Piece<'_>) -> Meaning {
    use std::os::unix::ffi::OsStringExt;
    match piece {
        Piece::Mark(Mark::End { working_dir, .. }) => {
            Meaning::Prompted(std::ffi::OsString::from_vec(working_dir).into())
        }
        Piece::Mark(Mark::Start { .. }) | Piece::Output(_) => Meaning::Nothing,
    }
}

async fn hear(process: &mut Option<ShellProcess>) -> Heard {
    match process {
        Some(process) => process.hear().await,
        None => pending().await,
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
