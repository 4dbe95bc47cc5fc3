//! One shell on one terminal: starting it, having it take commands, reading what it shows, typing to it, killing it.
//!
//! Knows nothing of actions and never decides anything. Ends when the shell's process ends, which is reported once, after
//! the last of its output; dropping it hangs up its terminal.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::future::pending;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::Signal;
use protocol::sandbox_api::{CommandEnvironment, MAX_VARIABLE_BYTES};
use tokio::process::Command;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::baseline::{self, Baseline};
use super::channel::{Channel, Report};
use super::cursor_query::{self, CursorQuery};
use super::loan::Loan;
use super::marks::{MarkReader, Piece};
use super::program::{Dialect, ShellProgram};
use super::prompt::{self, Frame, PLAIN_TERMINAL};
use super::pty::{FLOOD_BYTES, Pty};
use super::script::{SCRIPT_DESCRIPTOR, Script};
use crate::os::children::{self, ChildList, OwnChild};
use crate::os::process_tree::SESSION_VARIABLE;

/// What is read in one go. A terminal gives at most 4 KiB a read, and the way of each through here costs more than the read.
const BUFFER_BYTES: usize = 32 * 1024;

/// After so many reads of a flood others have their turn. After each, a flood would take a third longer.
const LONG_READS: u32 = 8;

/// Reads after the shell's exit or a report: more than a terminal can hold, but an end, should a background job flood it.
const LAST_READS: u32 = 64;

/// After how long without a visible prompt, or without an answer, the shell is asked: it answers immediately, or never.
const ASK_DELAY: Duration = Duration::from_millis(100);

/// How often that is looked at while a command that was interrupted still has the terminal.
const INTERRUPT_LOOKS: u32 = 20;

/// How often a shell is asked that comes to its prompt without an answer, before it is killed. After the first
/// [`QUICK_ASKS`] it is asked so much later each time that these take 10 s.
const MAX_ASKS: u32 = 14;

/// More than an interrupt and another that comes late take.
const QUICK_ASKS: u32 = 3;

/// How long a command is sent again to a shell that does not come to start it, before the shell is killed.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// After how long without progress a command that was sent is taken for unread. A shell that waits for one reads immediately.
const UNREAD_DELAY: Duration = Duration::from_secs(1);

/// The exit status of a command that SIGINT ended.
const INTERRUPTED: i32 = 128 + Signal::SIGINT as i32;

/// ^C, ^\ and ^Z.
const INTERRUPT_KEYS: [u8; 3] = [0x03, 0x1c, 0x1a];

/// What happened.
#[derive(Debug)]
pub(super) enum Event {
    /// So many bytes, perhaps none, to be had from [`ShellProcess::output`].
    Output(usize),
    /// The shell is or was at its prompt, in this folder.
    Prompted {
        working_dir: PathBuf,
        /// The exit status of the command that was sent last, if this is its end. All of its output came before.
        ended: Option<i32>,
        /// The command that was sent last has not begun, and is sent again: nothing that was shown is its output.
        is_lost: bool,
    },
    /// The shell is gone.
    Exited {
        /// Its exit status, 128 and the signal's number if it was killed.
        status: i32,
        /// It had not read the command that was sent last.
        unread: bool,
        /// It was killed because it did not report how its commands ended.
        is_silenced: bool,
    },
}

/// Whether the shell takes a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readiness {
    /// It runs one, or has not come to its prompt.
    Busy,
    /// The line that makes it ready was typed.
    Asked,
    /// It waits for a command, in this turn.
    Ready { turn: u64 },
    /// It did, but may have been interrupted since. The line was typed again, which a shell at its prompt answers.
    Doubtful { turn: u64 },
}

/// What the shell does if it does not stay silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    /// It answers the line that was typed.
    ForAnswer,
    /// It shows its prompt; so often that is still looked for while a command has the terminal.
    ForPrompt { looks: u32 },
    /// It reads what was sent, of which this was left.
    ToBeRead { unread: usize },
}

/// A command that was sent to the shell.
struct Sent {
    frame: Frame,
    /// The one that it was sent in last.
    turn: u64,
    /// When the shell is killed that has lost it again.
    deadline: Instant,
    /// The shell was interrupted since.
    is_interrupted: bool,
}

