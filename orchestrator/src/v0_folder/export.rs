//! Writes conversations into V0's folder.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use conversations::ConversationEntry;
use git_providers::repository_name;
use protocol::Event;
use protocol::record::ConversationStarted;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde_json::{Value, json};

/// A folder to which conversations are exported.
pub(crate) struct V0Export {
    folder: PathBuf,
    sessions: PathBuf,
}

/// Whether a conversation was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exported {
    /// The conversation was written.
    Written,
    /// The folder has one of this id.
    Exists,
}

impl V0Export {
    /// Opens a folder, and creates `sessions` in it.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let sessions = folder.join("sessions");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&sessions)?;
        Ok(Self {
            folder: folder.to_owned(),
            sessions,
        })
    }

    /// Writes a conversation. Its folder appears when it is complete. Events have ids from 0
    /// without gaps.
    pub(crate) fn write(
        &self,
        entry: &ConversationEntry,
        started: Option<&ConversationStarted>,
        events: &[Event],
    ) -> io::Result<Exported> {
        let target = self.sessions.join(entry.id());
        if target.symlink_metadata().is_ok() {
            return Ok(Exported::Exists);
        }
        // Not in `sessions`: V0 would take it for a conversation.
        let draft = tempfile::Builder::new()
            .prefix(".export-")
            .tempdir_in(&self.folder)?;
        let conversation = draft.path().join("conversation");
        DirBuilder::new().mode(0o700).create(&conversation)?;
        fs::write(
            conversation.join("metadata.json"),
            metadata(entry, started).to_string(),
        )?;
        let folder = conversation.join("events");
        fs::create_dir(&folder)?;
        for event in events {
            fs::write(
                folder.join(format!("{}.json", event.id)),
                serde_json::to_vec(event)?,
            )?;
        }
        match renameat_with(CWD, &conversation, CWD, &target, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(Exported::Written),
            Err(Errno::EXIST) => Ok(Exported::Exists),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns V0's metadata of a conversation.
fn metadata(entry: &ConversationEntry, started: Option<&ConversationStarted>) -> Value {
    let (summary, overview) = (entry.summary.as_ref(), entry.overview.as_ref().ok());
    let git_provider = started.and_then(|started| started.git_provider);
    let repository = overview.and_then(|overview| overview.repository.as_deref());
    json!({
        "conversation_id": entry.id(),
        "title": overview.map(|overview| overview.title()),
        "user_id": overview.and_then(|overview| overview.owner.as_ref()),
        "selected_repository": repository.map(|url| repository_name(git_provider, url)),
        "selected_branch": overview.and_then(|overview| overview.branch.as_ref()),
        "git_provider": git_provider,
        "trigger": started.and_then(|started| started.trigger),
        "pr_number": [],
        "llm_model": overview.and_then(|overview| overview.model.as_ref()),
        "created_at": summary.map(|summary| summary.created_at.with_utc_zone()),
        "last_updated_at": summary.map(|summary| summary.last_updated_at.with_utc_zone()),
        "accumulated_cost": overview.map(|overview| overview.cost()),
    })
}
