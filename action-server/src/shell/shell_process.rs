//! One shell on one terminal: starting it, hearing it, typing to it, killing it.
//!
//! Knows nothing of actions and never decides anything. Ends when the shell's process ends, which is heard once, after the
//! last of its output; dropping it hangs up its terminal.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::sandbox_api::{CommandEnvironment, MAX_VARIABLE_BYTES};
use tokio::process::Command;
use tokio::task::yield_now;
use uuid::Uuid;

use super::children::{self, ChildList, OwnChild};
use super::cursor_query::{self, CursorQuery};
use super::loan::Loan;
use super::marks::{Mark, MarkReader, Piece};
use super::process_tree::{self, Baseline};
use super::program::{Dialect, ShellProgram};
use super::prompt::{Care, PLAIN_TERMINAL, Prompt, SESSION_VARIABLE};
use super::pty::{FLOOD_BYTES, Pty};
use super::script::Script;

/// What is heard at once. A terminal gives at most 4 KiB a read, and the way of each through here costs more than the read.
const BUFFER_BYTES: usize = 32 * 1024;

/// After so many reads of a flood others have their turn. After each, a flood would take a third longer.
const LONG_READS: u32 = 8;

/// Reads after the shell's exit: more than a terminal can hold, but an end, should a background job flood it.
const LAST_READS: u32 = 64;

/// How long after a command was typed its answer is looked for again and again: what the shell does by itself takes less,
/// and to sleep and be woken takes as long once more. Measured: a quarter of an `echo`; half of this time, a fifth.
const WAKEFUL_TIME: Duration = Duration::from_micros(100);

/// How long it holds what was seen beside a prompt: the longer, the likelier is that a number of a process that has ended
/// was given to one of the command's.
const BESIDE_LIFE: Duration = Duration::from_secs(1);

/// ^Z.
const STOP_KEY: u8 = 0x1a;

/// What was heard.
#[derive(Debug)]
pub(super) enum Heard {
    /// So many bytes, to be had from [`ShellProcess::pieces`].
    Bytes(usize),
    /// The shell is gone; its exit status, 128 and the signal's number if it was killed.
    Exited(i32),
}

/// Whether a shell takes commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    /// It has not come to its prompt.
    Busy,
    /// It is at its prompt and about to ask for the cursor, unless its terminal is damaged; or it is about to show the prompt
    /// that was announced, unless that cannot be seen.
    Hesitant,
    /// It waits for a command.
    Ready,
}

/// A running shell.
pub(super) struct ShellProcess {
    pty: Pty,
    hung_up: bool,
    script: Script,
    prompt: Prompt,
    marks: MarkReader,
    child: OwnChild,
    /// Of the shell that was at the prompt last: this one, or one that was started in it.
    children: ChildList,
    exited: Option<i32>,
    last_reads: u32,
    session: String,
    /// How many commands were sent.
    sent: u64,
    /// When the last was typed.
    sent_at: Option<Instant>,
    /// The names of what was lent to the last.
    lent: Vec<String>,
    /// The script holds what was lent, and has been read.
    script_is_done: bool,
    at_prompt: bool,
    /// The prompt was announced, and is still to be seen. A command that is typed before that cannot be told from what comes
    /// with it, and would have to be guarded.
    prompt_is_due: bool,
    /// The next command is to be guarded, because of what was done to the shell.
    distrusted: bool,
    /// The same, because the shell says so with its last prompt.
    disturbed: bool,
    /// The same, because a command may have been stopped: of a job like that the shell tells late, and not by `$!`.
    may_have_stopped: bool,
    /// Nothing has been run in it that could have changed the prompt, or defined what could.
    untouched: bool,
    /// What runs beside the prompt, if that was looked at lately.
    beside: Option<(Instant, Baseline)>,
    query: CursorQuery,
    /// Typed, but the terminal has no room yet. As long as the input of one action, whose size the server bounds.
    unsent: VecDeque<u8>,
    buffer: Box<[u8]>,
    /// How many reads in a row brought much.
    long_reads: u32,
}

