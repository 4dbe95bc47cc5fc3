//! Changes of the git repositories in a conversation's workspace and in its folders. Paths are
//! relative to the workspace.

use serde::{Deserialize, Serialize};

/// What files are compared with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum GitBase {
    /// The remote branch of the current one, or where it left the remote's default branch. Without
    /// both, all files are new.
    #[default]
    Remote,
    /// The current commit.
    Head,
}

/// Selects what the changes are relative to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct ListChanges {
    /// What files are compared with.
    #[cfg_attr(feature = "openapi", param(inline))]
    pub base: GitBase,
}

/// The changes of a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChangeList {
    /// The branch that is checked out in the repository that was cloned for the conversation.
    /// `None` if none was cloned, or no branch is checked out.
    pub branch: Option<String>,
    /// The changes, sorted by path.
    pub changes: Vec<FileChange>,
}

/// A file that differs from its base.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileChange {
    /// The file.
    pub path: String,
    /// How it differs.
    pub status: ChangeStatus,
}

/// How a file differs from its base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeStatus {
    /// Its content, mode or type differs.
    Modified,
    /// The base has no such file.
    Added,
    /// The workspace has no such file.
    Deleted,
    /// It has conflicts of a merge.
    Unmerged,
    /// A status unknown to this version.
    #[serde(other)]
    Unknown,
}

impl ChangeStatus {
    /// Returns git's letter of the status.
    pub fn letter(self) -> char {
        match self {
            Self::Modified | Self::Unknown => 'M',
            Self::Added => 'A',
            Self::Deleted => 'D',
            Self::Unmerged => 'U',
        }
    }
}

/// Selects the changes of a file or folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct DiffFiles {
    /// The file or folder. Empty for the workspace.
    pub path: String,
    /// What files are compared with.
    #[cfg_attr(feature = "openapi", param(inline))]
    pub base: GitBase,
}

/// Names a file, and what it is compared with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct CompareFile {
    /// The file.
    pub path: String,
    /// What it is compared with.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", param(inline))]
    pub base: GitBase,
}

/// Two versions of a text file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileVersions {
    /// The text in the workspace. `None` if it has no such file.
    pub modified: Option<String>,
    /// The text in the base. `None` if it has no such file.
    pub original: Option<String>,
}