/// A running shell.
pub(super) struct ShellProcess {
    pty: Pty,
    hung_up: bool,
    channel: Channel,
    dialect: Dialect,
    /// Kept for the shell, which may read a file.
    script: Script,
    marks: MarkReader,
    child: OwnChild,
    /// The program that the child was started as, where the system tells.
    executable: Option<PathBuf>,
    children: ChildList,
    exited: Option<i32>,
    /// To be passed on after the output before it.
    report: Option<Report>,
    last_reads: u32,
    session: String,
    /// Of the session's marks.
    name: String,
    /// The command that runs.
    sent: Option<Sent>,
    /// Which command had ended last, in the shell's reports.
    ended: Option<u64>,
    /// Something was typed that the kernel may act on later: interrupt what runs then, or echo.
    is_unsettled: bool,
    /// What is shown now is not the command's, or not known to be.
    is_muted: bool,
    readiness: Readiness,
    /// What is waited for, and when that is over.
    ask_at: Option<(Instant, Waiting)>,
    /// How often it was asked since its last report.
    asks: u32,
    is_silenced: bool,
    /// What looks like its prompt was shown while `report`, which says that it is ready, was to be passed on: before or after it.
    is_prompted: bool,
    query: Option<CursorQuery>,
    /// Typed, but the terminal has no room yet. As long as the input of one action, whose size the server bounds.
    unsent: VecDeque<u8>,
    buffer: Box<[u8]>,
    /// How many reads in a row brought much.
    long_reads: u32,
}

impl ShellProcess {
    /// Starts `program` in `working_dir`. Its first prompt is still to come.
    ///
    /// # Errors
    /// No terminal, no program, or no process could be had.
    pub(super) fn start(
        program: &ShellProgram,
        environment: &[(OsString, OsString)],
        working_dir: &Path,
        scratch_dir: &Path,
    ) -> io::Result<Self> {
        let dialect = program.dialect;
        let pty = Pty::open(dialect)?;
        let session = Uuid::now_v7().simple().to_string();
        let name = new_name();
        let script = Script::create(&prompt::script(dialect, &name), scratch_dir, &session)?;
        let (mut channel, shell_end) = Channel::create()?;
        // One longer would keep the shell from starting at all.
        let fits = |(name, value): &&(OsString, OsString)| name.len() + value.len() <= MAX_VARIABLE_BYTES;
        let mut command = Command::new(&program.path);
        command
            .args(&program.arguments)
            .env_clear()
            .envs(environment.iter().filter(fits).map(|(name, value)| (name, value)))
            .env_remove("ENV")
            .env_remove("PROMPT_COMMAND")
            .envs(PLAIN_TERMINAL)
            .env(SESSION_VARIABLE, &session)
            .env("PS1", prompt::prompt_variable(&name))
            .env("PS2", OsStr::new(""))
            .current_dir(working_dir);
        let channel_end = (Some(shell_end.as_fd()), prompt::channel_descriptor(dialect));
        pty.attach(&mut command, [(script.shell_end(), SCRIPT_DESCRIPTOR), channel_end])?;
        let child = children::spawn(&mut command)?;
        channel.accept(child.pid());
        let mut process = Self {
            pty,
            hung_up: false,
            channel,
            dialect,
            script,
            marks: MarkReader::new(&name),
            children: ChildList::open(child.pid()),
            executable: executable(child.pid()),
            child,
            exited: None,
            report: None,
            last_reads: 0,
            session,
            name,
            sent: None,
            ended: None,
            is_unsettled: false,
            is_muted: false,
            readiness: Readiness::Busy,
            ask_at: None,
            asks: 0,
            is_silenced: false,
            is_prompted: false,
            query: None,
            unsent: VecDeque::new(),
            buffer: vec![0; BUFFER_BYTES].into(),
            long_reads: 0,
        };
        process.expect_prompt();
        Ok(process)
    }

    /// Waits for what happens next, and goes on typing and sending meanwhile. Cancel-safe.
    pub(super) async fn next_event(&mut self) -> Event {
        if self.long_reads >= LONG_READS {
            self.long_reads = 0;
            // The runtime would make us do so only after 128 reads, and all others of this thread wait for that.
            yield_now().await;
        }
        loop {
            if let Some(event) = self.waiting_event() {
                return event;
            }
            tokio::select! {
                report = self.channel.receive(), if !self.channel.is_closed() => self.report = report,
                read = self.pty.read(&mut self.buffer), if !self.hung_up => match read {
                    Ok(0) | Err(_) => self.hung_up = true,
                    Ok(count) => {
                        self.long_reads = if count >= FLOOD_BYTES { self.long_reads + 1 } else { 0 };
                        return Event::Output(count);
                    }
                },
                written = self.pty.write(self.unsent.as_slices().0), if !self.unsent.is_empty() => match written {
                    Ok(count) => drop(self.unsent.drain(..count)),
                    Err(_) => self.unsent.clear(),
                },
                status = self.child.child.wait(), if self.exited.is_none() => {
                    self.exited = Some(status.map_or(-1, exit_code));
                }
                waiting = silence(self.ask_at) => {
                    self.on_silence(waiting);
                    if self.is_ready() {
                        return Event::Output(0);
                    }
                }
            }
        }
    }

