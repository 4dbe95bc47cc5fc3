//! One shell on one terminal: starts it, sends commands, reads its output, types input, kills it.
//!
//! Knows nothing of actions. Ends when the process of the shell exits, which is reported once,
//! after the last of its output. Dropping it hangs up the terminal.

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
use super::channel::{Channel, ShellReport};
use super::command_variables::CommandVariables;
use super::cursor_query::{self, CursorQuery};
use super::marks::{MarkPiece, MarkReader};
use super::program::{ShellDialect, ShellProgram};
use super::prompt::{self, PLAIN_TERMINAL};
use super::pty::{FLOOD_BYTES, Pty};
use super::script::{SCRIPT_DESCRIPTOR, SCRIPT_LINE, create_script};
use super::startup_files::{self, StartupOutput};
use crate::os::children::{self, ChildList, OwnChild};
use crate::os::process_tree::SESSION_VARIABLE;

/// Buffer size. A terminal returns at most 4 KiB per read, but handling an event costs more than a
/// read.
const BUFFER_BYTES: usize = 32 * 1024;

/// Number of long reads after which other tasks run. Yielding after each would make a flood of
/// output a third slower.
const LONG_READS: u32 = 8;

/// Maximum number of reads after the exit of the shell or a report. More than a terminal buffers,
/// but bounded in case a background job writes continuously.
const LAST_READS: u32 = 64;

/// How long to wait for a visible prompt, or for a response, before the shell is queried. It
/// responds immediately, or never.
const ASK_DELAY: Duration = Duration::from_millis(100);

/// How often the terminal is checked while an interrupted command still has it.
const INTERRUPT_LOOKS: u32 = 20;

/// Maximum number of queries to a shell that shows its prompt without responding, before it is
/// killed. After [`QUICK_ASKS`], the delay between them increases, so that all take 10 s.
const MAX_ASKS: u32 = 14;

/// More than an interrupt and another delayed one require.
const QUICK_ASKS: u32 = 3;

/// How long the start-up files may take. The activation of a conda environment takes a second on an
/// idle machine.
const STARTUP_FILES_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a command is sent again to a shell that does not start it, before the shell is killed.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Time without progress after which a command counts as not read. A shell that waits for a command
/// reads it immediately.
const UNREAD_DELAY: Duration = Duration::from_secs(1);

/// The exit status of a command that was terminated by SIGINT.
const INTERRUPTED: i32 = 128 + Signal::SIGINT as i32;

/// ^C, ^\ and ^Z.
const INTERRUPT_KEYS: [u8; 3] = [0x03, 0x1c, 0x1a];

/// An event of the shell.
#[derive(Debug)]
pub(super) enum ShellEvent {
    /// This many bytes, or none, can be taken with [`ShellProcess::output`].
    Output(usize),
    /// The shell waits for a command, in this folder.
    Reported {
        working_dir: PathBuf,
        /// The exit status of the last command, if it has ended. All of its output came before.
        ended: Option<i32>,
        /// The last command was not started and is sent again. The output so far is not its own.
        is_lost: bool,
    },
    /// The shell has exited.
    Exited {
        /// Its exit status, or 128 plus the number of the signal.
        status: i32,
        /// It had not read the last command.
        unread: bool,
        /// It was killed because it did not report how its commands ended.
        is_silenced: bool,
    },
}

/// What the shell has done with the start-up files.
enum StartupFiles {
    /// Nothing yet. This command reads them.
    Unread { command: String },
    /// It reads them.
    BeingRead {
        output: StartupOutput,
        deadline: Instant,
    },
    /// It has read them, or there are none. `output` is what it has printed meanwhile, until it is
    /// taken.
    Read { output: Option<StartupOutput> },
}

/// What to do about a shell that may be at its prompt, where it does not read the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PromptCheck {
    /// Type the line. A command that has the terminal would read it; this many checks are left.
    Type { left: u32 },
    /// The line was typed. A shell at its prompt has responded by now.
    Answer,
    /// Type the line if the shell has stopped to read a command, of which this many bytes were left
    /// at the last check.
    Reading { unread: usize },
}

/// A command that was sent to the shell.
struct SentCommand {
    command: String,
    environment: CommandEnvironment,
    /// The one that it was sent in last.
    turn: u64,
    /// When the shell is killed if it has not started the command.
    deadline: Instant,
    /// The shell was interrupted since.
    is_interrupted: bool,
}

impl SentCommand {
    fn new(command: String, environment: CommandEnvironment, turn: u64) -> Self {
        Self {
            command,
            environment,
            turn,
            deadline: Instant::now() + START_TIMEOUT,
            is_interrupted: false,
        }
    }
}

