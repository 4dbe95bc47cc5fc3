//! A server that is a program in the sandbox. Its input and output use the connection to the action
//! server.
//!
//! A task supervises the program until it exits or is cancelled. If the connection breaks, the task
//! kills the program, because it is unknown how much of its input arrived.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use engine::sandbox::{ByteSource, OutputChunk, Sandbox};
use futures_util::stream;
use protocol::ProcessId;
use protocol::sandbox_api::{ExitReason, OutputStream, ProcessExit, ProcessRequest, ProcessStdin};
use secrecy::ExposeSecret as _;
use tokio::io::{AsyncRead, DuplexStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::io::StreamReader;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::stderr_tail::StderrTail;
use super::{ConnectError, EXIT_GRACE_PERIOD, MAX_MESSAGE_BYTES};
use crate::config::Program;

/// Size of the buffer of its input, in bytes.
const INPUT_BUFFER_BYTES: usize = 64 << 10;

/// Maximum unread output, in bytes: a message and the start of the next.
const MAX_UNREAD_BYTES: usize = 2 * MAX_MESSAGE_BYTES;

/// Timeout for killing a program.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// A started program. Killed on drop.
pub(crate) struct SandboxProgram {
    task: JoinHandle<()>,
    /// On drop, the task kills the program.
    kill_on_drop: DropGuard,
    stderr: StderrTail,
}

pub(super) fn start(
    program: &Program,
    sandbox: Arc<dyn Sandbox>,
) -> Result<
    (
        SandboxProgram,
        impl AsyncRead + Send + Unpin + 'static,
        DuplexStream,
    ),
    ConnectError,
> {
    let (input, stdin) = tokio::io::duplex(INPUT_BUFFER_BYTES);
    let (output, stdout) = stdout_channel();
    let cancel = CancellationToken::new();
    let stderr = StderrTail::default();
    let supervisor = Supervisor {
        id: format!("mcp-{}", uuid::Uuid::now_v7().simple()).try_into()?,
        request: request(program),
        sandbox,
        output,
        stderr: stderr.clone(),
        cancel: cancel.clone(),
    };
    // The task ends with the program, or soon after the guard is dropped.
    let task = tokio::spawn(supervisor.run(Box::new(input)));
    Ok((
        SandboxProgram {
            task,
            kill_on_drop: cancel.drop_guard(),
            stderr,
        },
        stdout,
        stdin,
    ))
}

impl SandboxProgram {
    pub(super) async fn stderr(&self) -> String {
        self.stderr.text().await
    }

    pub(super) async fn stop(mut self) {
        if timeout(EXIT_GRACE_PERIOD, &mut self.task).await.is_err() {
            drop(self.kill_on_drop);
            let _ = timeout(KILL_TIMEOUT, self.task).await;
        }
    }
}

fn request(program: &Program) -> ProcessRequest {
    let env: BTreeMap<_, _> = program
        .env
        .iter()
        .map(|(name, value)| (name.clone(), value.expose_secret().to_owned()))
        .collect();
    ProcessRequest {
        env,
        stdin: ProcessStdin::Pipe,
        ..ProcessRequest::new(std::iter::once(&program.command).chain(&program.args))
    }
}

/// Runs the program, and forwards its output.
struct Supervisor {
    id: ProcessId,
    request: ProcessRequest,
    sandbox: Arc<dyn Sandbox>,
    output: StdoutSender,
    stderr: StderrTail,
    cancel: CancellationToken,
}

impl Supervisor {
    async fn run(self, input: ByteSource) {
        let Self {
            id,
            request,
            sandbox,
            output,
            stderr,
            cancel,
        } = self;
        let on_output = |stream: OutputStream, chunk: OutputChunk<'_>| match (stream, chunk) {
            (OutputStream::Stderr, OutputChunk::Bytes { bytes, .. }) => stderr.push(bytes),
            (OutputStream::Stderr, OutputChunk::Gap { .. }) => {}
            (OutputStream::Stdout, OutputChunk::Bytes { bytes, .. }) if output.push(bytes) => {}
            // Lost output cannot be recovered, and corrupts the message stream.
            (OutputStream::Stdout, _) => cancel.cancel(),
        };
        let exec = async {
            sandbox
                .processes()?
                .exec(&id, &request, Some(input), &on_output)
                .await
        };
        let exit = tokio::select! {
            exit = exec => Some(exit),
            () = cancel.cancelled() => None,
        };
        if let Some(exit) = &exit {
            let result = exit.as_ref().map_or_else(ToString::to_string, describe);
            stderr.push(format!("\n[{result}]").as_bytes());
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
        ProcessExit {
            error: Some(error), ..
        } => error.clone(),
        ProcessExit {
            code: Some(code), ..
        } => format!("exited with code {code}"),
        ProcessExit {
            signal: Some(signal),
            ..
        } => format!("killed by signal {signal}"),
        ProcessExit {
            reason: ExitReason::Exited,
            ..
        } => "exited".to_owned(),
        ProcessExit { .. } => "terminated".to_owned(),
    }
}

/// Sending half of the program's stdout. Unread output is limited to [`MAX_UNREAD_BYTES`].
struct StdoutSender {
    chunks: mpsc::UnboundedSender<Bytes>,
    unread: Arc<AtomicUsize>,
}

impl StdoutSender {
    /// Returns whether the output was accepted.
    fn push(&self, bytes: &[u8]) -> bool {
        let unread = self
            .unread
            .fetch_add(bytes.len(), Ordering::Relaxed)
            .saturating_add(bytes.len());
        // The receiver is dropped when the server is being stopped.
        unread <= MAX_UNREAD_BYTES && self.chunks.send(Bytes::copy_from_slice(bytes)).is_ok()
    }
}

fn stdout_channel() -> (StdoutSender, impl AsyncRead + Send + Unpin + 'static) {
    // Bounded by its bytes and not by its number of chunks.
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
    (
        StdoutSender { chunks, unread },
        StreamReader::new(Box::pin(unread_chunks)),
    )
}
