//! One shell on one terminal: starting it, having it take commands, reading what it shows, typing to it, killing it.
//!
//! Knows nothing of actions and never decides anything. Ends when the shell's process ends, which is reported once, after
//! the last of its output; dropping it hangs up its terminal.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
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

use super::channel::{Channel, Report};
use super::children::{self, ChildList, OwnChild};
use super::cursor_query::{self, CursorQuery};
use super::loan::Loan;
use super::marks::{MarkReader, Piece};
use super::process_tree::{self, Baseline};
use super::program::{Dialect, ShellProgram};
use super::prompt::{self, PLAIN_TERMINAL, SESSION_VARIABLE};
use super::pty::{FLOOD_BYTES, Pty};
use super::script::{SCRIPT_DESCRIPTOR, Script};

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

/// ^C, ^\ and ^Z.
const INTERRUPT_KEYS: [u8; 3] = [0x03, 0x1c, 0x1a];

/// What happened.
#[derive(Debug)]
pub(super) enum Event {
    /// So many bytes, to be had from [`ShellProcess::output`].
    Output(usize),
    /// The shell is or was at its prompt, in this folder.
    Prompted {
        working_dir: PathBuf,
        /// The exit status of the command that was sent last, if this is its end. All of its output came before.
        ended: Option<i32>,
    },
    /// The shell is gone.
    Exited {
        /// Its exit status, 128 and the signal's number if it was killed.
        status: i32,
        /// It had not read the command that was sent last.
        unread: bool,
    },
}

