//! The process in which cells run, and what is said with it.

use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use protocol::ProcessId;
use protocol::sandbox_api::{OutputStream, ProcessRequest, ProcessStdin, SignalScope};
use serde_json::{Value, json};
use tokio::time::timeout;
use uuid::Uuid;

use super::Cell;
use super::shown::Shown;
use crate::embedded_text::inflate;
use crate::process::{Cursors, Process, ProcessError, ProcessProgress, Processes};
use crate::shell::PLAIN_TERMINAL;
use crate::timeouts::sleep_until_timeout;

/// `bridge.py`.
static BRIDGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bridge.deflate"));

/// How long a cell may take to let go after an interrupt.
const LET_GO: Duration = Duration::from_secs(2);

/// Output that came between two cells, from threads and programs of the first, is shown with the second: so much of it.
const BETWEEN_BYTES: u64 = 64 << 10;

/// The longest reply: what the bridge keeps of images, and the words around them. More comes of a forger.
const MOST_REPLY_BYTES: usize = 5 << 20;

/// The bridge sends no more.
const MOST_IMAGES: usize = 8;

/// In characters.
const LONGEST_PATH: usize = 4096;

/// What is told of the kernel's last words, in characters.
const LAST_WORDS: usize = 1000;

/// A process that runs cells.
pub(super) struct Kernel {
    process: Arc<Process>,
    read: Cursors,
    /// The beginning of a reply, or its last words.
    reply: Vec<u8>,
    /// The last line that was no reply.
    words: Vec<u8>,
    /// Where the shell was at the last cell.
    folder: PathBuf,
    /// It has said that it can run cells.
    pub(super) is_ready: bool,
}

/// How a cell left things.
pub(super) struct Reply {
    pub(super) folder: String,
    pub(super) python: String,
    /// Data URLs.
    pub(super) images: Vec<String>,
    pub(super) left_out: u64,
}

/// What came of a cell.
pub(super) enum Outcome {
    /// It was stopped before it was sent: it did nothing.
    NotBegun,
    /// It has ended.
    Done(Reply),
    /// The kernel has, for this reason.
    Ended(String),
}

/// Why a cell was interrupted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stop {
    Cancelled,
    TimedOut,
}

impl Kernel {
    pub(super) fn start(processes: &Processes) -> Result<Self, ProcessError> {
        let bridge = inflate(BRIDGE).map_err(ProcessError::Short)?;
        let id = format!("jupyter-{}", Uuid::now_v7().simple());
        let id = ProcessId::try_from(id).map_err(|error| ProcessError::Short(io::Error::other(error)))?;
        let request = ProcessRequest {
            env: PLAIN_TERMINAL.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            stdin: ProcessStdin::Pipe,
            ..ProcessRequest::new(["python3", "-u", "-c", &bridge])
        };
        let process = processes.start(id, &request)?;
        Ok(Self {
            process,
            read: Cursors::default(),
            reply: Vec::new(),
            words: Vec::new(),
            folder: PathBuf::new(),
            is_ready: false,
        })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.process.info().exit.is_some()
    }

    /// Runs a cell to its end, or the kernel's.
    pub(super) async fn run(&mut self, cell: &Cell, shown: &mut Shown) -> (Outcome, Option<Stop>) {
        let mut stop = pin!(Stop::of(cell));
        // A kernel that is not ready hears no interrupt, so nothing is sent to it before.
        let ready = tokio::select! {
            biased;
            stop = &mut stop => return (Outcome::NotBegun, Some(stop)),
            ready = self.ready(shown) => ready,
        };
        if let Err(why) = ready {
            return (Outcome::Ended(why), None);
        }
        let goes = if cell.folder == self.folder { "".into() } else { cell.folder.to_string_lossy() };
        let request = json!({
            "mark": shown.mark(),
            "code": cell.action.code,
            "init": cell.action.kernel_init_code,
            "folder": goes,
            "environment": cell.environment.0,
        });
        self.folder.clone_from(&cell.folder);
        let process = Arc::clone(&self.process);
        let mut running = pin!(self.follow(format!("{request}\n"), shown));
        let stop = tokio::select! {
            biased;
            outcome = &mut running => return (outcome, None),
            stop = &mut stop => stop,
        };
        // What it waits for is interrupted too, if that is what it takes.
        for scope in [SignalScope::Process, SignalScope::Tree] {
            // One that has ended meanwhile is found below.
            _ = process.signal(Signal::SIGINT, scope).await;
            if let Ok(outcome) = timeout(LET_GO, &mut running).await {
                return (outcome, Some(stop));
            }
        }
        process.kill();
        (running.await, Some(stop))
    }

