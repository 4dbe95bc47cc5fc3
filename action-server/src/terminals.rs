//! The interactive terminals: each is a task that copies frames between a stream and a shell.
//!
//! A terminal ends when its program exits, which is reported in the last frame, or when its stream
//! is closed, which kills the whole process tree. All end at the latest with
//! [`Terminals::shut_down`].

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use protocol::sandbox_api::{
    ExitReason, FrameDecoder, TerminalInput, TerminalOutput, TerminalQuery,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::environment::Environment;
use crate::process::to_process_exit;
use crate::shell::{MAX_TERMINALS, Terminal, TerminalError, TerminalProgram, TerminalScreen};

/// Maximum output of one frame.
const FRAME_BYTES: usize = 16 << 10;

/// Maximum number of reads after the program has exited. More than a terminal buffers, but bounded
/// in case a background job writes continuously.
const MAX_FINAL_READS: u32 = 64;

/// Maximum input that the program has not read yet. The stream is read even if the program does not
/// read, because only a read detects that it was closed.
const MAX_PENDING_INPUT_BYTES: usize = 1 << 20;

/// The open terminals of the server. Clones share them.
/// The terminals of this life of the server. Cloning shares them.
#[derive(Clone)]
pub(crate) struct Terminals {
    environment: Environment,
    permits: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Terminals {
    pub(crate) fn new(environment: Environment) -> Self {
        Self {
            environment,
            permits: Arc::new(Semaphore::new(MAX_TERMINALS)),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Starts the requested program, and copies frames once the request has become a stream.
    pub(crate) fn open(
        &self,
        query: &TerminalQuery,
        working_dir: &Path,
        upgrade: OnUpgrade,
    ) -> Result<(), TerminalError> {
        let permit = Arc::clone(&self.permits)
            .try_acquire_owned()
            .map_err(|_| TerminalError::TooMany)?;
        let Terminal {
            screen,
            mut program,
        } = Terminal::start(query, &self.environment.current(), working_dir)?;
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let copied = async {
                let stream = TokioIo::new(upgrade.await.map_err(io::Error::other)?);
                let (input, output) = tokio::io::split(stream);
                tokio::select! {
                    result = copy_output(&screen, &mut program, output) => result,
                    result = copy_input(&screen, input) => result,
                }
            };
            tokio::select! {
                copied = copied => if let Err(error) = copied {
                    tracing::debug!(%error, "terminal failed");
                },
                () = stop.cancelled() => {}
            }
            // After an exit nothing is killed: the remaining processes have received SIGHUP.
            if !program.has_ended() {
                _ = program.kill().await;
            }
            drop(permit);
        });
        Ok(())
    }

    /// Kills all terminals.
    pub(crate) async fn shut_down(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Sends the program's output until its exit has been sent.
async fn copy_output(
    screen: &TerminalScreen,
    program: &mut TerminalProgram,
    mut to: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut buffer = vec![0; FRAME_BYTES];
    let mut frame = Vec::with_capacity(FRAME_BYTES + 8);
    let (mut is_hung_up, mut exit, mut final_reads) = (false, None, MAX_FINAL_READS);
    loop {
        let count = match exit {
            None => tokio::select! {
                read = screen.read(&mut buffer), if !is_hung_up => read.unwrap_or(0),
                status = program.exited() => {
                    exit = Some(to_process_exit(status, ExitReason::Exited, None));
                    continue;
                }
            },
            Some(_) if final_reads > 0 => {
                final_reads -= 1;
                screen.read_now(&mut buffer)
            }
            Some(_) => 0,
        };
        if count == 0 && exit.is_none() {
            is_hung_up = true;
            continue;
        }
        let is_last = count == 0;
        frame.clear();
        let encoded = match exit.take_if(|_| is_last) {
            Some(exit) => TerminalOutput::Exit(Box::new(exit)).encode(&mut frame),
            None => {
                TerminalOutput::encode_output(buffer.get(..count).unwrap_or_default(), &mut frame)
            }
        };
        encoded.map_err(io::Error::other)?;
        to.write_all(&frame).await?;
        to.flush().await?;
        if is_last {
            return to.shutdown().await;
        }
    }
}

/// Writes input to the terminal until the stream is closed.
async fn copy_input(screen: &TerminalScreen, mut from: impl AsyncRead + Unpin) -> io::Result<()> {
    let mut decoder = FrameDecoder::default();
    let mut buffer = vec![0; FRAME_BYTES];
    let mut pending: VecDeque<u8> = VecDeque::new();
    loop {
        let count = tokio::select! {
            count = from.read(&mut buffer) => count?,
            written = screen.write(pending.as_slices().0), if !pending.is_empty() => {
                match written {
                    Ok(count) => drop(pending.drain(..count)),
                    // No process has the terminal open, so the program is about to exit.
                    Err(_) => pending.clear(),
                }
                continue;
            }
        };
        if count == 0 {
            return Ok(());
        }
        decoder.push(buffer.get(..count).unwrap_or_default());
        while let Some(frame) = decoder.next_frame().map_err(io::Error::other)? {
            match frame {
                TerminalInput::Keys(bytes) => pending.extend(bytes),
                TerminalInput::Resize { columns, rows } => screen.resize(columns, rows)?,
            }
        }
        if pending.len() > MAX_PENDING_INPUT_BYTES {
            return Err(io::Error::other("the program does not read its input"));
        }
    }
}
