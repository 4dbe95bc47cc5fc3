//! What the file routes take and give as JSON. Paths that are relative begin at the working directory of the default
//! session; names that are no UTF-8 are told with U+FFFD in their place and cannot be asked for.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Permission bits, as an octal number in a string: `"0644"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    feature = "openapi",
    derive(utoipa::ToSchema),
    schema(value_type = String, pattern = "^[0-7]{1,4}$", example = "0644")
)]
pub struct FileMode(u32);

/// What lies at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileStatus {
    /// Absolute for one file; below the folder that was asked for in lists.
    pub path: String,
    /// Of what it is; a link is not followed unless that was asked for.
    pub kind: FileKind,
    /// In bytes.
    pub size: u64,
    /// Its permission bits.
    pub mode: FileMode,
    /// The owner.
    pub uid: u32,
    /// The owning group.
    pub gid: u32,
    /// When its content changed last, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// Where a symbolic link leads, as it is written in the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// A kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A device that is read in blocks.
    BlockDevice,
    /// A device that is read in characters.
    CharacterDevice,
    /// One that this version does not know.
    #[serde(other)]
    Unknown,
}

/// Query of `GET` and `HEAD /v1/files`, and of `GET` and `PUT /v1/files/tree`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct PathQuery {
    /// The file or folder.
    pub path: String,
}

/// Query of `PUT /v1/files`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct UploadQuery {
    /// The file; folders on the way to it are made.
    pub path: String,
    /// What it is set to; else an existing file's stays and a new one's is the usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
}

/// Query of `DELETE /v1/files`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct RemoveQuery {
    /// The file, link or folder.
    pub path: String,
    /// Whether a folder goes with all that lies in it.
    #[serde(default)]
    pub recursive: bool,
}

/// Query of `GET /v1/files/stat`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct StatusQuery {
    /// The file, link or folder.
    pub path: String,
    /// Whether to tell of what a link leads to instead of the link.
    #[serde(default)]
    pub follow: bool,
}

/// Query of `GET /v1/files/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    /// The folder.
    pub path: String,
    /// How many levels; 1, the default, is what lies in the folder itself.
    #[serde(default = "one")]
    pub depth: usize,
    /// Whether names that begin with a dot are listed, and folders of such names gone into.
    #[serde(default)]
    pub hidden: bool,
}

/// The answer to `GET /v1/files/list` and `GET /v1/files/glob`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileList {
    /// Sorted by path.
    pub entries: Vec<FileStatus>,
    /// There are more than are listed.
    pub truncated: bool,
}

/// EventBody of `POST /v1/files/move`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MoveRequest {
    /// What is moved; a link itself, not what it leads to.
    pub from: String,
    /// Its new path, not the folder that it goes into; folders on the way are made.
    pub to: String,
    /// Whether what is at the new path already is replaced. A folder replaces only an empty folder.
    #[serde(default)]
    pub overwrite: bool,
}

/// EventBody of `POST /v1/files/mkdir`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MakeFolderRequest {
    /// The folder.
    pub path: String,
    /// Whether folders on the way are made too, and a folder that is there already is fine.
    #[serde(default)]
    pub parents: bool,
    /// Of the new folder; else the usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
}

/// EventBody of `POST /v1/files/chmod`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ChangeModeRequest {
    /// The file or folder; a link is followed here, but not below.
    pub path: String,
    /// What it is set to.
    pub mode: FileMode,
    /// Whether all below a folder is set too.
    #[serde(default)]
    pub recursive: bool,
}

/// The answer to `POST /v1/files/chmod`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModeChanged {
    /// How many files and folders were set.
    pub changed: u64,
}

/// Query of `GET /v1/files/glob`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct GlobQuery {
    /// The folder that is looked through.
    pub path: String,
    /// As in .gitignore: without a slash it fits names at any depth, with one the path below the folder; `**` fits any
    /// number of folders, `{a,b}` either.
    pub pattern: String,
    /// Whether names that begin with a dot are looked at.
    #[serde(default)]
    pub hidden: bool,
    /// Whether files that .gitignore and its like name are looked at.
    #[serde(default)]
    pub ignored: bool,
    /// Whether case makes no difference.
    #[serde(default)]
    pub case_insensitive: bool,
}