/// A running shell.
pub(super) struct ShellProcess {
    pty: Pty,
    hung_up: bool,
    channel: Channel,
    dialect: ShellDialect,
    marks: MarkReader,
    child: OwnChild,
    /// The executable of the child. `None` if the system does not provide it.
    executable: Option<PathBuf>,
    children: ChildList,
    startup_files: StartupFiles,
    exited: Option<i32>,
    /// A report that follows the output before it.
    report: Option<ShellReport>,
    last_reads: u32,
    session: String,
    /// The running command.
    sent: Option<SentCommand>,
    /// The turn of the last command that has ended, as the shell last reported it.
    ended: Option<u64>,
    /// The kernel may still process typed input: interrupt a later command, or echo.
    is_unsettled: bool,
    /// Current output is not, or not certainly, the command's.
    is_muted: bool,
    /// The turn of a shell that waits for a command, unless it was interrupted since.
    ready: Option<u64>,
    /// The next check, and when. `None` if the shell is certainly not at its prompt.
    check: Option<(Instant, PromptCheck)>,
    /// Number of queries since the last report.
    asks: u32,
    is_silenced: bool,
    query: Option<CursorQuery>,
    /// Input that does not fit into the terminal yet. As long as the input of one action, whose
    /// size is limited.
    unsent: VecDeque<u8>,
    buffer: Box<[u8]>,
    /// Number of consecutive long reads.
    long_reads: u32,
}

impl ShellProcess {
    /// Starts `program` in `working_dir`, with the start-up files unless `skips_startup_files`.
    /// Does not wait for its first prompt.
    ///
    /// # Errors
    /// No terminal or process is available, or the program does not exist.
    pub(super) fn start(
        program: &ShellProgram,
        environment: &[(OsString, OsString)],
        working_dir: &Path,
        skips_startup_files: bool,
    ) -> io::Result<Self> {
        let dialect = program.dialect;
        let pty = Pty::open(dialect)?;
        let startup_files = match skips_startup_files {
            true => None,
            false => startup_files::command(dialect, environment, working_dir, pty.slave_path()),
        };
        let session = Uuid::now_v7().simple().to_string();
        let name = new_name();
        let script = create_script(&prompt::script(dialect, &name))?;
        let (mut channel, shell_end) = Channel::create()?;
        // A longer variable would keep the shell from starting.
        let fits =
            |(name, value): &&(OsString, OsString)| name.len() + value.len() <= MAX_VARIABLE_BYTES;
        let mut command = Command::new(&program.path);
        command
            .args(&program.arguments)
            .env_clear()
            .envs(
                environment
                    .iter()
                    .filter(fits)
                    .map(|(name, value)| (name, value)),
            )
            .env_remove("ENV")
            .env_remove("PROMPT_COMMAND")
            .envs(PLAIN_TERMINAL)
            .env(SESSION_VARIABLE, &session)
            .env("PS1", prompt::prompt_variable(&name))
            .env("PS2", OsStr::new(""))
            .current_dir(working_dir);
        let channel_end = (shell_end.as_fd(), prompt::channel_descriptor(dialect));
        pty.attach(
            &mut command,
            [(script.as_fd(), SCRIPT_DESCRIPTOR), channel_end],
        )?;
        let child = children::spawn(&mut command)?;
        channel.accept(child.pid());
        let mut process = Self {
            pty,
            hung_up: false,
            channel,
            dialect,
            marks: MarkReader::new(&name),
            children: ChildList::open(child.pid()),
            executable: executable(child.pid()),
            child,
            startup_files: match startup_files {
                Some(command) => StartupFiles::Unread { command },
                None => StartupFiles::Read { output: None },
            },
            exited: None,
            report: None,
            last_reads: 0,
            session,
            sent: None,
            ended: None,
            is_unsettled: false,
            is_muted: false,
            ready: None,
            check: None,
            asks: 0,
            is_silenced: false,
            query: None,
            unsent: VecDeque::new(),
            buffer: vec![0; BUFFER_BYTES].into(),
            long_reads: 0,
        };
        process.expect_prompt();
        Ok(process)
    }