    /// A report or an exit that is known, after the output that came before it: what a process wrote to the terminal can be
    /// read before what it did then is seen.
    fn waiting_event(&mut self) -> Option<Event> {
        if self.report.is_none() && self.exited.is_some() {
            // Its last words.
            self.report = self.channel.receive_now();
        }
        if self.report.is_none() && self.exited.is_none() {
            return None;
        }
        if self.last_reads < LAST_READS {
            self.last_reads += 1;
            match self.pty.read_now(&mut self.buffer) {
                0 => {}
                count => return Some(Event::Output(count)),
            }
        }
        self.last_reads = 0;
        match (self.report.take(), self.exited) {
            (Some(report), _) => Some(self.on_report(report)),
            (None, Some(status)) => {
                let (unread, is_silenced) = (self.channel.is_unread(), self.is_silenced);
                Some(Event::Exited { status, unread, is_silenced })
            }
            (None, None) => None,
        }
    }

    fn on_report(&mut self, report: Report) -> Event {
        self.asks = 0;
        let mut ended = None;
        if let Some(sent) = &self.sent {
            let has_run = self.has_run(sent, &report);
            if has_run || report.is_ready && sent.is_interrupted {
                ended = Some(if has_run { report.status } else { INTERRUPTED });
                self.sent = None;
            }
        }
        self.ended = report.ended;
        let is_lost = report.is_ready && self.sent.is_some();
        if !report.is_ready {
            self.expect_prompt();
        } else if std::mem::take(&mut self.is_prompted) {
            self.readiness = Readiness::Ready { turn: report.turn };
            self.on_prompt();
        } else {
            self.on_ready(report.turn);
        }
        Event::Prompted { working_dir: OsString::from_vec(report.working_dir).into(), ended, is_lost }
    }

    /// Whether the command has run before this report. Commands can change the variables that a report is made of: they restore
    /// them (`declare -p >saved`) or unset them. So only a report as the script alone makes it says that the command has not:
    /// none runs twice.
    fn has_run(&self, sent: &Sent, report: &Report) -> bool {
        report.turn <= sent.turn || report.ended != self.ended
    }

    fn on_ready(&mut self, turn: u64) {
        self.readiness = Readiness::Ready { turn };
        self.ask_at = None;
        match self.sent.take() {
            Some(sent) if sent.deadline < Instant::now() => {
                self.sent = Some(sent);
                self.silence();
            }
            Some(Sent { frame, deadline, .. }) => self.send(frame, turn, deadline),
            None => {}
        }
    }

    /// The `count` bytes read last, as far as they are a command's output.
    pub(super) fn output(&mut self, count: usize, mut sink: impl FnMut(&[u8])) {
        let Self { marks, buffer, dialect, query, sent, is_muted, .. } = self;
        let mut prompted = false;
        marks.feed(&buffer[..count], |piece| match piece {
            Piece::Mark(b"") => {
                prompted = true;
                *query = (*dialect == Dialect::Ash).then(CursorQuery::default);
            }
            Piece::Mark(body) => {
                *is_muted |= sent.as_ref().is_some_and(|sent| sent.turn.to_string().as_bytes() == body);
            }
            Piece::Output(bytes) => {
                if let Some(query) = query {
                    query.feed(bytes);
                }
                if !*is_muted {
                    sink(bytes);
                }
            }
        });
        if prompted || query.as_ref().is_some_and(CursorQuery::is_asked) {
            self.on_prompt();
        }
    }

