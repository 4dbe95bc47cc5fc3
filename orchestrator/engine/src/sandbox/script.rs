//! Runs scripts in a sandbox, with bounds on time and output.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use protocol::ProcessId;
use protocol::sandbox_api::{ExitReason, OutputStream, ProcessExit, ProcessRequest};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{OutputChunk, Sandbox, SandboxError, SandboxProcesses};

/// Additional time for the sandbox to report the exit.
const EXIT_GRACE_PERIOD: Duration = Duration::from_secs(5);

/// Time for the sandbox to kill a script.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// A POSIX shell script that Glovebox runs for itself.
#[derive(Debug, Clone, Copy)]
pub struct Script<'a> {
    /// Its text, for a POSIX shell.
    pub text: &'a str,
    /// Its arguments, from `$1`.
    pub arguments: &'a [&'a str],
    /// Its timeout. The sandbox enforces it, also if this host no longer waits.
    pub timeout: Duration,
    /// Maximum size of its standard output.
    pub max_output_bytes: usize,
}

/// The result of a script.
#[derive(Debug)]
pub enum ScriptResult {
    /// It exited with this code.
    Exited {
        /// -1 if a signal terminated it.
        code: i32,
        /// Its standard output.
        output: Vec<u8>,
    },
    /// It wrote more than the maximum, and was killed.
    TooMuchOutput,
    /// It did not exit in time, and was killed.
    TimedOut,
}

impl Script<'_> {
    /// Runs the script. Its standard error is dropped.
    ///
    /// # Errors
    /// See [`SandboxError`].
    pub async fn run(self, sandbox: &dyn Sandbox) -> Result<ScriptResult, SandboxError> {
        let processes = sandbox.processes()?;
        let id = ProcessId::try_from(format!("script-{}", uuid::Uuid::now_v7().simple())).map_err(
            |error| SandboxError::Malformed {
                detail: error.to_string(),
            },
        )?;
        let request = ProcessRequest {
            timeout_seconds: Some(self.timeout.as_secs_f64()),
            ..ProcessRequest::new(
                ["sh", "-c", self.text, "sh"]
                    .iter()
                    .chain(self.arguments)
                    .copied(),
            )
        };
        let output = Mutex::new(Vec::new());
        let is_full = CancellationToken::new();
        let collect = |stream: OutputStream, chunk: OutputChunk<'_>| match (stream, chunk) {
            (OutputStream::Stdout, OutputChunk::Bytes { bytes, .. }) => {
                let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
                if output.len() + bytes.len() > self.max_output_bytes {
                    is_full.cancel();
                } else {
                    output.extend(bytes);
                }
            }
            (OutputStream::Stdout, OutputChunk::Gap { .. }) => is_full.cancel(),
            (OutputStream::Stderr, _) => {}
        };
        let exit = tokio::select! {
            biased;
            () = is_full.cancelled() => None,
            exit = timeout(self.timeout + EXIT_GRACE_PERIOD, processes.exec(&id, &request, None, &collect)) => Some(exit),
        };
        match exit {
            _ if is_full.is_cancelled() => {
                kill(processes, &id).await;
                Ok(ScriptResult::TooMuchOutput)
            }
            Some(Ok(exit)) => Ok(to_result(
                &exit?,
                output.into_inner().unwrap_or_else(PoisonError::into_inner),
            )),
            Some(Err(_)) | None => {
                kill(processes, &id).await;
                Ok(ScriptResult::TimedOut)
            }
        }
    }
}

fn to_result(exit: &ProcessExit, output: Vec<u8>) -> ScriptResult {
    match exit.reason {
        ExitReason::TimedOut => ScriptResult::TimedOut,
        _ => ScriptResult::Exited {
            code: exit.code.unwrap_or(-1),
            output,
        },
    }
}

async fn kill(processes: &dyn SandboxProcesses, id: &ProcessId) {
    let killed = timeout(KILL_TIMEOUT, processes.kill_process(id)).await;
    if !matches!(killed, Ok(Ok(()))) {
        tracing::warn!(process = %id, ?killed, "cannot kill a script: the sandbox ends it after its timeout");
    }
}
