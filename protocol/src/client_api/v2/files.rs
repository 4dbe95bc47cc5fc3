//! Files of a conversation's workspace. A path is relative to the workspace, or absolute and below
//! it. A name that is not UTF-8 is listed with U+FFFD, and cannot be requested.

use serde::{Deserialize, Serialize};

use crate::sandbox_api::{FileKind, FileMode};

/// Selects a page of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct ListFiles {
    /// The folder. Empty for the workspace.
    pub path: String,
    /// The `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Maximum number of entries.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000, default = 200))]
    pub limit: usize,
}

impl Default for ListFiles {
    fn default() -> Self {
        Self {
            path: String::new(),
            after: None,
            limit: 200,
        }
    }
}

/// Some entries of a folder, sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileEntryPage {
    /// The entries.
    pub entries: Vec<FileEntry>,
    /// Where the next page starts. `None` if this is the last one.
    pub next: Option<String>,
    /// Whether the folder has more entries than the 10,000 that can be listed.
    pub is_truncated: bool,
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileEntry {
    /// Its name, without the folder.
    pub name: String,
    /// Its kind. Links are not followed.
    pub kind: FileKind,
    /// Size, in bytes.
    pub size: u64,
    /// Its permission bits.
    pub mode: FileMode,
    /// Time of the last modification, in milliseconds since the Unix epoch.
    pub modified_ms: i64,
    /// The target of a link. `None` for other kinds.
    pub target: Option<String>,
}

/// Names a file or folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "openapi",
    derive(utoipa::IntoParams, utoipa::ToSchema),
    into_params(parameter_in = Query)
)]
#[serde(deny_unknown_fields)]
pub struct FilePath {
    /// Its path.
    pub path: String,
}

/// Names a folder to pack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct ArchiveFolder {
    /// The folder. Empty for the workspace.
    pub path: String,
}

/// Selects a part of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct ReadFile {
    /// The file.
    pub path: String,
    /// The first byte. A part after the end of the file is empty.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", param(default = 0))]
    pub offset: u64,
    /// Maximum number of bytes. `None` for the rest of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
}

/// A request to rename or move a file, a link or a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MoveFile {
    /// Its path. A link is not followed.
    pub from: String,
    /// Its new path, with its name. Missing folders are created.
    pub to: String,
    /// Whether an existing file, or an empty folder, is replaced.
    #[serde(default)]
    pub overwrite: bool,
}

/// Names a file, a link or a folder to remove.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct RemoveFile {
    /// Its path. A link is not followed.
    pub path: String,
    /// Whether a folder is removed with its content.
    #[serde(default)]
    pub recursive: bool,
}
