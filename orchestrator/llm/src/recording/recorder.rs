//! Writes each call of a model to a file.
//!
//! The folder may be in the workspace, where programs in the sandbox can rename it and create
//! links. So the folder and each file are opened once, and no path is resolved again.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use engine::llm::{Completion, Llm, LlmError, LlmProgress, LlmRequest};
use serde_json::json;

use super::call::{CallResult, RecordedCall, request_to_json};
use super::{MAX_CALLS, RecordingError, RecordingRedaction, list_files};

/// A model whose calls are recorded. An error of writing a file is logged and does not fail the
/// call, which is paid for.
pub struct RecordingLlm {
    inner: Arc<dyn Llm>,
    /// The path, for messages.
    folder: PathBuf,
    opened_folder: Arc<File>,
    redaction: RecordingRedaction,
    /// The number of the next call, unless another process has used it.
    next: Arc<AtomicU64>,
}

impl RecordingLlm {
    /// Appends calls to `folder`, which is created if it is missing. Several processes can record
    /// into it concurrently.
    ///
    /// # Errors
    /// [`RecordingError::Folder`].
    pub fn new(
        inner: Arc<dyn Llm>,
        folder: &Path,
        redaction: RecordingRedaction,
    ) -> Result<Self, RecordingError> {
        let folder_error = |source| RecordingError::Folder {
            folder: folder.to_owned(),
            source,
        };
        std::fs::create_dir_all(folder).map_err(folder_error)?;
        let last = list_files(folder)?.last().map_or(0, |(number, _)| *number);
        Ok(Self {
            inner,
            folder: folder.to_owned(),
            opened_folder: Arc::new(File::open(folder).map_err(folder_error)?),
            redaction,
            next: Arc::new(AtomicU64::new(last.saturating_add(1))),
        })
    }

    /// Claims the next number before the call, so that files are in the order in which calls
    /// started.
    async fn claim(&self) -> std::io::Result<DraftFile> {
        let (folder, next) = (Arc::clone(&self.opened_folder), Arc::clone(&self.next));
        run_blocking(move || DraftFile::next(folder, &next)).await
    }

    async fn write(
        &self,
        draft: DraftFile,
        request: &LlmRequest,
        result: &Result<Completion, LlmError>,
    ) -> std::io::Result<()> {
        let call = RecordedCall {
            model: self.inner.model().to_owned(),
            request: request_to_json(request),
            outcome: CallResult::from(result)
                .map_response(|response| self.redaction.placeholders.replace_secrets(response)),
        };
        let call = self.redaction.redact(json!(call));
        run_blocking(move || draft.finish(&format!("{call:#}\n"))).await
    }
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|panic| Err(std::io::Error::other(panic)))
}

/// An incomplete file under a temporary name. Removed when it is dropped.
struct DraftFile {
    content: File,
    draft: PathBuf,
    file: PathBuf,
    /// Keeps the descriptor open that both paths contain.
    _folder: Arc<File>,
}

impl DraftFile {
    /// Creates the next draft. Another process may record into the folder: a number is free if
    /// neither its draft nor its file, which a draft was renamed to, exists.
    fn next(opened_folder: Arc<File>, next: &AtomicU64) -> std::io::Result<Self> {
        let folder = PathBuf::from(format!("/proc/self/fd/{}", opened_folder.as_raw_fd()));
        for _ in 0..MAX_CALLS {
            let name = format!("{:06}.json", next.fetch_add(1, Ordering::Relaxed));
            let (draft, file) = (folder.join(format!(".{name}.draft")), folder.join(name));
            let content = match File::create_new(&draft) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                created => created?,
            };
            let claimed = Self {
                content,
                draft,
                file,
                _folder: Arc::clone(&opened_folder),
            };
            if !claimed.file.try_exists()? {
                return Ok(claimed);
            }
        }
        Err(std::io::Error::other("too many recorded calls"))
    }

    fn finish(mut self, text: &str) -> std::io::Result<()> {
        self.content.write_all(text.as_bytes())?;
        std::fs::rename(&self.draft, &self.file)
    }
}

impl Drop for DraftFile {
    fn drop(&mut self) {
        // It does not exist if the call was finished.
        let _ = std::fs::remove_file(&self.draft);
    }
}

#[async_trait]
impl Llm for RecordingLlm {
    fn model(&self) -> &str {
        self.inner.model()
    }

    fn max_cost(&self, request_tokens: u64) -> f64 {
        self.inner.max_cost(request_tokens)
    }

    async fn complete(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        let claimed = self.claim().await;
        let result = self.inner.complete(request, on_progress).await;
        let written = match claimed {
            Ok(draft) => self.write(draft, request, &result).await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            tracing::error!(folder = %self.folder.display(), %error, "cannot record a model call");
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_created_during_a_call_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("calls")).unwrap();
        std::fs::create_dir(path("elsewhere")).unwrap();
        std::fs::write(path("victim"), "precious").unwrap();
        let opened = Arc::new(File::open(path("calls")).unwrap());
        let draft = DraftFile::next(Arc::clone(&opened), &AtomicU64::new(1)).unwrap();
        let name = path("calls/.000001.json.draft");
        std::fs::remove_file(&name).unwrap();
        std::os::unix::fs::symlink(path("victim"), &name).unwrap();
        draft.finish("{}").unwrap();
        std::fs::rename(path("calls"), path("moved")).unwrap();
        std::os::unix::fs::symlink(path("elsewhere"), path("calls")).unwrap();
        DraftFile::next(opened, &AtomicU64::new(2))
            .unwrap()
            .finish("{}")
            .unwrap();
        assert_eq!(std::fs::read_to_string(path("victim")).unwrap(), "precious");
        assert_eq!(
            std::fs::read_to_string(path("moved/000002.json")).unwrap(),
            "{}"
        );
        assert_eq!(std::fs::read_dir(path("elsewhere")).unwrap().count(), 0);
    }
}