    /// Something that looks like the shell's prompt was shown. Where a command has the terminal it is the command's.
    fn on_prompt(&mut self) {
        if self.report.as_ref().is_some_and(|report| report.is_ready) {
            self.is_prompted = true;
        } else if self.query.as_ref().is_some_and(|query| !query.is_asked()) {
            // On a damaged terminal it does not ask for the cursor.
            self.doubt();
        } else if let Readiness::Ready { turn } | Readiness::Doubtful { turn } = self.readiness {
            // Others may show what looks like a prompt.
            self.ask_in_doubt(turn);
        } else if self.sent.is_some() && !self.has_terminal() {
            // The command's own.
        } else if self.channel.is_closed() {
            // What took its place by `exec` may show what it likes.
            if self.executable.is_some() && self.executable == executable(self.child.pid()) {
                self.silence();
            }
        } else if self.asks == MAX_ASKS {
            self.silence();
        } else if self.asks < QUICK_ASKS {
            self.ask();
        } else if !self.expects_prompt() {
            self.readiness = Readiness::Busy;
            self.ask_at = Some((Instant::now() + ASK_DELAY * self.asks, Waiting::ForPrompt { looks: 0 }));
        }
    }

    /// The shell was interrupted, or a key typed that interrupts it.
    pub(super) fn on_interrupt(&mut self) {
        if let Some(sent) = &mut self.sent {
            sent.is_interrupted = true;
        }
        self.expect_prompt();
    }

    /// The shell will come to its prompt, but may not show it: as after `PS1=x` or `exec 2>file`.
    fn expect_prompt(&mut self) {
        self.ask_at = Some((Instant::now() + ASK_DELAY, Waiting::ForPrompt { looks: INTERRUPT_LOOKS }));
    }

    fn expects_prompt(&self) -> bool {
        matches!(self.ask_at, Some((_, Waiting::ForPrompt { .. })))
    }

    fn on_silence(&mut self, waiting: Waiting) {
        self.ask_at = None;
        // What is typed would reach a program in the place of the shell.
        if self.is_ready() || self.channel.is_closed() {
            return;
        }
        if let Readiness::Doubtful { turn } = self.readiness {
            match waiting {
                Waiting::ForPrompt { .. } if self.asks < QUICK_ASKS => self.ask_in_doubt(turn),
                _ => self.on_ready(turn),
            }
            return;
        }
        match (waiting, &self.sent) {
            (Waiting::ForAnswer, None) if self.asks == MAX_ASKS => self.silence(),
            (Waiting::ForAnswer, None) => self.ask(),
            // The line was typed to a command.
            (Waiting::ForAnswer, Some(_)) => {
                self.readiness = Readiness::Busy;
                self.is_muted = false;
            }
            (Waiting::ForPrompt { looks }, Some(_)) if !self.has_terminal() => {
                self.ask_at = looks
                    .checked_sub(1)
                    .map(|looks| (Instant::now() + ASK_DELAY, Waiting::ForPrompt { looks }));
            }
            (Waiting::ForPrompt { .. }, _) => self.ask(),
            (Waiting::ToBeRead { .. }, None) => {}
            (Waiting::ToBeRead { unread }, Some(_)) => match self.channel.unread() {
                0 => {}
                left if left == unread && self.has_terminal() => self.ask(),
                unread => {
                    self.ask_at = Some((Instant::now() + UNREAD_DELAY, Waiting::ToBeRead { unread }));
                }
            },
        }
    }

    fn has_terminal(&self) -> bool {
        self.foreground_group() == Some(self.child.pid())
    }

    /// Has the shell that is at its prompt, if it is, say so.
    fn ask(&mut self) {
        self.asks = MAX_ASKS.min(self.asks + 1);
        self.readiness = Readiness::Asked;
        self.is_muted |= self.sent.is_some();
        self.type_line(ASK_DELAY * self.asks);
    }

    /// The shell may be about to show its prompt.
    fn doubt(&mut self) {
        if let Readiness::Ready { turn } = self.readiness {
            self.readiness = Readiness::Doubtful { turn };
        }
        if !self.expects_prompt() {
            self.expect_prompt();
        }
    }

    /// Has the shell that was ready say so if it is at its prompt.
    fn ask_in_doubt(&mut self, turn: u64) {
        if self.asks < QUICK_ASKS {
            self.asks += 1;
            self.readiness = Readiness::Doubtful { turn };
            self.type_line(ASK_DELAY);
        }
    }

    /// Kills a shell that cannot say how its commands end.
    fn silence(&mut self) {
        self.ask_at = None;
        self.is_silenced = true;
        baseline::send(self.child.pid(), Signal::SIGKILL);
    }

