//! Records calls of a model to files ([`RecordingLlm`]), and replays them ([`ReplayLlm`]), so that
//! an agent can be tested without a provider.
//!
//! A folder has a JSON file per call, `000001.json` and so on, in the order in which the calls
//! started: the model, the request, and the response or the error after all retries. A cancelled
//! call has no file.
//!
//! Files are redacted like the event log. A secret in a response is replaced by a placeholder,
//! which replay replaces by the secret, so that a command with a secret works again.

mod call;
mod difference;
mod recorder;
mod replay;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use engine::secrets::{Placeholders, Redactor};
use protocol::ConversationId;
use serde_json::Value;

pub use recorder::RecordingLlm;
pub use replay::ReplayLlm;

/// Replaces the conversation's id in a recording.
const CONVERSATION: &str = "<conversation_id>";

/// Redaction of recorded calls.
#[derive(Debug, Clone, Default)]
pub struct RecordingRedaction {
    /// Redacts the request and the response.
    pub redactor: Redactor,
    /// Replaces secrets in the response, before it is redacted.
    pub placeholders: Placeholders,
    /// The conversation. Its id, which may be part of paths in the sandbox, is replaced by a mark,
    /// so that the recording can be replayed in another conversation.
    pub conversation: Option<ConversationId>,
}

impl RecordingRedaction {
    /// Redacts a request or a call.
    fn redact(&self, value: Value) -> Value {
        let value = self.redactor.json(value);
        match &self.conversation {
            Some(id) => replace(&value, id.as_str(), CONVERSATION),
            None => value,
        }
    }

    /// Restores a recorded response.
    fn restore(&self, response: Value) -> Value {
        let response = self.placeholders.restore(response);
        match &self.conversation {
            Some(id) => replace(&response, CONVERSATION, id.as_str()),
            None => response,
        }
    }
}

/// Replaces a part of all texts. JSON escapes no character of the two parts.
fn replace(value: &Value, from: &str, to: &str) -> Value {
    serde_json::from_str(&value.to_string().replace(from, to)).unwrap_or_default()
}

/// Maximum number of calls in a folder: more than any conversation makes.
const MAX_CALLS: usize = 100_000;

/// Maximum size of a file, in bytes.
const MAX_CALL_BYTES: u64 = 256 << 20;

/// An error of a folder of recorded calls.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The folder cannot be created or read.
    #[error("cannot open the folder of recorded calls {folder}")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read the recorded call {file}")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file is not a recorded call.
    #[error("{file} is not a recorded call")]
    NotACall {
        /// The file.
        file: PathBuf,
        /// The cause, with the line and column.
        source: serde_json::Error,
    },
    /// The folder has no calls, or too many.
    #[error("the folder {folder} has {calls} recorded calls, not 1 to {MAX_CALLS}")]
    Count {
        /// The folder.
        folder: PathBuf,
        /// The number of calls.
        calls: usize,
    },
}

/// Returns the files of calls with their numbers, in order.
fn list_files(folder: &Path) -> Result<Vec<(u64, PathBuf)>, RecordingError> {
    let folder_error = |source| RecordingError::Folder {
        folder: folder.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(folder_error)? {
        let path = entry.map_err(folder_error)?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_suffix(".json"));
        if let Some(number) = name.and_then(|name| name.parse().ok()) {
            files.push((number, path));
        }
    }
    files.sort_unstable();
    Ok(files)
}
