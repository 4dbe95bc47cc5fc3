//! Wraps a sandbox. Injects the secrets that a command names, and redacts all secrets from the
//! output and the results of actions.
//!
//! Does not redact what a user does directly: programs, files, terminals and ports.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use protocol::record::SandboxLeased;
use protocol::sandbox_api::ActionRequest;
use protocol::{ActionId, Observation};

use super::{Redactor, SecretRegistry, StreamRedactor};
use crate::sandbox::{
    OnOutput, OutputChunk, Sandbox, SandboxError, SandboxFiles, SandboxProcesses, SandboxStreams,
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
    /// Forwards the output that is known to be safe. Offsets refer to the original output, although
    /// redaction changes its length.
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
        let redactor = Mutex::new(OutputRedactor {
            stream: StreamRedactor::new(self.redactor.clone()),
            end: 0,
        });
        let lock = || redactor.lock().unwrap_or_else(PoisonError::into_inner);
        let with_secrets = self.registry.inject_secrets(request);
        let request = with_secrets.as_ref().unwrap_or(request);
        let result = self
            .sandbox
            .execute(id, request, &|chunk| lock().redact(chunk, on_output))
            .await;
        lock().finish(on_output);
        let observation = result.map_err(|error| redact_error(&self.redactor, error))?;
        let malformed = |error: serde_json::Error| SandboxError::Malformed {
            detail: error.to_string(),
        };
        self.redactor.observation(observation).map_err(malformed)
    }

    async fn cancel(&self, id: &ActionId) -> Result<(), SandboxError> {
        self.sandbox.cancel(id).await
    }

    async fn check_connection(&self) -> Result<(), SandboxError> {
        self.sandbox.check_connection().await
    }

    fn processes(&self) -> Result<&dyn SandboxProcesses, SandboxError> {
        self.sandbox.processes()
    }

    fn streams(&self) -> Result<&dyn SandboxStreams, SandboxError> {
        self.sandbox.streams()
    }

    fn files(&self) -> Result<&dyn SandboxFiles, SandboxError> {
        self.sandbox.files()
    }
}

/// Redacts an error that quotes output of the sandbox.
pub(super) fn redact_error(redactor: &Redactor, error: SandboxError) -> SandboxError {
    let text = |text: String| redactor.text(&text).into_owned();
    match error {
        SandboxError::Start { detail, logs } => SandboxError::Start {
            detail: text(detail),
            logs: text(logs),
        },
        SandboxError::Lost { detail } => SandboxError::Lost {
            detail: text(detail),
        },
        SandboxError::Unreachable { detail } => SandboxError::Unreachable {
            detail: text(detail),
        },
        SandboxError::Refused { detail } => SandboxError::Refused {
            detail: text(detail),
        },
        SandboxError::NoProgram { detail, exists } => SandboxError::NoProgram {
            detail: text(detail),
            exists,
        },
        SandboxError::Invalid { detail } => SandboxError::Invalid {
            detail: text(detail),
        },
        SandboxError::Malformed { detail } => SandboxError::Malformed {
            detail: text(detail),
        },
        other => other,
    }
}
