//! Byte stream to a server in a container: the standard streams of an exec of `action-server dial`.
//!
//! `dial` exits at the end of its input, so that dropping the stream leaves no process.

use std::future::ready;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use bytes::Bytes;
use engine::sandbox::ByteStream;
use futures_util::{Stream, StreamExt};
use sandbox_client::{ConnectError, Connector, expect_greeting};
use tokio_util::io::StreamReader;

use super::container::{SERVER, SERVER_PID, SOCKET};
use super::engine::{Engine, error_message, status};

/// Buffer size of output. The default of 8 KiB halves the throughput.
const OUTPUT_CAPACITY: usize = 64 << 10;

/// Maximum part of the dial's standard error that is kept for an error message.
const MAX_STDERR_BYTES: usize = 4 << 10;

/// Opens streams to the server of one container.
pub(super) struct ExecStream {
    engine: Engine,
    /// Container name, or its id if the name is going to change.
    container: String,
}

impl ExecStream {
    pub(super) fn new(engine: Engine, container: impl Into<String>) -> Self {
        Self {
            engine,
            container: container.into(),
        }
    }

    async fn refused(&self, operation: &'static str, error: &Error) -> ConnectError {
        // 409: not running, or paused. The container's state distinguishes them.
        match status(error) {
            Some(404 | 409) => match self.engine.termination_reason(&self.container).await {
                Some(ended) => ConnectError::Gone(ended),
                None if self.engine.is_paused(&self.container).await == Some(true) => {
                    ConnectError::Paused(format!("the container {} is paused", self.container))
                }
                None => self.failed(operation, error_message(error)),
            },
            Some(_) => self.failed(operation, error_message(error)),
            None => ConnectError::Unknown(format!(
                "the engine does not answer: {}",
                error_message(error)
            )),
        }
    }

    fn failed(&self, operation: &'static str, reason: String) -> ConnectError {
        let subject = format!("`action-server dial` in the container {}", self.container);
        ConnectError::Failed {
            operation,
            subject,
            source: io::Error::other(reason),
        }
    }

    /// Returns why no greeting arrived: the container has stopped, or the dial failed with a
    /// message and an exit code.
    async fn greeting_error(
        &self,
        exec: &str,
        error: impl std::fmt::Display,
        complaint: &StderrPrefix,
    ) -> ConnectError {
        if let Some(ended) = self.engine.termination_reason(&self.container).await {
            return ConnectError::Gone(ended);
        }
        let code = self
            .engine
            .docker
            .inspect_exec(exec)
            .await
            .ok()
            .and_then(|exec| exec.exit_code);
        let code = code
            .map(|code| format!(", exit code {code}"))
            .unwrap_or_default();
        self.failed("run", format!("{error}{code}{}", complaint.text()))
    }
}

#[async_trait]
impl Connector for ExecStream {
    async fn connect(&self) -> Result<Box<dyn ByteStream>, ConnectError> {
        let options = CreateExecOptions {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            cmd: Some(vec![
                SERVER,
                "dial",
                "--socket",
                SOCKET,
                "--server-pid",
                SERVER_PID,
            ]),
            ..CreateExecOptions::default()
        };
        let docker = &self.engine.docker;
        let exec = match docker.create_exec(&self.container, options).await {
            Ok(exec) => exec.id,
            Err(error) => return Err(self.refused("create", &error).await),
        };
        let start = StartExecOptions {
            output_capacity: Some(OUTPUT_CAPACITY),
            ..StartExecOptions::default()
        };
        let (output, input) = match docker.start_exec(&exec, Some(start)).await {
            Ok(StartExecResults::Attached { output, input }) => (output, input),
            Ok(StartExecResults::Detached) => {
                return Err(self.failed("run", "the engine detached it".into()));
            }
            Err(error) => return Err(self.refused("run", &error).await),
        };
        let complaint = StderrPrefix::default();
        let mut output = StreamReader::new(Box::pin(stdout(output, complaint.clone())));
        match expect_greeting(&mut output).await {
            Ok(()) => Ok(Box::new(tokio::io::join(output, input))),
            Err(error) => Err(self.greeting_error(&exec, error, &complaint).await),
        }
    }
}

/// Returns the bytes of standard output, and records standard error.
fn stdout(
    output: impl Stream<Item = Result<LogOutput, Error>>,
    complaint: StderrPrefix,
) -> impl Stream<Item = io::Result<Bytes>> {
    output.filter_map(move |piece| {
        ready(match piece {
            // Output without a frame header is an error message of the engine, which the greeting
            // check quotes.
            Ok(LogOutput::StdOut { message } | LogOutput::Console { message }) => Some(Ok(message)),
            Ok(LogOutput::StdErr { message }) => {
                complaint.add(&message);
                None
            }
            Ok(LogOutput::StdIn { .. }) => None,
            Err(error) => Some(Err(io::Error::other(error))),
        })
    })
}

/// Start of the standard error. Locked only to copy bytes, never across an await.
#[derive(Clone, Default)]
struct StderrPrefix(Arc<Mutex<Vec<u8>>>);

impl StderrPrefix {
    fn add(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_STDERR_BYTES.saturating_sub(kept.len());
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match String::from_utf8_lossy(&kept).trim() {
            "" => String::new(),
            text => format!(", and on stderr: {text:?}"),
        }
    }
}
