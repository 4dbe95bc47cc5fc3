//! Writes each call of a model to a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use engine::llm::{Completion, Llm, LlmError, LlmProgress, LlmRequest};
use secrecy::SecretString;
use serde_json::json;

use super::call::{Call, Outcome, described, without};
use super::{RecordingError, files};
use crate::secrets::Secrets;

/// A model whose calls are recorded. A file that cannot be written is told in the log of the program, and the call goes on:
/// it was paid for.
pub struct RecordingLlm {
    inner: Arc<dyn Llm>,
    folder: PathBuf,
    secrets: Secrets,
    /// The number of the next call.
    next: AtomicU64,
}

impl RecordingLlm {
    /// Records into `folder`, which is made if it is not there; calls that are in it stay, and these follow them.
    ///
    /// # Errors
    /// [`RecordingError::Folder`].
    pub fn new(
        inner: Arc<dyn Llm>,
        folder: &Path,
        secrets: impl IntoIterator<Item = SecretString>,
    ) -> Result<Self, RecordingError> {
        let unusable = |source| RecordingError::Folder { folder: folder.to_owned(), source };
        std::fs::create_dir_all(folder).map_err(unusable)?;
        let last = files(folder)?.last().map_or(0, |(number, _)| *number);
        let secrets = Secrets::from_iter(secrets);
        Ok(Self { inner, folder: folder.to_owned(), secrets, next: AtomicU64::new(last.saturating_add(1)) })
    }

    async fn write(&self, number: u64, request: &LlmRequest, result: &Result<Completion, LlmError>) {
        let call = Call {
            model: self.inner.model().to_owned(),
            request: described(request, &self.secrets),
            outcome: Outcome::from(result),
        };
        let call = without(json!(call), &self.secrets);
        let (folder, name) = (self.folder.clone(), format!("{number:06}.json"));
        let written = tokio::task::spawn_blocking(move || {
            // Under another name until it is whole.
            let draft = folder.join(format!(".{name}.draft"));
            std::fs::write(&draft, format!("{call:#}\n"))?;
            std::fs::rename(draft, folder.join(name))
        });
        if let Ok(Err(error)) = written.await {
            tracing::error!(folder = %self.folder.display(), number, %error, "a call could not be recorded");
        }
    }
}

#[async_trait]
impl Llm for RecordingLlm {
    fn model(&self) -> &str {
        self.inner.model()
    }

    async fn complete(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let result = self.inner.complete(request, on_progress).await;
        self.write(number, request, &result).await;
        result
    }
}