impl ShellProcess {
    /// Starts `program` in `working_dir`. Its first prompt is still to be heard.
    ///
    /// # Errors
    /// No terminal, no program, or no process could be had.
    pub(super) fn start(
        program: &ShellProgram,
        environment: &[(OsString, OsString)],
        working_dir: &Path,
        scratch_dir: &Path,
    ) -> io::Result<Self> {
        let pty = Pty::open(program.dialect)?;
        let session = Uuid::now_v7().simple().to_string();
        let prompt = Prompt::new(program.dialect, Uuid::now_v7().simple().to_string(), pty.slave_path());
        let script = Script::create(scratch_dir, &session)?;
        // One longer would keep the shell from starting at all.
        let fits = |(name, value): &&(OsString, OsString)| name.len() + value.len() <= MAX_VARIABLE_BYTES;
        let mut command = Command::new(&program.path);
        if program.dialect == Dialect::Bash {
            // Something has to be run before the first `PROMPT_COMMAND`: else bash never sets `PIPESTATUS`.
            script.write(":\n")?;
            command.arg("--rcfile").arg(script.path());
        }
        command
            .args(&program.arguments)
            .env_clear()
            .envs(environment.iter().filter(fits).map(|(name, value)| (name, value)))
            .env_remove("ENV")
            .envs(PLAIN_TERMINAL)
            .env(SESSION_VARIABLE, &session)
            .envs(prompt.environment())
            .current_dir(working_dir);
        pty.attach(&mut command, Some(&script))?;
        let child = children::spawn(&mut command)?;
        let marks = MarkReader::new(prompt.nonce());
        Ok(Self {
            pty,
            hung_up: false,
            script,
            prompt,
            marks,
            children: ChildList::of(child.pid()),
            child,
            exited: None,
            last_reads: 0,
            session,
            sent: 0,
            sent_at: None,
            lent: Vec::new(),
            script_is_done: false,
            at_prompt: false,
            distrusted: false,
            untouched: !environment
                .iter()
                .any(|(name, _)| name.as_encoded_bytes().starts_with(b"BASH_FUNC_")),
            prompt_is_due: false,
            disturbed: false,
            may_have_stopped: false,
            beside: None,
            query: CursorQuery::default(),
            unsent: VecDeque::new(),
            buffer: vec![0; BUFFER_BYTES].into(),
            long_reads: 0,
        })
    }

    /// Waits for what comes next, and goes on typing meanwhile. Cancel-safe.
    pub(super) async fn hear(&mut self) -> Heard {
        if self.long_reads >= LONG_READS {
            self.long_reads = 0;
            // The runtime would make us do so only after 128 reads, and all others of this thread wait for that.
            yield_now().await;
        }
        while self.sent_at.is_some_and(|at| at.elapsed() < WAKEFUL_TIME) {
            match self.pty.read_now(&mut self.buffer) {
                // The shell may need this very core.
                0 => std::thread::yield_now(),
                count => return Heard::Bytes(count),
            }
            yield_now().await;
        }
        loop {
            if let Some(status) = self.exited {
                return self.hear_last(status);
            }
            tokio::select! {
                read = self.pty.read(&mut self.buffer), if !self.hung_up => match read {
                    Ok(0) | Err(_) => self.hung_up = true,
                    Ok(count) => {
                        self.long_reads = if count >= FLOOD_BYTES { self.long_reads + 1 } else { 0 };
                        return Heard::Bytes(count);
                    }
                },
                written = self.pty.write(self.unsent.as_slices().0), if !self.unsent.is_empty() => match written {
                    Ok(count) => drop(self.unsent.drain(..count)),
                    Err(_) => self.unsent.clear(),
                },
                status = self.child.child.wait() => self.exited = Some(status.map_or(-1, exit_code)),
            }
        }
    }

    fn hear_last(&mut self, status: i32) -> Heard {
        if self.last_reads == LAST_READS {
            return Heard::Exited(status);
        }
        self.last_reads += 1;
        match self.pty.read_now(&mut self.buffer) {
            0 => Heard::Exited(status),
            count => Heard::Bytes(count),
        }
    }

