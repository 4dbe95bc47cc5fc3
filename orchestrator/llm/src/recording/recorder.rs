//! Writes each call of a model to a file.
//!
//! The folder may lie in the workspace, where what runs in the sandbox can rename it and put links into it. So it is opened
//! once, and so is each file: no path is resolved again.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use engine::llm::{Completion, Llm, LlmError, LlmProgress, LlmRequest};
use serde_json::json;

use super::call::{Call, Outcome, described};
use super::{MOST_CALLS, RecordingError, RecordingRedaction, files};

/// A model whose calls are recorded. A file that cannot be written is told in the log of the program, and the call goes on:
/// it was paid for.
pub struct RecordingLlm {
    inner: Arc<dyn Llm>,
    /// As it was given, for messages.
    folder: PathBuf,
    opened_folder: Arc<File>,
    redaction: RecordingRedaction,
    /// The number of the next call, unless another has it.
    next: Arc<AtomicU64>,
}

impl RecordingLlm {
    /// Records into `folder`, which is made if it is not there; calls that are in it stay, and these follow them.
    /// Others may record into it at the same time.
    ///
    /// # Errors
    /// [`RecordingError::Folder`].
    pub fn new(
        inner: Arc<dyn Llm>,
        folder: &Path,
        redaction: RecordingRedaction,
    ) -> Result<Self, RecordingError> {
        let unusable = |source| RecordingError::Folder { folder: folder.to_owned(), source };
        std::fs::create_dir_all(folder).map_err(unusable)?;
        let last = files(folder)?.last().map_or(0, |(number, _)| *number);
        Ok(Self {
            inner,
            folder: folder.to_owned(),
            opened_folder: Arc::new(File::open(folder).map_err(unusable)?),
            redaction,
            next: Arc::new(AtomicU64::new(last.saturating_add(1))),
        })
    }

    /// Claims the next number, before the call: files are in the order in which calls began.
    async fn claim(&self) -> std::io::Result<Draft> {
        let (folder, next) = (Arc::clone(&self.opened_folder), Arc::clone(&self.next));
        on_disk(move || Draft::next(folder, &next)).await
    }

    async fn write(
        &self,
        draft: Draft,
        request: &LlmRequest,
        result: &Result<Completion, LlmError>,
    ) -> std::io::Result<()> {
        let call = Call {
            model: self.inner.model().to_owned(),
            request: described(request),
            outcome: Outcome::from(result)
                .map_response(|response| self.redaction.placeholders.replace_secrets(response)),
        };
        let call = self.redaction.redact(json!(call));
        on_disk(move || draft.finish(&format!("{call:#}\n"))).await
    }
}

async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|panic| Err(std::io::Error::other(panic)))
}

/// A file that is not whole yet, under another name. Removed when it is dropped.
struct Draft {
    content: File,
    draft: PathBuf,
    file: PathBuf,
    /// What both paths lead through.
    _folder: Arc<File>,
}

impl Draft {
    /// Others may record into the folder too: a number is this one's if its draft was not there and neither is its file,
    /// which would have been renamed from a draft.
    fn next(opened_folder: Arc<File>, next: &AtomicU64) -> std::io::Result<Self> {
        let folder = PathBuf::from(format!("/proc/self/fd/{}", opened_folder.as_raw_fd()));
        for _ in 0..MOST_CALLS {
            let name = format!("{:06}.json", next.fetch_add(1, Ordering::Relaxed));
            let (draft, file) = (folder.join(format!(".{name}.draft")), folder.join(name));
            let content = match File::create_new(&draft) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                created => created?,
            };
            let claimed = Self { content, draft, file, _folder: Arc::clone(&opened_folder) };
            if !claimed.file.try_exists()? {
                return Ok(claimed);
            }
        }
        Err(std::io::Error::other("there are too many recorded calls"))
    }

    fn finish(mut self, text: &str) -> std::io::Result<()> {
        self.content.write_all(text.as_bytes())?;
        std::fs::rename(&self.draft, &self.file)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // When it was finished it is not there any more.
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
            tracing::error!(folder = %self.folder.display(), %error, "a call could not be recorded");
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_planted_meanwhile_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("calls")).unwrap();
        std::fs::create_dir(path("elsewhere")).unwrap();
        std::fs::write(path("victim"), "precious").unwrap();
        let opened = Arc::new(File::open(path("calls")).unwrap());
        let draft = Draft::next(Arc::clone(&opened), &AtomicU64::new(1)).unwrap();
        let name = path("calls/.000001.json.draft");
        std::fs::remove_file(&name).unwrap();
        std::os::unix::fs::symlink(path("victim"), &name).unwrap();
        draft.finish("{}").unwrap();
        std::fs::rename(path("calls"), path("moved")).unwrap();
        std::os::unix::fs::symlink(path("elsewhere"), path("calls")).unwrap();
        Draft::next(opened, &AtomicU64::new(2)).unwrap().finish("{}").unwrap();
        assert_eq!(std::fs::read_to_string(path("victim")).unwrap(), "precious");
        assert_eq!(std::fs::read_to_string(path("moved/000002.json")).unwrap(), "{}");
        assert_eq!(std::fs::read_dir(path("elsewhere")).unwrap().count(), 0);
    }
}