    /// Waits for the next event, and writes pending input meanwhile. Cancel-safe.
    pub(super) async fn next_event(&mut self) -> ShellEvent {
        if self.long_reads >= LONG_READS {
            self.long_reads = 0;
            // Tokio would only force a yield after 128 reads, and other tasks of this thread would
            // wait for that.
            yield_now().await;
        }
        loop {
            if let Some(event) = self.waiting_event() {
                return event;
            }
            tokio::select! {
                report = self.channel.receive(), if !self.channel.is_closed() => {
                    self.report = report;
                    if self.report.is_none() && self.reads_startup_files() {
                        // A start-up file has ended the shell or replaced it by another program,
                        // which would only hang.
                        baseline::send(self.child.pid(), Signal::SIGKILL);
                    }
                }
                read = self.pty.read(&mut self.buffer), if !self.hung_up => match read {
                    Ok(0) | Err(_) => self.hung_up = true,
                    Ok(count) => {
                        self.long_reads = if count >= FLOOD_BYTES { self.long_reads + 1 } else { 0 };
                        return ShellEvent::Output(count);
                    }
                },
                written = self.pty.write(self.unsent.as_slices().0), if !self.unsent.is_empty() => match written {
                    Ok(count) => drop(self.unsent.drain(..count)),
                    Err(_) => self.unsent.clear(),
                },
                status = self.child.child.wait(), if self.exited.is_none() => {
                    self.exited = Some(status.map_or(-1, exit_code));
                }
                check = due(self.check) => {
                    self.on_check(check);
                    if self.is_ready() {
                        return ShellEvent::Output(0);
                    }
                }
            }
        }
    }

    /// Returns a pending report or exit, after the output that was written before it. That output
    /// is already readable when the report or exit is seen.
    fn waiting_event(&mut self) -> Option<ShellEvent> {
        if self.report.is_none() && self.exited.is_some() {
            // The last report.
            self.report = self.channel.receive_now();
        }
        if self.report.is_none() && self.exited.is_none() {
            return None;
        }
        if self.last_reads < LAST_READS {
            self.last_reads += 1;
            match self.pty.read_now(&mut self.buffer) {
                0 => {}
                count => return Some(ShellEvent::Output(count)),
            }
        }
        self.last_reads = 0;
        match (self.report.take(), self.exited) {
            (Some(report), _) => Some(self.on_report(report)),
            (None, Some(status)) => {
                let (unread, is_silenced) = (self.channel.is_unread(), self.is_silenced);
                Some(ShellEvent::Exited {
                    status,
                    unread,
                    is_silenced,
                })
            }
            (None, None) => None,
        }
    }

    fn on_report(&mut self, report: ShellReport) -> ShellEvent {
        self.asks = 0;
        let sent = self.sent.take();
        let has_run = sent
            .as_ref()
            .is_some_and(|sent| report.turn <= sent.turn || report.ended != self.ended);
        let ended = match &sent {
            Some(_) if has_run => Some(report.status),
            Some(sent) if sent.is_interrupted => Some(INTERRUPTED),
            _ => None,
        };
        self.sent = sent.filter(|_| ended.is_none());
        self.ended = report.ended;
        let is_lost = self.sent.is_some();
        if ended.is_some() && report.needs_prompt {
            self.channel
                .send(prompt::leave_line(report.turn).as_bytes());
            self.expect_prompt();
        } else {
            if let StartupFiles::BeingRead { output, .. } = &mut self.startup_files
                && !is_lost
            {
                let output = Some(std::mem::take(output));
                self.startup_files = StartupFiles::Read { output };
            }
            self.on_ready(report.turn);
        }
        ShellEvent::Reported {
            working_dir: OsString::from_vec(report.working_dir).into(),
            ended,
            is_lost,
        }
    }

    fn on_ready(&mut self, turn: u64) {
        self.ready = Some(turn);
        self.check = None;
        match self.sent.take() {
            Some(sent) if sent.deadline < Instant::now() => {
                self.sent = Some(sent);
                self.silence();
            }
            Some(sent) => self.send(SentCommand { turn, ..sent }),
            None => self.read_startup_files(),
        }
    }

    /// Makes a ready shell read the start-up files, if it has not.
    fn read_startup_files(&mut self) {
        let (Some(turn), StartupFiles::Unread { command }) = (self.ready, &mut self.startup_files)
        else {
            return;
        };
        let command = std::mem::take(command);
        self.startup_files = StartupFiles::BeingRead {
            output: StartupOutput::default(),
            deadline: Instant::now() + STARTUP_FILES_TIMEOUT,
        };
        if std::mem::take(&mut self.is_unsettled) {
            self.pty.settle();
        }
        // An error means that the shell has exited, which is reported.
        _ = self.pty.reset();
        self.marks.reset();
        self.send(SentCommand::new(
            command,
            CommandEnvironment::default(),
            turn,
        ));
    }

    /// Returns when the shell must have read the start-up files. `None` if it is not reading them.
    pub(super) fn startup_deadline(&self) -> Option<Instant> {
        match &self.startup_files {
            StartupFiles::BeingRead { deadline, .. } => Some(*deadline),
            StartupFiles::Unread { .. } | StartupFiles::Read { .. } => None,
        }
    }