    /// Types the line that makes a shell at its prompt ready. Whatever else was typed is dropped first: it was for a command.
    fn type_line(&mut self, patience: Duration) {
        self.unsent.clear();
        self.ask_at = Some((Instant::now() + patience, Waiting::ForAnswer));
        if self.pty.reset_without_echo().is_err() {
            return;
        }
        self.is_unsettled = true;
        if self.query.take().is_some_and(|query| query.is_asked()) {
            self.type_text(cursor_query::REPORT.as_bytes());
        }
        let line = prompt::line(&self.script.path().to_string_lossy());
        self.type_text(line.as_bytes());
    }

    /// Whether a command can be sent. What was shown before is dropped.
    pub(super) fn make_ready(&mut self) -> bool {
        if self.is_ready() && std::mem::take(&mut self.is_unsettled) {
            self.pty.settle();
        }
        for _ in 0..LAST_READS {
            if !self.is_ready() {
                return false;
            }
            match self.pty.read_now(&mut self.buffer) {
                0 => break,
                count => self.output(count, |_| {}),
            }
        }
        self.is_ready()
    }

    fn is_ready(&self) -> bool {
        matches!(self.readiness, Readiness::Ready { .. })
    }

    /// Sends a command to a shell that is ready, which has `environment` for this command alone. What it starts is what is not
    /// in the returned baseline.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn send_command(
        &mut self,
        command: &str,
        environment: &CommandEnvironment,
    ) -> io::Result<Baseline> {
        let baseline = Baseline::take(&self.children, &self.session);
        self.unsent.clear();
        self.pty.reset()?;
        if let Readiness::Ready { turn } = self.readiness {
            self.marks.reset();
            self.send(Frame::new(command, Loan(environment)), turn, Instant::now() + START_TIMEOUT);
        }
        Ok(baseline)
    }

    fn send(&mut self, frame: Frame, turn: u64, deadline: Instant) {
        self.channel.send(frame.answering(&self.name, turn).as_bytes());
        self.sent = Some(Sent { frame, turn, deadline, is_interrupted: false });
        self.readiness = Readiness::Busy;
        self.is_muted = false;
        self.ask_at = Some((Instant::now() + UNREAD_DELAY, Waiting::ToBeRead { unread: usize::MAX }));
        self.query = None;
    }

    /// Types for the running command.
    pub(super) fn send_input(&mut self, bytes: &[u8]) {
        if bytes.iter().any(|byte| INTERRUPT_KEYS.contains(byte)) {
            self.is_unsettled = true;
            self.on_interrupt();
        }
        self.type_text(bytes);
    }

    fn type_text(&mut self, bytes: &[u8]) {
        let sent = if self.unsent.is_empty() { self.pty.write_now(bytes) } else { 0 };
        self.unsent.extend(&bytes[sent..]);
    }

    /// The process group that has the terminal.
    pub(super) fn foreground_group(&self) -> Option<i32> {
        self.pty.foreground_group()
    }

    /// Whether another program runs in the shell's place.
    pub(super) fn is_replaced(&self) -> bool {
        self.channel.is_closed() && self.exited.is_none()
    }

    /// Kills the shell alone, and waits for its end no longer than `patience`: one that hangs in the kernel is left to
    /// the runtime to reap.
    pub(super) async fn kill(mut self, patience: Duration) {
        baseline::send(self.child.pid(), Signal::SIGKILL);
        let _ = tokio::time::timeout(patience, self.child.child.wait()).await;
    }

    /// Kills the shell and everything that ever came of it.
    pub(super) async fn kill_all(self, patience: Duration) {
        let everything = Baseline::nothing(self.child.pid(), &self.session);
        // Stopped, it starts nothing new while its children die.
        baseline::send(self.child.pid(), Signal::SIGSTOP);
        everything.kill_new();
        self.kill(patience).await;
        everything.kill_new();
    }
}

/// A part of an id that is random: what a command prints by accident is no mark. Short, for the shell reads each byte alone.
fn new_name() -> String {
    let (_, random) = Uuid::now_v7().as_u64_pair();
    format!("{:08x}", random & u64::from(u32::MAX))
}

/// The program that a process runs.
fn executable(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// What was waited for in vain until the time was over.
async fn silence(ask_at: Option<(Instant, Waiting)>) -> Waiting {
    match ask_at {
        Some((at, waiting)) => {
            sleep_until(at).await;
            waiting
        }
        None => pending().await,
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}