/// Whether the shell takes a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readiness {
    /// It runs one, or has not come to its prompt.
    Busy,
    /// The line that makes it ready was typed.
    Asked,
    /// It waits for a command.
    Ready,
    /// It did, but may have been interrupted since. The line was typed again, and a [probe](prompt::PROBE) sent, which the
    /// shell reads in any case.
    Doubtful,
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
    children: ChildList,
    exited: Option<i32>,
    /// To be passed on after the output before it.
    report: Option<Report>,
    last_reads: u32,
    session: String,
    /// Of the session's marks.
    name: String,
    /// Of the command that runs.
    nonce: Option<String>,
    /// Of the probe that was sent.
    probe: Option<String>,
    /// Something was done to the shell that interrupts it, perhaps only after it is ready.
    is_interrupted: bool,
    /// What is shown now is not the command's, or not known to be.
    is_muted: bool,
    readiness: Readiness,
    /// When the shell is asked without a visible prompt, and how often that is still tried.
    ask_at: Option<(Instant, u32)>,
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
        let name = new_nonce();
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
            children: ChildList::of(child.pid()),
            child,
            exited: None,
            report: None,
            last_reads: 0,
            session,
            name,
            nonce: None,
            probe: None,
            is_interrupted: false,
            is_muted: false,
            readiness: Readiness::Busy,
            ask_at: None,
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
            let ask_at = self.ask_at.map(|(at, _)| at);
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
                () = sleep_until(ask_at.unwrap_or_else(Instant::now)), if ask_at.is_some() => self.on_silence(),
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
            (None, Some(status)) => Some(Event::Exited { status, unread: self.channel.is_unread() }),
            (None, None) => None,
        }
    }

    fn on_report(&mut self, report: Report) -> Event {
        let is_of = |nonce: &Option<String>| nonce.as_ref() == Some(&report.nonce);
        let is_end = is_of(&self.nonce);
        if is_end {
            self.nonce = None;
        }
        if is_of(&self.probe) {
            self.probe = None;
            self.readiness = Readiness::Busy;
        }
        match report.is_ready {
            false => self.expect_prompt(),
            // It is about to read what was sent.
            true if self.probe.is_some() || self.nonce.is_some() => {}
            true if std::mem::take(&mut self.is_interrupted) => self.probe(),
            true => {
                self.readiness = Readiness::Ready;
                self.ask_at = None;
            }
        }
        let working_dir = OsString::from_vec(report.working_dir).into();
        Event::Prompted { working_dir, ended: is_end.then_some(report.status) }
    }

    /// The `count` bytes read last, as far as they are a command's output.
    pub(super) fn output(&mut self, count: usize, mut sink: impl FnMut(&[u8])) {
        let Self { marks, buffer, dialect, query, nonce, is_muted, .. } = self;
        let mut prompted = false;
        marks.feed(&buffer[..count], |piece| match piece {
            Piece::Mark(b"") => {
                prompted = true;
                *query = (*dialect == Dialect::Ash).then(CursorQuery::default);
            }
            Piece::Mark(body) => *is_muted |= nonce.as_ref().is_some_and(|nonce| nonce.as_bytes() == body),
            Piece::Output(bytes) => {
                if let Some(query) = query {
                    query.feed(bytes);
                }
                if !*is_muted {
                    sink(bytes);
                }
            }
        });
        match query {
            Some(query) if query.is_asked() => self.on_prompt(),
            // On a damaged terminal it does not ask for the cursor.
            Some(_) if prompted => self.expect_prompt(),
            None if prompted => self.on_prompt(),
            Some(_) | None => {}
        }
    }

    /// Something that looks like the shell's prompt was shown. Where a command has the terminal it is the command's.
    fn on_prompt(&mut self) {
        match self.readiness {
            Readiness::Ready => self.probe(),
            Readiness::Doubtful => self.type_line(),
            Readiness::Busy | Readiness::Asked if self.nonce.is_none() || self.has_terminal() => self.ask(),
            Readiness::Busy | Readiness::Asked => {}
        }
    }

    /// The shell was interrupted, or a key typed that interrupts it.
    pub(super) fn on_interrupt(&mut self) {
        self.is_interrupted = true;
        self.expect_prompt();
    }

    /// The shell will come to its prompt, but may not show it: as after `PS1=x` or `exec 2>file`.
    fn expect_prompt(&mut self) {
        self.ask_at = Some((Instant::now() + ASK_DELAY, INTERRUPT_LOOKS));
    }

    fn on_silence(&mut self) {
        let left = self.ask_at.take().map_or(0, |(_, left)| left);
        match self.readiness {
            Readiness::Ready => {}
            Readiness::Doubtful => self.type_line(),
            // No answer: the line was typed to a command.
            Readiness::Asked if self.nonce.is_some() => {
                self.readiness = Readiness::Busy;
                self.is_muted = false;
            }
            Readiness::Busy if self.nonce.is_some() && !self.has_terminal() => {
                self.ask_at = left.checked_sub(1).map(|left| (Instant::now() + ASK_DELAY, left));
            }
            Readiness::Busy | Readiness::Asked => self.ask(),
        }
    }

    fn has_terminal(&self) -> bool {
        self.foreground_group() == Some(self.child.pid())
    }

    /// Has the shell that is at its prompt, if it is, say so.
    fn ask(&mut self) {
        self.readiness = Readiness::Asked;
        self.is_muted |= self.nonce.is_some();
        self.type_line();
    }

    /// Has the shell say that it reads what is sent, whether it is at its prompt or ready.
    fn probe(&mut self) {
        let nonce = new_nonce();
        let nothing = CommandEnvironment::default();
        self.channel.send(prompt::frame(&self.name, &nonce, prompt::PROBE, Loan(&nothing)).as_bytes());
        self.probe = Some(nonce);
        self.readiness = Readiness::Doubtful;
        self.type_line();
    }

    /// Types the line that makes a shell at its prompt ready. Whatever else was typed is dropped first: it was for a command.
    fn type_line(&mut self) {
        self.unsent.clear();
        self.ask_at = Some((Instant::now() + ASK_DELAY, 0));
        if self.pty.reset().is_err() {
            return;
        }
        if self.query.take().is_some_and(|query| query.is_asked()) {
            self.type_text(cursor_query::REPORT.as_bytes());
        }
        let line = prompt::line(&self.script.path().to_string_lossy());
        self.type_text(line.as_bytes());
    }

    /// Whether a command can be sent. What was shown before is dropped.
    pub(super) fn make_ready(&mut self) -> bool {
        for _ in 0..LAST_READS {
            if self.readiness != Readiness::Ready {
                return false;
            }
            match self.pty.read_now(&mut self.buffer) {
                0 => break,
                count => self.output(count, |_| {}),
            }
        }
        self.readiness == Readiness::Ready
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
        let nonce = new_nonce();
        self.channel.send(prompt::frame(&self.name, &nonce, command, Loan(environment)).as_bytes());
        self.nonce = Some(nonce);
        self.readiness = Readiness::Busy;
        self.is_muted = false;
        self.ask_at = None;
        self.query = None;
        Ok(baseline)
    }

    /// Types for the running command.
    pub(super) fn send_input(&mut self, bytes: &[u8]) {
        if bytes.iter().any(|byte| INTERRUPT_KEYS.contains(byte)) {
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
        process_tree::send(self.child.pid(), Signal::SIGKILL);
        let _ = tokio::time::timeout(patience, self.child.child.wait()).await;
    }

    /// Kills the shell and everything that ever came of it.
    pub(super) async fn kill_all(self, patience: Duration) {
        let everything = Baseline::nothing(self.child.pid(), &self.session);
        // Stopped, it starts nothing new while its children die.
        process_tree::send(self.child.pid(), Signal::SIGSTOP);
        everything.kill_new();
        self.kill(patience).await;
        everything.kill_new();
    }
}

/// The random half of an id: the shell reads each byte alone.
fn new_nonce() -> String {
    format!("{:016x}", Uuid::now_v7().as_u64_pair().1)
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}