    /// The `count` bytes heard last, told apart.
    pub(super) fn pieces(&mut self, count: usize, mut sink: impl FnMut(Piece<'_>)) {
        let is_bash = self.prompt.dialect() == Dialect::Bash;
        let Self {
            marks,
            buffer,
            at_prompt,
            prompt_is_due,
            disturbed,
            query,
            script,
            sent,
            lent,
            script_is_done,
            ..
        } = self;
        marks.feed(&buffer[..count], |piece| {
            match &piece {
                Piece::Mark(Mark::End { guarded: asked, early, .. }) => {
                    *at_prompt = true;
                    *prompt_is_due = is_bash && *early;
                    *disturbed = *asked;
                    query.reset();
                    if std::mem::take(script_is_done) {
                        script.wipe();
                    }
                }
                Piece::Output(bytes) if *at_prompt => query.feed(bytes),
                Piece::Mark(Mark::Start { number }) => *script_is_done = number == sent && !lent.is_empty(),
                Piece::Output(_) => {}
            }
            sink(piece);
        });
    }

    /// Whether a command can be sent.
    pub(super) fn readiness(&self) -> Readiness {
        match (self.at_prompt, self.prompt.dialect()) {
            (false, _) => Readiness::Busy,
            (true, Dialect::Ash) if !self.query.is_asked() => Readiness::Hesitant,
            (true, Dialect::Bash) if self.prompt_is_due => Readiness::Hesitant,
            (true, _) => Readiness::Ready,
        }
    }

    /// Sends a command to the shell that is at its prompt, which has `environment` for this command alone. What it starts is
    /// what is not in the returned baseline; its output begins at the start mark with the returned number.
    ///
    /// # Errors
    /// The script could not be written, or the terminal is gone.
    pub(super) fn send_command(
        &mut self,
        command: &str,
        environment: &CommandEnvironment,
    ) -> io::Result<(Baseline, Option<u64>)> {
        self.sent += 1;
        let owed = std::mem::replace(&mut self.lent, environment.0.keys().cloned().collect());
        let loan = Loan { owed: &owed, lent: environment };
        let seen = self.beside.take().filter(|(at, _)| at.elapsed() < BESIDE_LIFE);
        let baseline = seen.map_or_else(|| self.look_beside(), |(_, baseline)| baseline);
        // After the look: whoever is gone by then has nothing to say that does not come here.
        self.drain();
        // On a damaged terminal the shell may have found the end of its input, and be about to end itself.
        let is_damaged = self.pty.repair()?;
        let asked = self.prompt.care(command);
        let shell_is_doubtful = self.distrusted || self.disturbed || self.may_have_stopped;
        let doubtful = is_damaged || shell_is_doubtful || !baseline.is_alone() || !loan.is_none();
        let needed = match self.untouched {
            _ if doubtful => Care::Guard,
            true => Care::None,
            false => Care::Look,
        };
        self.distrusted = asked == Care::Guard;
        self.untouched &= asked == Care::None;
        let orders = self.prompt.orders(command, self.sent, asked.max(needed), loan, &self.script.path());
        if let Some(script) = &orders.script {
            self.script.write(script)?;
        }
        self.unsent.clear();
        self.at_prompt = false;
        if orders.number.is_some() {
            self.pty.reset()?;
        }
        if self.query.is_asked() {
            self.type_text(cursor_query::REPORT.as_bytes());
            self.query.reset();
        }
        self.type_text(orders.line.as_bytes());
        self.sent_at = Some(Instant::now());
        Ok((baseline, orders.number))
    }

    /// At a prompt: looks at what runs beside it, so that the next command need not wait for that.
    pub(super) fn prepare(&mut self) {
        if self.at_prompt {
            self.beside = Some((Instant::now(), self.look_beside()));
        }
    }

    fn look_beside(&mut self) -> Baseline {
        let shell = self.pty.foreground_group().unwrap_or(self.child.pid());
        if self.children.pid() != shell {
            self.children = ChildList::of(shell);
        }
        Baseline::take(&self.children, &self.session)
    }

    /// Types for the running command, which may be over: then the shell itself takes it for a command, whose start must
    /// not be taken for the next one's.
    pub(super) fn send_input(&mut self, bytes: &[u8]) {
        self.may_have_stopped |= bytes.contains(&STOP_KEY);
        self.distrust();
        self.type_text(bytes);
    }

    /// Something was done to the shell that may make it prompt once more.
    pub(super) fn distrust(&mut self) {
        self.distrusted = true;
        self.untouched = false;
    }

    /// Takes what was written before the command that is about to be sent.
    fn drain(&mut self) {
        for _ in 0..LAST_READS {
            match self.pty.read_now(&mut self.buffer) {
                0 => return,
                count => self.pieces(count, |_| {}),
            }
        }
        // Somebody floods the terminal, whoever it is.
        self.distrust();
    }

    fn type_text(&mut self, bytes: &[u8]) {
        let sent = if self.unsent.is_empty() { self.pty.write_now(bytes) } else { 0 };
        self.unsent.extend(&bytes[sent..]);
    }

    /// The command has begun. A shell that edits lines itself has just put back what it found at its prompt, which may
    /// have been broken by then.
    pub(super) fn command_started(&self) {
        if self.prompt.dialect() == Dialect::Ash {
            let _ = self.pty.repair();
        }
    }

    /// The command is over: what it did not read is not for the shell.
    pub(super) fn forget_input(&mut self) {
        self.unsent.clear();
    }

    /// The process group that has the terminal.
    pub(super) fn foreground_group(&self) -> Option<i32> {
        self.pty.foreground_group()
    }

    /// Kills the shell alone, and waits for its end no longer than `patience`: one that hangs in the kernel is left to
    /// the runtime to bury.
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

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}
