//! Common parts of all backends: the names of sandboxes, checks of a spec, and errors.

use std::io;
use std::path::{Path, PathBuf};

use engine::sandbox::SandboxError;
use http::HeaderValue;
use protocol::{ConversationId, SandboxId};
use rustix::fs::Access;
use secrecy::{ExposeSecret, SecretString};

/// Maximum length of the logs in an error, in bytes. Older lines are dropped.
pub const MAX_LOG_BYTES: usize = 64 << 10;

/// Repository of unnamed snapshots. The tag is a prefix of their id.
pub const SNAPSHOT_REPOSITORY: &str = "glovebox-snapshot";

const PREFIX: &str = "glovebox-";

/// Returns the id of a conversation's sandbox. It never changes, so that a sandbox is found after a
/// crash.
///
/// # Errors
/// The id is too long.
pub fn sandbox_id_of(conversation: &ConversationId) -> Result<SandboxId, SandboxError> {
    format!("{PREFIX}{conversation}").parse().map_err(|error| {
        start_error(format!(
            "cannot use the conversation id {conversation} in a sandbox id: {error}"
        ))
    })
}

/// Returns the conversation of a sandbox. `None` if it was not created by this program.
pub fn conversation_of(sandbox: &str) -> Option<ConversationId> {
    sandbox.strip_prefix(PREFIX)?.parse().ok()
}

/// Checks that this process can use a folder as workspace. Rejects a path with links: callers
/// resolve the paths of users, so that a link was created later, possibly by an earlier sandbox
/// with write access to a parent folder.
///
/// # Errors
/// [`SandboxError::Start`] if the path has links, is not a folder, or is not accessible.
pub fn check_workspace(path: &Path) -> Result<PathBuf, SandboxError> {
    let workspace = path.canonicalize().and_then(|resolved| {
        if resolved != path {
            return Err(io::Error::other(format!(
                "it is a link to {}",
                resolved.display()
            )));
        }
        if !resolved.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        rustix::fs::access(
            &resolved,
            Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK,
        )?;
        Ok(resolved)
    });
    workspace.map_err(|error| unusable_workspace(path, error))
}

/// Returns the start error for a workspace that cannot be used.
pub fn unusable_workspace(path: &Path, reason: impl std::fmt::Display) -> SandboxError {
    start_error(format!(
        "cannot use the workspace {}: {reason}",
        path.display()
    ))
}

/// Returns a start error without logs.
pub fn start_error(detail: impl Into<String>) -> SandboxError {
    SandboxError::Start {
        detail: detail.into(),
        logs: String::new(),
    }
}

/// Adds the logs of a sandbox to the error of its start.
pub fn with_logs(error: SandboxError, logs: String) -> SandboxError {
    match error {
        SandboxError::Start { detail, .. } => SandboxError::Start { detail, logs },
        // A new server that rejects its key has not started properly.
        SandboxError::Refused { detail } => SandboxError::Start { detail, logs },
        other => other,
    }
}

/// Maximum length of a server's message in an error, in characters.
const MAX_QUOTED_CHARS: usize = 1024;

/// Prepares a server's message for one line of a terminal: truncated, and without control
/// characters.
pub fn quote(text: &str) -> String {
    text.chars()
        .take(MAX_QUOTED_CHARS)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Returns a secret as a header value that is neither logged nor compressed. `None` if a header
/// cannot carry it.
pub fn secret_header(secret: &SecretString) -> Option<HeaderValue> {
    let mut header = HeaderValue::from_str(secret.expose_secret()).ok()?;
    header.set_sensitive(true);
    Some(header)
}

#[cfg(test)]
mod tests {
    use super::{check_workspace, conversation_of, sandbox_id_of};

    #[test]
    fn sandbox_id_and_conversation_id_convert_both_ways() {
        let conversation = "019a-b.c".parse().unwrap();
        let sandbox = sandbox_id_of(&conversation).unwrap();
        assert_eq!(sandbox.as_str(), "glovebox-019a-b.c");
        assert_eq!(conversation_of(sandbox.as_str()), Some(conversation));
        assert_eq!(conversation_of("other"), None);
        assert!(sandbox_id_of(&"x".repeat(128).parse().unwrap()).is_err());
    }

    #[test]
    fn workspace_error_contains_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        for path in [folder.path().join("missing"), file, link] {
            let error = check_workspace(&path).unwrap_err().to_string();
            assert!(
                error.contains(&format!("cannot use the workspace {}: ", path.display())),
                "{error}"
            );
        }
        assert!(check_workspace(folder.path()).is_ok());
    }
}
