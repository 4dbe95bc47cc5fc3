//! The terminals that people have open: each a task that carries frames between a stream and a shell.
//!
//! A terminal ends when its program does, which is told as the last frame, or when its stream is closed: then the whole
//! process tree ends. It ends at the latest with [`Terminals::shut_down`].

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use protocol::sandbox_api::{ExitReason, FrameDecoder, TerminalInput, TerminalOutput, TerminalQuery};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::environment::Environment;
use crate::process::exit_of;
use crate::shell::{MAX_TERMINALS, Program, Screen, Terminal, TerminalError};

/// What is shown at once.
const SHOWN_BYTES: usize = 16 << 10;

/// Reads after the program's exit: more than a terminal can hold, but an end, should a background job flood it.
const LAST_READS: u32 = 64;

/// What was typed and is not read yet. It is always read on, because only so the stream's end is seen.
const MAX_UNREAD_BYTES: usize = 1 << 20;

/// The terminals of this life of the server. Cloning shares them.
#[derive(Clone)]
pub(crate) struct Terminals {
    environment: Environment,
    places: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Terminals {
    pub(crate) fn new(environment: Environment) -> Self {
        Self {
            environment,
            places: Arc::new(Semaphore::new(MAX_TERMINALS)),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Starts what was asked for, and carries frames once the request's stream was handed over.
    pub(crate) fn open(
        &self,
        asked: &TerminalQuery,
        working_dir: &Path,
        upgrade: OnUpgrade,
    ) -> Result<(), TerminalError> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| TerminalError::TooMany)?;
        let Terminal { screen, mut program } =
            Terminal::start(asked, &self.environment.current(), working_dir)?;
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let carried = async {
                let outside = TokioIo::new(upgrade.await.map_err(io::Error::other)?);
                let (from, to) = tokio::io::split(outside);
                tokio::select! {
                    shown = show(&screen, &mut program, to) => shown,
                    typed = take(&screen, from) => typed,
                }
            };
            tokio::select! {
                carried = carried => if let Err(error) = carried {
                    tracing::debug!(%error, "a terminal has failed");
                },
                () = stop.cancelled() => {}
            }
            // Nothing more is to be done where it has ended by itself: what it left then has been hung up on.
            if !program.has_ended() {
                _ = program.kill().await;
            }
            drop(place);
        });
        Ok(())
    }

    /// Kills all.
    pub(crate) async fn shut_down(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Shows what the program writes, until it has ended and that was told.
async fn show(screen: &Screen, program: &mut Program, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut buffer = vec![0; SHOWN_BYTES];
    let mut frame = Vec::with_capacity(SHOWN_BYTES + 8);
    let (mut is_hung_up, mut exit, mut last_reads) = (false, None, LAST_READS);
    loop {
        let count = match exit {
            None => tokio::select! {
                read = screen.read(&mut buffer), if !is_hung_up => read.unwrap_or(0),
                status = program.exited() => {
                    exit = Some(exit_of(status, ExitReason::Exited, None));
                    continue;
                }
            },
            Some(_) if last_reads > 0 => {
                last_reads -= 1;
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
            None => TerminalOutput::encode_output(buffer.get(..count).unwrap_or_default(), &mut frame),
        };
        encoded.map_err(io::Error::other)?;
        to.write_all(&frame).await?;
        to.flush().await?;
        if is_last {
            return to.shutdown().await;
        }
    }
}

/// Types what comes, until the stream's end.
async fn take(screen: &Screen, mut from: impl AsyncRead + Unpin) -> io::Result<()> {
    let mut decoder = FrameDecoder::default();
    let mut buffer = vec![0; SHOWN_BYTES];
    let mut unread: VecDeque<u8> = VecDeque::new();
    loop {
        let count = tokio::select! {
            count = from.read(&mut buffer) => count?,
            written = screen.write(unread.as_slices().0), if !unread.is_empty() => {
                match written {
                    Ok(count) => drop(unread.drain(..count)),
                    // Nobody has the terminal open; its program's end is on its way.
                    Err(_) => unread.clear(),
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
                TerminalInput::Keys(bytes) => unread.extend(bytes),
                TerminalInput::Resize { columns, rows } => screen.resize(columns, rows)?,
            }
        }
        if unread.len() > MAX_UNREAD_BYTES {
            return Err(io::Error::other("much more was typed than is read"));
        }
    }
}
