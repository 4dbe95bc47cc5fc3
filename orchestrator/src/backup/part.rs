//! The parts of a backup, each an entry of lines.

use protocol::ConversationId;

/// A part of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BackupPart {
    /// The events of a conversation.
    Conversation(ConversationId),
    /// Users.
    Users,
    /// Keys of users.
    Keys,
    /// Encrypted settings of users.
    Settings,
    /// The audit log.
    Audit,
}

const FOLDER: &str = "conversations/";
const FILE: &str = "/events.jsonl";

impl BackupPart {
    /// Returns the path of its entry.
    pub(super) fn path(&self) -> String {
        match self {
            // An id has up to 128 bytes: too many for the name of an entry, but not for its folder.
            Self::Conversation(id) => format!("{FOLDER}{id}{FILE}"),
            Self::Users => "users.jsonl".to_owned(),
            Self::Keys => "keys.jsonl".to_owned(),
            Self::Settings => "settings.jsonl".to_owned(),
            Self::Audit => "audit.jsonl".to_owned(),
        }
    }

    /// Returns the part with this path. `None` if no part has it.
    pub(super) fn from_path(path: &str) -> Option<Self> {
        if let Some(id) = path
            .strip_prefix(FOLDER)
            .and_then(|rest| rest.strip_suffix(FILE))
        {
            return id.parse().ok().map(Self::Conversation);
        }
        [Self::Users, Self::Keys, Self::Settings, Self::Audit]
            .into_iter()
            .find(|part| part.path() == path)
    }

    /// Returns the position of its kind in the order of a backup.
    pub(super) fn position(&self) -> u8 {
        match self {
            Self::Conversation(_) => 0,
            Self::Users => 1,
            Self::Keys => 2,
            Self::Settings => 3,
            Self::Audit => 4,
        }
    }

    /// Returns the maximum length of one of its lines, in bytes.
    pub(super) fn max_line_bytes(&self) -> usize {
        match self {
            Self::Conversation(_) => super::MAX_EVENT_BYTES,
            _ => super::MAX_RECORD_BYTES,
        }
    }
}