    async fn follow(&mut self, request: String, shown: &mut Shown) -> Outcome {
        let process = Arc::clone(&self.process);
        self.read.stdout = self.read.stdout.max(process.info().stdout_bytes.saturating_sub(BETWEEN_BYTES));
        if let Ok(mut stdin) = process.write_stdin().await {
            // One that does not read it has ended, which is found below.
            _ = stdin.write(request.as_bytes()).await;
        }
        let mut told = None;
        loop {
            match self.read_on(shown).await {
                Ok(reply) => told = reply.or(told),
                Err(why) => return Outcome::Ended(why),
            }
            if shown.is_over()
                && let Some(reply) = told.take()
            {
                return Outcome::Done(reply);
            }
        }
    }

    /// Waits until it can run cells; if it never can, why.
    async fn ready(&mut self, shown: &mut Shown) -> Result<(), String> {
        while !self.is_ready {
            self.read_on(shown).await?;
        }
        Ok(())
    }

    /// Reads what comes next of it, which may be a reply; if it has ended, why.
    async fn read_on(&mut self, shown: &mut Shown) -> Result<Option<Reply>, String> {
        let process = Arc::clone(&self.process);
        // Before the look: it misses no change after it.
        let progress = process.progress();
        match process.next(self.read, OutputStream::Stderr) {
            ProcessProgress::Output(OutputStream::Stdout, piece) => {
                let (bytes, to) = piece.read(self.read.stdout).await;
                shown.take(&bytes);
                self.read.stdout = to;
            }
            ProcessProgress::Output(OutputStream::Stderr, piece) => {
                let (bytes, to) = piece.read(self.read.stderr).await;
                let told = self.hear(&bytes, shown.mark());
                self.read.stderr = to;
                return Ok(told);
            }
            ProcessProgress::Exited(_) => return Err(self.reason()),
            ProcessProgress::Pending => progress.await,
        }
        Ok(None)
    }

    /// Reads replies on; the one that knows the mark.
    fn hear(&mut self, bytes: &[u8], mark: &str) -> Option<Reply> {
        let mut told = None;
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = MOST_REPLY_BYTES.saturating_sub(self.reply.len());
            self.reply.extend_from_slice(part.get(..room).unwrap_or(part));
            if !part.ends_with(b"\n") {
                continue;
            }
            let line = std::mem::take(&mut self.reply);
            match Reply::read(&line, mark) {
                Some(reply) => told = Some(reply),
                None if line == b"\n" => self.is_ready = true,
                None => self.words = line,
            }
        }
        told
    }

    /// Why it has ended, as far as that is known.
    fn reason(&self) -> String {
        let exit = self.process.info().exit;
        let status = match exit.as_ref().map(|exit| (exit.code, exit.signal)) {
            Some((Some(code), _)) => format!("exit code {code}"),
            Some((_, Some(signal))) => format!("signal {signal}"),
            _ => "it was lost".to_owned(),
        };
        let words = if self.reply.is_empty() { &self.words } else { &self.reply };
        let words = String::from_utf8_lossy(words);
        let end: Vec<char> = words.trim().chars().rev().take(LAST_WORDS).collect();
        match (exit, end.is_empty()) {
            (Some(exit), _) if exit.out_of_memory => format!("{status}, out of memory"),
            (_, true) => status,
            (_, false) => end.into_iter().rev().collect(),
        }
    }

    /// Kills what is left of it, and forgets it.
    pub(super) async fn bury(self, processes: &Processes) {
        _ = self.process.signal(Signal::SIGKILL, SignalScope::Tree).await;
        _ = processes.acknowledge(self.process.id().clone());
    }
}

impl Stop {
    async fn of(cell: &Cell) -> Self {
        tokio::select! {
            biased;
            () = cell.cancel.cancelled() => Self::Cancelled,
            () = sleep_until_timeout(cell.timeout) => Self::TimedOut,
        }
    }
}

impl Reply {
    /// The one to the cell of this mark. By hand: derived, it would be eight thousand bytes of the static file.
    fn read(line: &[u8], mark: &str) -> Option<Self> {
        let reply: Value = serde_json::from_slice(line).ok()?;
        if reply["mark"] != mark {
            return None;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let path = |name: &str| text(&reply[name]).chars().take(LONGEST_PATH).collect();
        let images = reply["images"].as_array().into_iter().flatten();
        Some(Self {
            folder: path("folder"),
            python: path("python"),
            images: images.take(MOST_IMAGES).map(text).collect(),
            left_out: reply["left_out"].as_u64().unwrap_or_default(),
        })
    }
}
