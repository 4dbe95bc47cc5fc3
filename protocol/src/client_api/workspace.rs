//! Files of a conversation's workspace, as clients see them.

use serde::{Deserialize, Serialize};

/// The response to `GET …/select-file`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileContent {
    /// The text of the file.
    pub code: String,
}

/// The response to `POST …/upload-files`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UploadReply {
    /// Absolute paths in the sandbox.
    pub uploaded_files: Vec<String>,
    /// Files that were not stored.
    pub skipped_files: Vec<SkippedFile>,
}

/// A file that was not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SkippedFile {
    /// Its name in the request.
    pub name: String,
    /// Why it was not stored.
    pub reason: String,
}

/// An element of the response to `GET …/git/changes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileChangeInfo {
    /// `M` for modified, `A` for new, `D` for deleted, `U` for unmerged.
    pub status: char,
    /// Path relative to the workspace.
    pub path: String,
}

/// The response to `GET …/git/diff`. An empty version does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileDiff {
    /// The file in the workspace.
    pub modified: String,
    /// The file in the remote branch.
    pub original: String,
}

/// The response to `GET …/microagents`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MicroagentList {
    /// The knowledge of the conversation.
    pub microagents: Vec<MicroagentInfo>,
}

/// A piece of knowledge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MicroagentInfo {
    /// Its name.
    pub name: String,
    /// When it is included.
    #[serde(rename = "type")]
    pub kind: MicroagentKind,
    /// Its text.
    pub content: String,
    /// The words that include it.
    pub triggers: Vec<String>,
    /// Values that a task needs.
    pub inputs: Vec<MicroagentInput>,
    /// Names of the tool servers that it requires.
    pub tools: Vec<String>,
}

/// When a microagent is included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum MicroagentKind {
    /// At the start of a conversation.
    Repo,
    /// When it is needed.
    Knowledge,
}

/// A value that a task needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MicroagentInput {
    /// Its name.
    pub name: String,
    /// Always empty.
    pub description: String,
}

/// The response to `GET …/remember-prompt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RememberPrompt {
    /// Always `success`.
    pub status: &'static str,
    /// A message for a new conversation.
    pub prompt: String,
}

/// The body of `POST …/exp-config`.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ExperimentConfig {
    /// Settings of an experiment. Ignored: this server takes part in none.
    #[serde(default)]
    pub config: Option<serde_json::Value>,
}
