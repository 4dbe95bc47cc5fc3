//! Calls as files: written while a model is asked ([`RecordingLlm`]), and answered from later ([`ReplayLlm`]), so that what
//! an agent does can be a test without a provider.
//!
//! A folder holds one JSON file a call, `000001.json` and so on in the order in which the calls began: the model, the
//! request, and the answer or the error after all retries. Of a call that was cancelled there is none.
//!
//! Files are redacted as the log is, which the models read. In an answer a secret leaves a placeholder that is replaced by
//! the secret when the answer is replayed, so that a command that repeats one does the same again.

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

/// Stands for the conversation's id in a recording.
const CONVERSATION: &str = "<conversation_id>";

/// What keeps secrets out of recorded calls, and what is of one conversation only.
#[derive(Debug, Clone, Default)]
pub struct RecordingRedaction {
    /// For all of a call.
    pub redactor: Redactor,
    /// For the answer, before that.
    pub placeholders: Placeholders,
    /// The conversation whose calls these are. Its id is in paths of the sandbox, such as that of a workspace of its own; a
    /// recording holds a mark instead, so that it can be replayed in another conversation.
    pub conversation: Option<ConversationId>,
}

impl RecordingRedaction {
    /// A recorded request or call, from one that is made.
    fn redact(&self, value: Value) -> Value {
        let value = self.redactor.json(value);
        match &self.conversation {
            Some(id) => replace(&value, id.as_str(), CONVERSATION),
            None => value,
        }
    }

    /// The response to a call, from a recorded one.
    fn restore(&self, response: Value) -> Value {
        let response = self.placeholders.restore(response);
        match &self.conversation {
            Some(id) => replace(&response, CONVERSATION, id.as_str()),
            None => response,
        }
    }
}

/// Replaces a part of all texts. No character of either part is written otherwise in JSON.
fn replace(value: &Value, part: &str, by: &str) -> Value {
    serde_json::from_str(&value.to_string().replace(part, by)).unwrap_or_default()
}

/// More calls than any conversation makes.
const MOST_CALLS: usize = 100_000;

/// The longest file that is read, in bytes: an answer and the longest of requests.
const CALL_BYTES: u64 = 256 << 20;

/// What of a folder of recorded calls cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The folder cannot be made or read.
    #[error("the folder of recorded calls {folder}")]
    Folder {
        /// Which.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file cannot be read.
    #[error("reading the recorded call {file}")]
    Unreadable {
        /// Which.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not a recorded call.
    #[error("{file} is not a recorded call")]
    NotACall {
        /// Which.
        file: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// There is nothing to replay, or more than anybody records.
    #[error("the folder {folder} holds {calls} recorded calls, not 1 to {MOST_CALLS}")]
    Count {
        /// Which.
        folder: PathBuf,
        /// How many.
        calls: usize,
    },
}

/// The files of calls with their numbers, in order.
fn files(folder: &Path) -> Result<Vec<(u64, PathBuf)>, RecordingError> {
    let unusable = |source| RecordingError::Folder { folder: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unusable)? {
        let path = entry.map_err(unusable)?.path();
        let name =
            path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".json"));
        if let Some(number) = name.and_then(|name| name.parse().ok()) {
            files.push((number, path));
        }
    }
    files.sort_unstable();
    Ok(files)
}
