//! A server that is a program in the sandbox. Its input and output use the connection to the action server.
//!
//! A task follows the program until its exit or its cancellation. If the connection breaks, the task kills the program, because
//! it is unknown how much of its input arrived.

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

use super::MAX_MESSAGE_BYTES;
use super::tail::Tail;
use crate::config::Program;

/// Size of the buffer of its input, in bytes.
const INPUT_BUFFER_BYTES: usize = 64 << 10;

/// Maximum output that is not read yet, in bytes: a message and the start of the next.
const MAX_UNREAD_BYTES: usize = 2 * MAX_MESSAGE_BYTES;

/// Time that a program has to exit after its stdin was closed.
const EXIT_GRACE_PERIOD: Duration = Duration::from_secs(2);

/// Time limit for killing a program.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct SandboxProgram {
    task: JoinHandle<()>,
    /// Makes the task kill the program when it is dropped.
    kill_on_drop: DropGuard,
    stderr: Tail,
}

pub(super) fn start(
    program: &Program,
    sandbox: Arc<dyn Sandbox>,
) -> (SandboxProgram, impl AsyncRead + Send + Unpin + 'static, impl AsyncWrite + Send + Unpin + 'static) {
    let (input, writes) = tokio::io::duplex(INPUT_BUFFER_BYTES);
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
    // The task ends with the program, or soon after the guard is dropped.
    let task = tokio::spawn(follower.follow(Box::new(input)));
    (SandboxProgram { task, kill_on_drop: end.drop_guard(), stderr }, reads, writes)
}

impl SandboxProgram {
    pub(super) async fn stderr(&self) -> String {
        self.stderr.text().await
    }

    pub(super) async fn end(mut self) {
        if timeout(EXIT_GRACE_PERIOD, &mut self.task).await.is_err() {
            drop(self.kill_on_drop);
            let _ = timeout(KILL_TIMEOUT, self.task).await;
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
    output: StdoutSender,
    stderr: Tail,
    end: CancellationToken,
}

impl Follower {
    async fn follow(self, input: engine::sandbox::ByteSource) {
        let Self { id, request, sandbox, output, stderr, end } = self;
        let Ok(id) = id else { return };
        let on_output = |stream: OutputStream, chunk: OutputChunk<'_>| match (stream, chunk) {
            (OutputStream::Stderr, OutputChunk::Bytes { bytes, .. }) => stderr.push(bytes),
            (OutputStream::Stderr, OutputChunk::Gap { .. }) => {}
            (OutputStream::Stdout, OutputChunk::Bytes { bytes, .. }) if output.push(bytes) => {}
            // Lost output cannot be recovered, and corrupts the message stream.
            (OutputStream::Stdout, _) => end.cancel(),
        };
        let exec = async { sandbox.processes()?.exec(&id, &request, Some(input), &on_output).await };
        let exit = tokio::select! {
            exit = exec => Some(exit),
            () = end.cancelled() => None,
        };
        match &exit {
            Some(Ok(exit)) => stderr.push(describe(exit).as_bytes()),
            Some(Err(error)) => stderr.push(format!("\n[{error}]").as_bytes()),
            None => {}
        }
        stderr.end();
        if !matches!(exit, Some(Ok(_))) {
            let kill = async { sandbox.processes()?.kill_process(&id).await };
            let killed = timeout(KILL_TIMEOUT, kill).await;
            tracing::debug!(program = %id, ?killed, "killed a tool server in the sandbox");
        }
    }
}

fn describe(exit: &ProcessExit) -> String {
    match exit {
        ProcessExit { error: Some(error), .. } => format!("\n[{error}]"),
        ProcessExit { code: Some(code), .. } => format!("\n[it exited with {code}]"),
        ProcessExit { signal: Some(signal), .. } => format!("\n[killed by signal {signal}]"),
        ProcessExit { reason: ExitReason::Exited, .. } => "\n[it exited]".to_owned(),
        ProcessExit { .. } => "\n[it was terminated]".to_owned(),
    }
}

/// Sender of the program's stdout. Unread output is limited.
struct StdoutSender {
    chunks: mpsc::UnboundedSender<Bytes>,
    unread: Arc<AtomicUsize>,
}

impl StdoutSender {
    /// Returns whether the output was accepted.
    fn push(&self, bytes: &[u8]) -> bool {
        let unread = self.unread.fetch_add(bytes.len(), Ordering::Relaxed).saturating_add(bytes.len());
        // The receiver is dropped when the server is being stopped.
        unread <= MAX_UNREAD_BYTES && self.chunks.send(Bytes::copy_from_slice(bytes)).is_ok()
    }
}

fn unread_output() -> (StdoutSender, impl AsyncRead + Send + Unpin + 'static) {
    // Limited by its bytes, not by its length.
    let (chunks, received) = mpsc::unbounded_channel::<Bytes>();
    let unread = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&unread);
    let unread_chunks = stream::unfold(received, move |mut received| {
        let counted = Arc::clone(&counted);
        async move {
            let chunk = received.recv().await?;
            counted.fetch_sub(chunk.len(), Ordering::Relaxed);
            Some((Ok::<_, std::io::Error>(chunk), received))
        }
    });
    (StdoutSender { chunks, unread }, StreamReader::new(Box::pin(unread_chunks)))
}
