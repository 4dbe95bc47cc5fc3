//! The process that runs cells, and the protocol with it.

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
use super::cell_output::CellOutput;
use crate::embedded_text::inflate;
use crate::process::{Cursors, Process, ProcessError, ProcessProgress, Processes};
use crate::shell::PLAIN_TERMINAL;
use crate::timeouts::sleep_until_timeout;

/// `bridge.py`.
static BRIDGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bridge.deflate"));

/// How long to wait for the end of a cell after an interrupt.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum output between two cells, of threads and child processes of the first, that is shown
/// with the second.
const MAX_OUTPUT_BETWEEN_CELLS: u64 = 64 << 10;

/// Maximum size of a reply: the images that the bridge keeps, and the other fields. Only a forged
/// reply is longer.
const MAX_REPLY_BYTES: usize = 5 << 20;

/// The maximum that the bridge sends.
const MAX_IMAGES: usize = 8;

/// In characters.
const MAX_PATH_CHARS: usize = 4096;

/// Maximum output that is shown as the reason of the kernel's exit, in characters.
const MAX_REASON_CHARS: usize = 1000;

/// A process that runs cells.
pub(super) struct Kernel {
    process: Arc<Process>,
    read: Cursors,
    /// An incomplete reply, or the kernel's last output.
    reply: Vec<u8>,
    /// The last line that was not a reply.
    last_line: Vec<u8>,
    /// The shell's working directory at the last cell.
    folder: PathBuf,
    /// The kernel has reported that it can run cells.
    pub(super) is_ready: bool,
}

/// State of the kernel after a cell.
pub(super) struct KernelReply {
    pub(super) folder: String,
    pub(super) python: String,
    /// Data URLs.
    pub(super) images: Vec<String>,
    pub(super) left_out: u64,
}

/// Result of a cell.
pub(super) enum CellResult {
    /// It was stopped before it was sent to the kernel.
    NotStarted,
    /// It has completed.
    Completed(KernelReply),
    /// The kernel has exited, for this reason.
    KernelExited(String),
}

/// Reason why a cell was interrupted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Interruption {
    Cancelled,
    TimedOut,
}

impl Kernel {
    pub(super) fn start(processes: &Processes) -> Result<Self, ProcessError> {
        let bridge = inflate(BRIDGE).map_err(ProcessError::Short)?;
        let id = format!("jupyter-{}", Uuid::now_v7().simple());
        let id = ProcessId::try_from(id)
            .map_err(|error| ProcessError::Short(io::Error::other(error)))?;
        let request = ProcessRequest {
            env: PLAIN_TERMINAL
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            stdin: ProcessStdin::Pipe,
            ..ProcessRequest::new(["python3", "-u", "-c", &bridge])
        };
        let process = processes.start(id, &request)?;
        Ok(Self {
            process,
            read: Cursors::default(),
            reply: Vec::new(),
            last_line: Vec::new(),
            folder: PathBuf::new(),
            is_ready: false,
        })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.process.info().exit.is_some()
    }

    /// Runs a cell until it has completed or the kernel has exited.
    pub(super) async fn run(
        &mut self,
        cell: &Cell,
        shown: &mut CellOutput,
    ) -> (CellResult, Option<Interruption>) {
        let mut stop = pin!(Interruption::wait(cell));
        // A kernel that is not ready would ignore an interrupt, so no cell is sent before.
        let ready = tokio::select! {
            biased;
            stop = &mut stop => return (CellResult::NotStarted, Some(stop)),
            ready = self.wait_until_ready(shown) => ready,
        };
        if let Err(reason) = ready {
            return (CellResult::KernelExited(reason), None);
        }
        let folder = if cell.folder == self.folder {
            "".into()
        } else {
            cell.folder.to_string_lossy()
        };
        let request = json!({
            "mark": shown.mark(),
            "code": cell.action.code,
            "init": cell.action.kernel_init_code,
            "folder": folder,
            "environment": cell.environment.0,
        });
        self.folder.clone_from(&cell.folder);
        let process = Arc::clone(&self.process);
        let mut running = pin!(self.run_request(format!("{request}\n"), shown));
        let stop = tokio::select! {
            biased;
            outcome = &mut running => return (outcome, None),
            stop = &mut stop => stop,
        };
        // If the kernel does not react, its child processes are interrupted too.
        for scope in [SignalScope::Process, SignalScope::Tree] {
            // If the kernel has exited, reading its output reports that.
            _ = process.signal(Signal::SIGINT, scope).await;
            if let Ok(outcome) = timeout(INTERRUPT_TIMEOUT, &mut running).await {
                return (outcome, Some(stop));
            }
        }
        process.kill();
        (running.await, Some(stop))
    }

