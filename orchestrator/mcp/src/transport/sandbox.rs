//! A server that is a program in the sandbox: its input and output go over the connection that everything goes over.
//!
//! One task follows the program to its exit, or to the word that it should end. When the connection breaks the program is
//! ended, because nobody knows how much of its input arrived; it is then a server that has died.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use engine::sandbox::{OutputChunk, Sandbox};
use futures_util::stream;
use protocol::ProcessId;
use protocol::sandbox_api::{ExitReason, OutputStream, ProcessExit, ProcessRequest, ProcessStdin};
use secrecy::ExposeSecret as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::io::StreamReader;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::LONGEST_MESSAGE;
use super::tail::Tail;
use crate::config::Program;

/// What of our words may be on its way in, in bytes.
const INPUT: usize = 64 << 10;

/// Output that is not read yet may be a message and the beginning of the next, in bytes.
const MOST_UNREAD: usize = 2 * LONGEST_MESSAGE;

/// How long a program may take to end when its input has ended.
const GRACE: Duration = Duration::from_secs(2);

/// How long the sandbox may take to say that a program was ended.
const ENDING: Duration = Duration::from_secs(5);

pub(crate) struct SandboxProgram {
    following: JoinHandle<()>,
    /// Tells the task that follows the program to end it.
    end: DropGuard,
    stderr: Tail,
}

pub(super) fn start(
    program: &Program,
    sandbox: Arc<dyn Sandbox>,
) -> (SandboxProgram, impl AsyncRead + Send + Unpin + 'static, impl AsyncWrite + Send + Unpin + 'static) {
    let (input, writes) = tokio::io::duplex(INPUT);
    let (output, reads) = unread_output();
    let end = CancellationToken::new();
    let stderr = Tail::default();
    let follower = Follower {
        id: format!("mcp-{}", uuid::Uuid::now_v7().simple()).try_into(),
        request: request(program),
        sandbox,
        output,
        stderr: stderr.clone(),
        end: end.clone(),
    };
    // It ends with the program, or soon after the guard is dropped.
    let following = tokio::spawn(follower.follow(Box::new(input)));
    (SandboxProgram { following, end: end.drop_guard(), stderr }, reads, writes)
}

impl SandboxProgram {
    pub(super) async fn stderr(&self) -> String {
        self.stderr.text().await
    }

    pub(super) async fn end(mut self) {
        if timeout(GRACE, &mut self.following).await.is_err() {
            drop(self.end);
            let _ = timeout(ENDING, self.following).await;
        }
    }
}

fn request(program: &Program) -> ProcessRequest {
    let env: BTreeMap<_, _> =
        program.env.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned())).collect();
    ProcessRequest {
        env,
        stdin: ProcessStdin::Pipe,
        ..ProcessRequest::new(std::iter::once(&program.command).chain(&program.args))
    }
}

struct Follower {
    id: Result<ProcessId, protocol::IdError>,
    request: ProcessRequest,
    sandbox: Arc<dyn Sandbox>,
    output: Output,
    stderr: Tail,
    end: CancellationToken,
}

impl Follower {
    async fn follow(self, input: engine::sandbox::ByteSource) {
        let Self { id, request, sandbox, output, stderr, end } = self;
        let Ok(id) = id else { return };
        let heard = |stream: OutputStream, chunk: OutputChunk<'_>| match (stream, chunk) {
            (OutputStream::Stderr, OutputChunk::Bytes { bytes, .. }) => stderr.push(bytes),
            (OutputStream::Stderr, OutputChunk::Gap { .. }) => {}
            (OutputStream::Stdout, OutputChunk::Bytes { bytes, .. }) if output.push(bytes) => {}
            // What is missing cannot be had again: no message after it would be believed.
            (OutputStream::Stdout, _) => end.cancel(),
        };
        let exit = tokio::select! {
            exit = sandbox.exec(&id, &request, Some(input), &heard) => Some(exit),
            () = end.cancelled() => None,
        };
        match &exit {
            Some(Ok(exit)) => stderr.push(describe(exit).as_bytes()),
            Some(Err(error)) => stderr.push(format!("\n[{error}]").as_bytes()),
            None => {}
        }
        stderr.end();
        if !matches!(exit, Some(Ok(_))) {
            let ended = timeout(ENDING, sandbox.kill_process(&id)).await;
            tracing::debug!(program = %id, ?ended, "ended a tool server in the sandbox");
        }
    }
}

fn describe(exit: &ProcessExit) -> String {
    match exit {
        ProcessExit { error: Some(error), .. } => format!("\n[{error}]"),
        ProcessExit { code: Some(code), .. } => format!("\n[it exited with {code}]"),
        ProcessExit { signal: Some(signal), .. } => format!("\n[signal {signal} ended it]"),
        ProcessExit { reason: ExitReason::Exited, .. } => "\n[it exited]".to_owned(),
        ProcessExit { .. } => "\n[it was ended]".to_owned(),
    }
}

/// The writing end of what the program says, which may be behind within a bound.
struct Output {
    pieces: mpsc::UnboundedSender<Bytes>,
    unread: Arc<AtomicUsize>,
}

impl Output {
    /// Whether there was room.
    fn push(&self, bytes: &[u8]) -> bool {
        let unread = self.unread.fetch_add(bytes.len(), Ordering::Relaxed).saturating_add(bytes.len());
        // Nobody reads any more when the server is being ended.
        unread <= MOST_UNREAD && self.pieces.send(Bytes::copy_from_slice(bytes)).is_ok()
    }
}

fn unread_output() -> (Output, impl AsyncRead + Send + Unpin + 'static) {
    // Bounded by the bytes in it.
    let (pieces, received) = mpsc::unbounded_channel::<Bytes>();
    let unread = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&unread);
    let pieces_read = stream::unfold(received, move |mut received| {
        let counted = Arc::clone(&counted);
        async move {
            let piece = received.recv().await?;
            counted.fetch_sub(piece.len(), Ordering::Relaxed);
            Some((Ok::<_, std::io::Error>(piece), received))
        }
    });
    (Output { pieces, unread }, StreamReader::new(Box::pin(pieces_read)))
}
