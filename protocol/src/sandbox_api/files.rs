//! The JSON of the file routes. Relative paths are resolved against the working directory of the
//! default session. Names that are not UTF-8 are listed with U+FFFD, and cannot be requested.

use std::path::Path;

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

/// The metadata of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileStatus {
    /// Absolute for a single file; relative to the requested folder in lists.
    pub path: String,
    /// The kind of file. Links are followed only on request.
    pub kind: FileKind,
    /// Size, in bytes.
    pub size: u64,
    /// Its permission bits.
    pub mode: FileMode,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Time of the last modification, in nanoseconds since the Unix epoch.
    pub modified_ns: i64,
    /// The target of a symbolic link, unresolved.
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
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
    /// A kind unknown to this version.
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

/// Entries that the archive of a folder leaves out, as the trailer [`SKIPPED_TRAILER`] of the
/// response to `GET /v1/files/tree`. An archive without this trailer is complete.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedEntries {
    /// The number of entries.
    pub count: u64,
    /// The first entries, each as `PATH: REASON`. Paths are relative to the folder.
    pub named: Vec<String>,
}

/// The name of the trailer with [`SkippedEntries`] in JSON.
pub const SKIPPED_TRAILER: &str = "glovebox-skipped";

impl SkippedEntries {
    /// Maximum number of named entries.
    pub const MAX_NAMED: usize = 10;

    /// Maximum length of a path and of a reason, in characters. Clients accept trailers of 16 KiB.
    const MAX_CHARS: usize = 200;

    /// Adds an entry.
    pub fn add(&mut self, path: &Path, reason: &str) {
        let cut = |text: &str| text.chars().take(Self::MAX_CHARS).collect::<String>();
        let (path, reason) = (cut(&path.to_string_lossy()), cut(reason));
        self.append(Self {
            count: 1,
            named: vec![format!("{path}: {reason}")],
        });
    }

    /// Adds the entries of another list.
    pub fn append(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.named.extend(other.named);
        self.named.truncate(Self::MAX_NAMED);
    }

    /// Returns the value of the trailer. `None` if no entry was left out.
    pub fn to_trailer(&self) -> Option<String> {
        let value = (self.count > 0)
            .then(|| serde_json::to_string(self))?
            .ok()?;
        // The only control character that JSON does not escape, and that headers do not allow.
        Some(value.replace('\x7f', "\\u007f"))
    }

    /// Parses the value of the trailer, which comes from a sandbox and may be hostile.
    ///
    /// # Errors
    /// The value is malformed.
    pub fn from_trailer(value: &[u8]) -> serde_json::Result<Self> {
        let mut skipped = Self::default();
        skipped.append(serde_json::from_slice(value)?);
        Ok(skipped)
    }
}

/// Query of `PUT /v1/files`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct UploadQuery {
    /// The file. Missing parent folders are created.
    pub path: String,
    /// The new mode. `None` keeps the mode of an existing file, and gives a new file the default
    /// one.
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
    /// Whether to delete a folder with its content.
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
    /// Whether to follow a link.
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
    /// Maximum depth. 1, the default, lists only the folder itself.
    #[serde(default = "one")]
    pub depth: usize,
    /// Whether to list hidden files and descend into hidden folders: those whose name starts with a
    /// dot.
    #[serde(default)]
    pub hidden: bool,
}

/// The response to `GET /v1/files/list` and `GET /v1/files/glob`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileList {
    /// The files, sorted by path.
    pub entries: Vec<FileStatus>,
    /// Whether there are more files.
    pub truncated: bool,
}

/// Body of `POST /v1/files/move`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MoveRequest {
    /// The file to move. A link is not followed.
    pub from: String,
    /// Its new path, including the file name. Missing parent folders are created.
    pub to: String,
    /// Whether to replace an existing file. A folder replaces only an empty folder.
    #[serde(default)]
    pub overwrite: bool,
}

/// Body of `POST /v1/files/mkdir`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MakeFolderRequest {
    /// The folder.
    pub path: String,
    /// Whether to create missing parent folders, and to accept an existing folder.
    #[serde(default)]
    pub parents: bool,
    /// The mode of the new folder. `None` for the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
}

/// Body of `POST /v1/files/chmod`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ChangeModeRequest {
    /// The file or folder. A link is followed here, but not within a folder.
    pub path: String,
    /// The new mode.
    pub mode: FileMode,
    /// Whether to change the content of a folder too.
    #[serde(default)]
    pub recursive: bool,
}