    /// Returns whether the shell is reading the start-up files.
    pub(super) fn reads_startup_files(&self) -> bool {
        self.startup_deadline().is_some()
    }

    /// Returns what the shell has printed while it read the start-up files, once.
    pub(super) fn take_startup_output(&mut self) -> Option<StartupOutput> {
        match &mut self.startup_files {
            StartupFiles::Read { output } => output.take(),
            StartupFiles::Unread { .. } | StartupFiles::BeingRead { .. } => None,
        }
    }

    /// Passes the output of the command among the last `count` bytes to `sink`.
    pub(super) fn output(&mut self, count: usize, mut sink: impl FnMut(&[u8])) {
        let Self {
            marks,
            buffer,
            dialect,
            query,
            is_muted,
            startup_files,
            ..
        } = self;
        let mut prompted = false;
        marks.feed(&buffer[..count], |piece| match piece {
            MarkPiece::Mark => {
                prompted = true;
                *query = (*dialect == ShellDialect::Ash).then(CursorQuery::default);
            }
            MarkPiece::Output(bytes) => {
                if let Some(query) = query {
                    query.feed(bytes);
                }
                if let StartupFiles::BeingRead { output, .. } = startup_files {
                    output.push(bytes);
                } else if !*is_muted {
                    sink(bytes);
                }
            }
        });
        if prompted || query.as_ref().is_some_and(CursorQuery::is_asked) {
            self.on_prompt();
        }
    }

    /// Handles what looks like the shell's prompt. While a command has the terminal, it is output
    /// of the command.
    fn on_prompt(&mut self) {
        if self.query.as_ref().is_some_and(|query| !query.is_asked()) {
            // Without a cursor query, the terminal is damaged.
            if !self.expects_prompt() {
                self.expect_prompt();
            }
        } else if self.sent.is_some() && !self.has_terminal() {
            // Output of the command.
        } else if self.channel.is_closed() {
            // The channel is closed by a program that has replaced the shell, which may print
            // anything.
            if self.executable.is_some() && self.executable == executable(self.child.pid()) {
                self.silence();
            }
        } else if self.asks < QUICK_ASKS {
            self.ask();
        } else if self.ready.is_some() {
            // Another process prints what looks like a prompt.
        } else if self.asks == MAX_ASKS {
            self.silence();
        } else if !self.expects_prompt() {
            self.check_after(ASK_DELAY * self.asks, PromptCheck::Type { left: 0 });
        }
    }

    /// Must be called after an interrupt, or a key that interrupts.
    pub(super) fn on_interrupt(&mut self) {
        if let Some(sent) = &mut self.sent {
            sent.is_interrupted = true;
        }
        self.expect_prompt();
    }

    /// Expects a prompt that may not be visible, as after `PS1=x` or `exec 2>file`.
    fn expect_prompt(&mut self) {
        self.check_after(
            ASK_DELAY,
            PromptCheck::Type {
                left: INTERRUPT_LOOKS,
            },
        );
    }

    fn expects_prompt(&self) -> bool {
        matches!(self.check, Some((_, PromptCheck::Type { .. })))
    }

    fn check_after(&mut self, delay: Duration, check: PromptCheck) {
        self.check = Some((Instant::now() + delay, check));
    }

    fn on_check(&mut self, check: PromptCheck) {
        self.check = None;
        // Input would reach the program that has replaced the shell.
        if self.channel.is_closed() {
            return;
        }
        match (check, self.ready) {
            (PromptCheck::Type { .. }, Some(_)) if self.asks < QUICK_ASKS => self.ask(),
            // It was not at its prompt.
            (_, Some(turn)) => self.on_ready(turn),
            // The line was read by a command.
            (PromptCheck::Answer, None) if self.sent.is_some() => self.is_muted = false,
            (PromptCheck::Answer, None) if self.asks == MAX_ASKS => self.silence(),
            (PromptCheck::Answer, None) => self.ask(),
            (PromptCheck::Type { left }, None) if self.sent.is_some() && !self.has_terminal() => {
                if let Some(left) = left.checked_sub(1) {
                    self.check_after(ASK_DELAY, PromptCheck::Type { left });
                }
            }
            (PromptCheck::Type { .. }, None) => self.ask(),
            (PromptCheck::Reading { unread }, None) => match self.channel.unread() {
                0 => {}
                left if left == unread && self.has_terminal() => self.ask(),
                unread => self.check_after(UNREAD_DELAY, PromptCheck::Reading { unread }),
            },
        }
    }