/// Query of `GET /v1/files/grep`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct GrepQuery {
    /// The file, or the folder that is looked through.
    pub path: String,
    /// A regular expression in the syntax of Rust's regex crate, for one line.
    pub pattern: String,
    /// Only files that this pattern fits, as in [`GlobQuery::pattern`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    /// Whether the pattern is the text itself.
    #[serde(default)]
    pub fixed: bool,
    /// Whether case makes no difference.
    #[serde(default)]
    pub case_insensitive: bool,
    /// Whether names that begin with a dot are looked at.
    #[serde(default)]
    pub hidden: bool,
    /// Whether files that .gitignore and its like name are looked at.
    #[serde(default)]
    pub ignored: bool,
    /// Lines of context before a match, at most 50.
    #[serde(default)]
    pub before: usize,
    /// Lines of context after a match, at most 50.
    #[serde(default)]
    pub after: usize,
    /// After how many matches to stop, at most 10,000.
    #[serde(default = "thousand")]
    pub max_matches: usize,
}

/// The answer to `GET /v1/files/grep`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrepMatches {
    /// By path, then by line.
    pub matches: Vec<GrepMatch>,
    /// There may be more than are told.
    pub truncated: bool,
}

/// A line that matches. A line is told once: what is context of two matches belongs to the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrepMatch {
    /// Below the folder that was asked for; of a file that was asked for, its name.
    pub path: String,
    /// From 1.
    pub line: u64,
    /// Where in the line the first match begins, in bytes, from 1.
    pub column: u64,
    /// The line without its end, and at most 4,096 bytes of it; U+FFFD for what is no UTF-8.
    pub text: String,
    /// The lines before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// The lines after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

/// Query of `GET /v1/files/watch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct WatchQuery {
    /// The file or folder.
    pub path: String,
    /// Whether all folders below are watched too.
    #[serde(default)]
    pub recursive: bool,
}

/// A line of the answer to `GET /v1/files/watch`. Paths are below the folder that is watched; empty for itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WatchEvent {
    /// Something is new here, or came from where is not watched.
    Created {
        /// What.
        path: String,
    },
    /// Its content, mode or owner changed.
    Modified {
        /// What.
        path: String,
    },
    /// It is gone, or went to where is not watched.
    Removed {
        /// What.
        path: String,
    },
    /// It has another name.
    Moved {
        /// The old one.
        from: String,
        /// The new one.
        path: String,
    },
    /// Events are missing, because they came faster than they were read or there are too many folders: look again.
    Overflow,
}

impl FileMode {
    /// The bits that there are, set-user-id, set-group-id and the sticky bit among them.
    const BITS: u32 = 0o7777;

    /// What of a file's mode are permission bits.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits & Self::BITS)
    }

    /// As a number.
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl Serialize for FileMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:04o}", self.0))
    }
}

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // from_str_radix takes a sign.
        let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
        match u32::from_str_radix(&text, 8) {
            Ok(bits) if is_digits && bits <= Self::BITS => Ok(Self(bits)),
            _ => Err(D::Error::custom(
                "expected permission bits as an octal number in a string, as in \"0644\"",
            )),
        }
    }
}

fn one() -> usize {
    1
}

fn thousand() -> usize {
    1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_strings() {
        assert_eq!(serde_json::to_string(&FileMode::from_bits(0o100_644)).unwrap(), r#""0644""#);
        assert_eq!(serde_json::from_str::<FileMode>(r#""4755""#).unwrap().bits(), 0o4755);
        for wrong in [r#""""#, r#""+644""#, r#""10000""#, r#""648""#, "420"] {
            assert!(serde_json::from_str::<FileMode>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn events_are_flat_objects() {
        let moved = WatchEvent::Moved { from: "a".into(), path: "b".into() };
        assert_eq!(serde_json::to_string(&moved).unwrap(), r#"{"event":"moved","from":"a","path":"b"}"#);
        assert_eq!(serde_json::to_string(&WatchEvent::Overflow).unwrap(), r#"{"event":"overflow"}"#);
    }
}
