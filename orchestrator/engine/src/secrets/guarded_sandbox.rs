//! Wraps a sandbox. Injects the secrets that a command names, and redacts all secrets from the output and the results of
//! actions.
//!
//! Does not redact what a user does directly: programs, files, terminals and ports.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use protocol::record::SandboxLeased;
use protocol::sandbox_api::{
    ActionRequest, FileMode, FileStatus, ListeningPort, ProcessExit, ProcessRequest, ServerInfo,
};
use protocol::{ActionId, Observation, ProcessId};

use super::{Redactor, SecretRegistry, StreamRedactor};
use crate::sandbox::{
    ByteSource, ByteStream, OnOutput, OnProgramOutput, OutputChunk, Sandbox, SandboxError, StreamTarget,
    TransferKind,
};

pub(super) struct GuardedSandbox {
    pub(super) sandbox: Box<dyn Sandbox>,
    pub(super) redactor: Redactor,
    pub(super) registry: SecretRegistry,
}

/// Redacts the output of an action chunk by chunk.
struct OutputRedactor {
    stream: StreamRedactor,
    /// The offset of the end of the original output, in bytes.
    end: u64,
}

impl OutputRedactor {
    /// Forwards the output that is known to be safe. Offsets refer to the original output, although redaction changes its
    /// length.
    fn redact(&mut self, chunk: OutputChunk<'_>, on_output: &OnOutput<'_>) {
        match chunk {
            OutputChunk::Bytes { offset, bytes } => {
                self.end = offset.saturating_add(bytes.len() as u64);
                forward(offset, &self.stream.push(bytes), on_output);
            }
            OutputChunk::Gap { from, to } => {
                self.finish(on_output);
                self.end = to;
                on_output(OutputChunk::Gap { from, to });
            }
        }
    }

    fn finish(&mut self, on_output: &OnOutput<'_>) {
        forward(self.end, &self.stream.finish(), on_output);
    }
}

fn forward(offset: u64, bytes: &[u8], on_output: &OnOutput<'_>) {
    if !bytes.is_empty() {
        on_output(OutputChunk::Bytes { offset, bytes });
    }
}

#[async_trait]
impl Sandbox for GuardedSandbox {
    fn lease(&self) -> &SandboxLeased {
        self.sandbox.lease()
    }

    async fn execute(
        &self,
        id: &ActionId,
        request: &ActionRequest,
        on_output: &OnOutput<'_>,
    ) -> Result<Observation, SandboxError> {
        let redactor =
            Mutex::new(OutputRedactor { stream: StreamRedactor::new(self.redactor.clone()), end: 0 });
        let lock = || redactor.lock().unwrap_or_else(PoisonError::into_inner);
        let with_secrets = self.registry.inject_secrets(request);
        let request = with_secrets.as_ref().unwrap_or(request);
        let result = self.sandbox.execute(id, request, &|chunk| lock().redact(chunk, on_output)).await;
        lock().finish(on_output);
        let observation = result.map_err(|error| redact_error(&self.redactor, error))?;
        let malformed = |error: serde_json::Error| SandboxError::Malformed { detail: error.to_string() };
        self.redactor.observation(observation).map_err(malformed)
    }

    async fn cancel(&self, id: &ActionId) -> Result<(), SandboxError> {
        self.sandbox.cancel(id).await
    }

    async fn info(&self) -> Result<ServerInfo, SandboxError> {
        self.sandbox.info().await
    }

    async fn set_environment(&self, variables: &BTreeMap<String, String>) -> Result<(), SandboxError> {
        self.sandbox.set_environment(variables).await
    }

    async fn exec(
        &self,
        id: &ProcessId,
        request: &ProcessRequest,
        stdin: Option<ByteSource>,
        on_output: &OnProgramOutput<'_>,
    ) -> Result<ProcessExit, SandboxError> {
        self.sandbox.exec(id, request, stdin, on_output).await
    }

    async fn kill_process(&self, id: &ProcessId) -> Result<(), SandboxError> {
        self.sandbox.kill_process(id).await
    }

    async fn open(&self, target: &StreamTarget) -> Result<Box<dyn ByteStream>, SandboxError> {
        self.sandbox.open(target).await
    }

    async fn ports(&self) -> Result<Vec<ListeningPort>, SandboxError> {
        self.sandbox.ports().await
    }

    async fn wait_for_port(&self, port: u16, timeout: Duration) -> Result<bool, SandboxError> {
        self.sandbox.wait_for_port(port, timeout).await
    }

    async fn status(&self, path: &str) -> Result<Option<FileStatus>, SandboxError> {
        self.sandbox.status(path).await
    }

    async fn download(&self, path: &str, kind: TransferKind) -> Result<ByteSource, SandboxError> {
        self.sandbox.download(path, kind).await
    }

    async fn upload(
        &self,
        path: &str,
        kind: TransferKind,
        mode: Option<FileMode>,
        content: ByteSource,
    ) -> Result<(), SandboxError> {
        self.sandbox.upload(path, kind, mode, content).await
    }
}

/// Redacts an error that quotes output of the sandbox.
pub(super) fn redact_error(redactor: &Redactor, error: SandboxError) -> SandboxError {
    let text = |text: String| redactor.text(&text).into_owned();
    match error {
        SandboxError::Start { detail, logs } => {
            SandboxError::Start { detail: text(detail), logs: text(logs) }
        }
        SandboxError::Lost { detail } => SandboxError::Lost { detail: text(detail) },
        SandboxError::Refused { detail } => SandboxError::Refused { detail: text(detail) },
        SandboxError::NoProgram { detail, exists } => {
            SandboxError::NoProgram { detail: text(detail), exists }
        }
        SandboxError::Malformed { detail } => SandboxError::Malformed { detail: text(detail) },
        other => other,
    }
}