    fn has_terminal(&self) -> bool {
        self.foreground_group() == Some(self.child.pid())
    }

    /// Queries the shell, which responds if it is at its prompt.
    fn ask(&mut self) {
        self.asks = MAX_ASKS.min(self.asks + 1);
        self.is_muted |= self.sent.is_some();
        self.type_line();
        self.check_after(ASK_DELAY * self.asks, PromptCheck::Answer);
    }

    /// Kills a shell that cannot report how its commands end.
    fn silence(&mut self) {
        self.check = None;
        self.is_silenced = true;
        baseline::send(self.child.pid(), Signal::SIGKILL);
    }

    /// Types the line that runs the script. Other input is dropped, because it was for a command.
    fn type_line(&mut self) {
        self.unsent.clear();
        if self.pty.reset_without_echo().is_err() {
            return;
        }
        self.is_unsettled = true;
        if self.query.take().is_some_and(|query| query.is_asked()) {
            self.type_text(cursor_query::REPORT.as_bytes());
        }
        self.type_text(SCRIPT_LINE.as_bytes());
    }

    /// Returns whether a command can be sent. Earlier output is dropped.
    pub(super) fn make_ready(&mut self) -> bool {
        self.read_startup_files();
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
        self.ready.is_some()
            && self.check.is_none()
            && matches!(self.startup_files, StartupFiles::Read { .. })
    }

    /// Sends a command to a ready shell, with variables for this command only. Processes of the
    /// command are those that are not in the returned baseline.
    ///
    /// # Errors
    /// The terminal is closed.
    pub(super) fn send_command(
        &mut self,
        command: &str,
        environment: &CommandEnvironment,
    ) -> io::Result<Baseline> {
        let baseline = Baseline::capture(&self.children, &self.session);
        self.unsent.clear();
        self.pty.reset()?;
        if let Some(turn) = self.ready {
            self.marks.reset();
            self.send(SentCommand::new(
                command.to_owned(),
                environment.clone(),
                turn,
            ));
        }
        Ok(baseline)
    }

    fn send(&mut self, sent: SentCommand) {
        let variables = CommandVariables(&sent.environment);
        let line = prompt::command_line(&sent.command, variables, sent.turn);
        self.channel.send(line.as_bytes());
        self.sent = Some(sent);
        self.ready = None;
        self.is_muted = false;
        self.check_after(UNREAD_DELAY, PromptCheck::Reading { unread: usize::MAX });
        self.query = None;
    }

    /// Writes input for the running command.
    pub(super) fn send_input(&mut self, bytes: &[u8]) {
        if bytes.iter().any(|byte| INTERRUPT_KEYS.contains(byte)) {
            self.is_unsettled = true;
            self.on_interrupt();
        }
        self.type_text(bytes);
    }

    fn type_text(&mut self, bytes: &[u8]) {
        let sent = if self.unsent.is_empty() {
            self.pty.write_now(bytes)
        } else {
            0
        };
        self.unsent.extend(&bytes[sent..]);
    }

    /// Returns the process group in the foreground.
    pub(super) fn foreground_group(&self) -> Option<i32> {
        self.pty.foreground_group()
    }

    /// Returns whether another program has replaced the shell.
    pub(super) fn is_replaced(&self) -> bool {
        self.channel.is_closed() && self.exited.is_none()
    }

    /// Kills the shell only, and waits at most `timeout`. A shell in uninterruptible I/O is reaped
    /// later by the runtime.
    pub(super) async fn kill(mut self, timeout: Duration) {
        baseline::send(self.child.pid(), Signal::SIGKILL);
        let _ = tokio::time::timeout(timeout, self.child.child.wait()).await;
    }

    /// Kills the shell and all its descendants.
    pub(super) async fn kill_all(self, timeout: Duration) {
        let everything = Baseline::empty(self.child.pid(), &self.session);
        // A stopped shell starts no processes while its children die.
        baseline::send(self.child.pid(), Signal::SIGSTOP);
        everything.kill_new();
        self.kill(timeout).await;
        everything.kill_new();
    }
}

/// Returns a random name, so that a command does not print a mark by accident.
fn new_name() -> String {
    let (_, random) = Uuid::now_v7().as_u64_pair();
    format!("{:08x}", random & u64::from(u32::MAX))
}

/// Returns the executable of a process.
fn executable(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Completes when a check is due.
async fn due(check: Option<(Instant, PromptCheck)>) -> PromptCheck {
    match check {
        Some((at, check)) => {
            sleep_until(at).await;
            check
        }
        None => pending().await,
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(-1)
}