    async fn run_request(&mut self, request: String, shown: &mut CellOutput) -> CellResult {
        let process = Arc::clone(&self.process);
        let stdout_bytes = process.info().stdout_bytes;
        self.read.stdout = self
            .read
            .stdout
            .max(stdout_bytes.saturating_sub(MAX_OUTPUT_BETWEEN_CELLS));
        if let Ok(mut stdin) = process.write_stdin().await {
            // If the kernel has exited, reading its output reports that.
            _ = stdin.write(request.as_bytes()).await;
        }
        let mut received = None;
        loop {
            match self.read_next(shown).await {
                Ok(reply) => received = reply.or(received),
                Err(reason) => return CellResult::KernelExited(reason),
            }
            if shown.is_over()
                && let Some(reply) = received.take()
            {
                return CellResult::Completed(reply);
            }
        }
    }

    /// Waits until the kernel can run cells. An error is the reason of its exit.
    async fn wait_until_ready(&mut self, shown: &mut CellOutput) -> Result<(), String> {
        while !self.is_ready {
            self.read_next(shown).await?;
        }
        Ok(())
    }

    /// Reads the next output, which may contain a reply. An error is the reason of the kernel's
    /// exit.
    async fn read_next(&mut self, shown: &mut CellOutput) -> Result<Option<KernelReply>, String> {
        let process = Arc::clone(&self.process);
        // Created before the state is read, so that no later change is missed.
        let progress = process.progress();
        match process.next(self.read, OutputStream::Stderr) {
            ProcessProgress::Output(OutputStream::Stdout, piece) => {
                let (bytes, to) = piece.read(self.read.stdout).await;
                shown.push(&bytes);
                self.read.stdout = to;
            }
            ProcessProgress::Output(OutputStream::Stderr, piece) => {
                let (bytes, to) = piece.read(self.read.stderr).await;
                let reply = self.parse_replies(&bytes, shown.mark());
                self.read.stderr = to;
                return Ok(reply);
            }
            ProcessProgress::Exited(_) => return Err(self.exit_reason()),
            ProcessProgress::Pending => progress.await,
        }
        Ok(None)
    }

    /// Parses replies, and returns the one with the mark.
    fn parse_replies(&mut self, bytes: &[u8], mark: &str) -> Option<KernelReply> {
        let mut received = None;
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = MAX_REPLY_BYTES.saturating_sub(self.reply.len());
            self.reply
                .extend_from_slice(part.get(..room).unwrap_or(part));
            if !part.ends_with(b"\n") {
                continue;
            }
            let line = std::mem::take(&mut self.reply);
            match KernelReply::parse(&line, mark) {
                Some(reply) => received = Some(reply),
                None if line == b"\n" => self.is_ready = true,
                None => self.last_line = line,
            }
        }
        received
    }

    /// Returns the reason of the exit: the last output, or the exit status.
    fn exit_reason(&self) -> String {
        let exit = self.process.info().exit;
        let status = match exit.as_ref().map(|exit| (exit.code, exit.signal)) {
            Some((Some(code), _)) => format!("exit code {code}"),
            Some((_, Some(signal))) => format!("signal {signal}"),
            _ => "it was lost".to_owned(),
        };
        let output = if self.reply.is_empty() {
            &self.last_line
        } else {
            &self.reply
        };
        let output = String::from_utf8_lossy(output);
        let end: Vec<char> = output.trim().chars().rev().take(MAX_REASON_CHARS).collect();
        match (exit, end.is_empty()) {
            (Some(exit), _) if exit.out_of_memory => format!("{status}, out of memory"),
            (_, true) => status,
            (_, false) => end.into_iter().rev().collect(),
        }
    }

    /// Kills the remaining processes of the kernel, and removes its record.
    pub(super) async fn dispose(self, processes: &Processes) {
        _ = self
            .process
            .signal(Signal::SIGKILL, SignalScope::Tree)
            .await;
        _ = processes.acknowledge(self.process.id().clone());
    }
}

impl Interruption {
    async fn wait(cell: &Cell) -> Self {
        tokio::select! {
            biased;
            () = cell.cancel.cancelled() => Self::Cancelled,
            () = sleep_until_timeout(cell.timeout) => Self::TimedOut,
        }
    }
}

impl KernelReply {
    /// Parses a reply with this mark. Not derived, because that would add 8 KB to the binary.
    fn parse(line: &[u8], mark: &str) -> Option<Self> {
        let reply: Value = serde_json::from_slice(line).ok()?;
        if reply["mark"] != mark {
            return None;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let path = |name: &str| text(&reply[name]).chars().take(MAX_PATH_CHARS).collect();
        let images = reply["images"].as_array().into_iter().flatten();
        Some(Self {
            folder: path("folder"),
            python: path("python"),
            images: images.take(MAX_IMAGES).map(text).collect(),
            left_out: reply["left_out"].as_u64().unwrap_or_default(),
        })
    }
}
