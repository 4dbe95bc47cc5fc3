//! A byte stream to a server in a container: the standard streams of `action-server dial`, run there by the engine.
//!
//! Ends with the stream; the dial ends by itself when its input does.

use std::future::ready;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio_util::io::StreamReader;

use super::container::{SERVER, SERVER_PID, SOCKET};
use super::engine::{Engine, said, status};
use crate::connect::{ByteStream, ConnectError, Connector, expect_greeting};

/// The pieces in which output crosses; the default of 8 KiB costs half the throughput.
const OUTPUT_CAPACITY: usize = 64 << 10;

/// How much of what the dial complains about is kept for an error, in bytes.
const MAX_COMPLAINT: usize = 4 << 10;

/// Runs `action-server dial` in one container.
pub(super) struct ExecStream {
    engine: Engine,
    /// Its name, or its id where the name is going to change.
    container: String,
}

impl ExecStream {
    pub(super) fn new(engine: Engine, container: impl Into<String>) -> Self {
        Self { engine, container: container.into() }
    }

    async fn refused(&self, doing: &'static str, error: &Error) -> ConnectError {
        // 409: not running, or paused. Only the container's state tells which.
        match status(error) {
            Some(404 | 409) => match self.engine.end_of(&self.container).await {
                Some(ended) => ConnectError::Gone(ended),
                None if self.engine.is_paused(&self.container).await == Some(true) => {
                    ConnectError::Paused(format!("the container {} is paused", self.container))
                }
                None => self.failed(doing, said(error)),
            },
            Some(_) => self.failed(doing, said(error)),
            None => ConnectError::Unknown(format!("the engine does not answer: {}", said(error))),
        }
    }

    fn failed(&self, doing: &str, reason: String) -> ConnectError {
        let doing = format!("{doing} in the container {}", self.container);
        ConnectError::Failed { doing, source: io::Error::other(reason) }
    }

    /// Why no greeting came: the container has ended, or the dial says why, by its words and its exit code.
    async fn unwelcome(
        &self,
        exec: &str,
        error: impl std::fmt::Display,
        complaint: &Complaint,
    ) -> ConnectError {
        if let Some(ended) = self.engine.end_of(&self.container).await {
            return ConnectError::Gone(ended);
        }
        let code = self.engine.docker.inspect_exec(exec).await.ok().and_then(|exec| exec.exit_code);
        let code = code.map(|code| format!(", exit code {code}")).unwrap_or_default();
        self.failed("running `action-server dial`", format!("{error}{code}{}", complaint.text()))
    }
}

#[async_trait]
impl Connector for ExecStream {
    async fn connect(&self) -> Result<Box<dyn ByteStream>, ConnectError> {
        let options = CreateExecOptions {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            cmd: Some(vec![SERVER, "dial", "--socket", SOCKET, "--server-pid", SERVER_PID]),
            ..CreateExecOptions::default()
        };
        let docker = &self.engine.docker;
        let exec = match docker.create_exec(&self.container, options).await {
            Ok(exec) => exec.id,
            Err(error) => return Err(self.refused("preparing `action-server dial`", &error).await),
        };
        let start =
            StartExecOptions { output_capacity: Some(OUTPUT_CAPACITY), ..StartExecOptions::default() };
        let (output, input) = match docker.start_exec(&exec, Some(start)).await {
            Ok(StartExecResults::Attached { output, input }) => (output, input),
            Ok(StartExecResults::Detached) => {
                return Err(self.failed("running `action-server dial`", "the engine detached it".into()));
            }
            Err(error) => return Err(self.refused("running `action-server dial`", &error).await),
        };
        let complaint = Complaint::default();
        let mut output = StreamReader::new(Box::pin(stdout(output, complaint.clone())));
        match expect_greeting(&mut output).await {
            Ok(()) => Ok(Box::new(tokio::io::join(output, input))),
            Err(error) => Err(self.unwelcome(&exec, error, &complaint).await),
        }
    }
}

/// The bytes of standard output; what comes on standard error is put aside.
fn stdout(
    output: impl Stream<Item = Result<LogOutput, Error>>,
    complaint: Complaint,
) -> impl Stream<Item = io::Result<Bytes>> {
    output.filter_map(move |piece| {
        ready(match piece {
            // Without a frame's head come the engine's own words: the greeting's check will quote them.
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

/// The beginning of what came on standard error. Locked only to copy bytes, never across a wait.
#[derive(Clone, Default)]
struct Complaint(Arc<Mutex<Vec<u8>>>);

impl Complaint {
    fn add(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_COMPLAINT.saturating_sub(kept.len());
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
