//! Replays calls from files.
//!
//! A call gets the result of the first unused recorded call with the same request. So a
//! conversation can be replayed from its start or from where it was resumed, and concurrent calls
//! can have any order. The error of a request that is not recorded, [`LlmErrorKind::NotRecorded`],
//! describes how it differs from the next recorded one.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use engine::llm::{Completion, Llm, LlmError, LlmErrorKind, LlmProgress, LlmRequest};
use serde_json::Value;

use super::call::{RecordedCall, request_to_json};
use super::difference::difference;
use super::{MAX_CALLS, RecordingError, RecordingRedaction, list_files};

/// A model that replays the calls of another one.
#[derive(Debug)]
pub struct ReplayLlm {
    model: String,
    /// Maximum cost of a recorded call.
    max_cost: f64,
    redaction: RecordingRedaction,
    /// Requests hold the whole conversation, so only their hashes are kept. Never locked across an
    /// await.
    calls: Mutex<Vec<RecordedRequest>>,
}

#[derive(Debug)]
struct RecordedRequest {
    file: PathBuf,
    request_hash: u64,
    is_used: bool,
}

impl ReplayLlm {
    /// Reads the calls of a folder.
    ///
    /// # Errors
    /// See [`RecordingError`].
    pub fn open(folder: &Path, redaction: RecordingRedaction) -> Result<Self, RecordingError> {
        let files = list_files(folder)?;
        if files.is_empty() || files.len() > MAX_CALLS {
            return Err(RecordingError::Count {
                folder: folder.to_owned(),
                calls: files.len(),
            });
        }
        let (mut model, mut max_cost) = (String::new(), 0.0_f64);
        let mut calls = Vec::with_capacity(files.len());
        for (_, file) in files {
            let call = RecordedCall::read(&file)?;
            calls.push(RecordedRequest {
                file,
                request_hash: hash(&call.request),
                is_used: false,
            });
            model = call.model;
            max_cost = max_cost.max(call.outcome.cost());
        }
        Ok(Self {
            model,
            max_cost,
            redaction,
            calls: Mutex::new(calls),
        })
    }

    /// Claims the file with the result of a request. `None` if no unused call has this request.
    fn claim(&self, request: &Value) -> Option<PathBuf> {
        let hash = hash(request);
        let mut calls = self.lock();
        let call = calls
            .iter_mut()
            .find(|call| !call.is_used && call.request_hash == hash)?;
        call.is_used = true;
        Some(call.file.clone())
    }

    fn next_unused(&self) -> Option<PathBuf> {
        self.lock()
            .iter()
            .find(|call| !call.is_used)
            .map(|call| call.file.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RecordedRequest>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Llm for ReplayLlm {
    fn model(&self) -> &str {
        &self.model
    }

    fn max_cost(&self, _request_tokens: u64) -> f64 {
        self.max_cost
    }

    async fn complete(
        &self,
        request: &LlmRequest,
        _on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        let request = self.redaction.redact(request_to_json(request));
        if let Some(file) = self.claim(&request) {
            let outcome = read_call(file).await?.outcome;
            return outcome
                .map_response(|response| self.redaction.restore(response))
                .into();
        }
        let Some(file) = self.next_unused() else {
            return Err(not_recorded("all recorded calls are used".to_owned()));
        };
        let name = file.display().to_string();
        let recorded = read_call(file).await?.request;
        let difference = difference(&recorded, &request).unwrap_or_default();
        Err(not_recorded(format!("{name}: {difference}")))
    }
}

async fn read_call(file: PathBuf) -> Result<RecordedCall, LlmError> {
    let read = tokio::task::spawn_blocking(move || RecordedCall::read(&file)).await;
    read.map_err(|error| not_recorded(error.to_string()))?
        .map_err(|error| {
            let cause = std::error::Error::source(&error)
                .map(|cause| format!(": {cause}"))
                .unwrap_or_default();
            not_recorded(format!("{error}{cause}"))
        })
}

fn not_recorded(detail: String) -> LlmError {
    LlmError {
        kind: LlmErrorKind::NotRecorded,
        detail,
        retry_after: None,
    }
}

/// Hashes the text of the JSON, in which the order of fields is fixed.
fn hash(request: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    request.to_string().hash(&mut hasher);
    hasher.finish()
}