/// The response to `POST /v1/files/chmod`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModeChanged {
    /// The number of files and folders that were changed.
    pub changed: u64,
}

/// Query of `GET /v1/files/glob`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct GlobQuery {
    /// The folder to search.
    pub path: String,
    /// A pattern with the syntax of .gitignore. Without a slash it matches names at any depth, with
    /// one it matches the path relative to the folder; `**` matches any number of folders, `{a,b}`
    /// either.
    pub pattern: String,
    /// Whether to include files and folders whose name starts with a dot.
    #[serde(default)]
    pub hidden: bool,
    /// Whether to include files that .gitignore and similar files exclude.
    #[serde(default)]
    pub ignored: bool,
    /// Whether to ignore case.
    #[serde(default)]
    pub case_insensitive: bool,
}

/// Query of `GET /v1/files/grep`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct GrepQuery {
    /// The file or folder to search.
    pub path: String,
    /// A regular expression in the syntax of Rust's regex crate, applied line by line.
    pub pattern: String,
    /// Searches only files that match this pattern, see [`GlobQuery::pattern`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    /// Whether the pattern is a literal text.
    #[serde(default)]
    pub fixed: bool,
    /// Whether to ignore case.
    #[serde(default)]
    pub case_insensitive: bool,
    /// Whether to include files and folders whose name starts with a dot.
    #[serde(default)]
    pub hidden: bool,
    /// Whether to include files that .gitignore and similar files exclude.
    #[serde(default)]
    pub ignored: bool,
    /// Number of context lines before a match, at most 50.
    #[serde(default)]
    pub before: usize,
    /// Number of context lines after a match, at most 50.
    #[serde(default)]
    pub after: usize,
    /// Maximum number of matches, at most 10,000.
    #[serde(default = "thousand")]
    pub max_matches: usize,
}

/// The response to `GET /v1/files/grep`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrepMatches {
    /// The matches, sorted by path, then by line.
    pub matches: Vec<GrepMatch>,
    /// Whether there may be more matches.
    pub truncated: bool,
}

/// A matching line. A context line that two matches share is part of the first match only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrepMatch {
    /// Relative to the requested folder; the name of a requested file.
    pub path: String,
    /// Line number, from 1.
    pub line: u64,
    /// Byte position of the first match in the line, from 1.
    pub column: u64,
    /// The line without its line ending; at most 4,096 bytes of it. U+FFFD replaces invalid UTF-8.
    pub text: String,
    /// The context lines before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// The context lines after it.
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
    /// Whether to watch all subfolders too.
    #[serde(default)]
    pub recursive: bool,
}

/// A line of the response to `GET /v1/files/watch`. Paths are relative to the watched folder; empty
/// for the folder itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WatchEvent {
    /// A file was created, or moved here from an unwatched folder.
    Created {
        /// The file.
        path: String,
    },
    /// The content, mode or owner of a file changed.
    Modified {
        /// The file.
        path: String,
    },
    /// A file was removed, or moved to an unwatched folder.
    Removed {
        /// The file.
        path: String,
    },
    /// A file was renamed or moved.
    Moved {
        /// The old path.
        from: String,
        /// The new path.
        path: String,
    },
    /// Events were lost, because the client is too slow or there are too many folders. The client
    /// must list the folder again.
    Overflow,
}

impl FileMode {
    /// The valid bits, including set-user-id, set-group-id and the sticky bit.
    const BITS: u32 = 0o7777;

    /// Creates a mode from the permission bits of `bits`; ignores the file type bits.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits & Self::BITS)
    }

    /// Returns the permission bits as a number.
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
        // `from_str_radix` accepts a sign.
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
        assert_eq!(
            serde_json::to_string(&FileMode::from_bits(0o100_644)).unwrap(),
            r#""0644""#
        );
        assert_eq!(
            serde_json::from_str::<FileMode>(r#""4755""#)
                .unwrap()
                .bits(),
            0o4755
        );
        for wrong in [r#""""#, r#""+644""#, r#""10000""#, r#""648""#, "420"] {
            assert!(serde_json::from_str::<FileMode>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn watch_events_are_flat_objects() {
        let moved = WatchEvent::Moved {
            from: "a".into(),
            path: "b".into(),
        };
        assert_eq!(
            serde_json::to_string(&moved).unwrap(),
            r#"{"event":"moved","from":"a","path":"b"}"#
        );
        assert_eq!(
            serde_json::to_string(&WatchEvent::Overflow).unwrap(),
            r#"{"event":"overflow"}"#
        );
    }
}
