//! What is to be placed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use protocol::ConversationId;

/// A sandbox as it is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxSpec {
    /// Whose sandbox it is. One that was made by hand has a conversation of that name which never began.
    pub conversation: ConversationId,
    /// Whether it goes when nobody uses it any more.
    pub lifetime: Lifetime,
    /// The image, for runtimes that have one; nothing: the runtime's default.
    pub image: Option<String>,
    /// A folder of the host that the agent works in; nothing: a fresh one inside.
    pub workspace: Option<PathBuf>,
    /// What else of the host is seen inside, for runtimes that can show it.
    pub volumes: Vec<Volume>,
    /// What everything that is run inside finds in its environment, over what the image gives it. May be secret: it is
    /// handed over when the server answers, and never stands where the engine shows it.
    pub environment: BTreeMap<String, String>,
    /// What it may use of the host.
    pub resources: ResourceLimits,
}

impl SandboxSpec {
    /// The sandbox of a conversation with nothing but defaults.
    pub fn new(conversation: ConversationId) -> Self {
        Self {
            conversation,
            lifetime: Lifetime::Conversation,
            image: None,
            workspace: None,
            volumes: Vec::new(),
            environment: BTreeMap::new(),
            resources: ResourceLimits::default(),
        }
    }
}

/// How long a sandbox stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Until its conversation is done with it; a sweep removes it when none uses it.
    Conversation,
    /// Until somebody removes it.
    UntilRemoved,
}

/// What a sandbox may use of its host, for runtimes that can bound it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResourceLimits {
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Processors.
    pub cpus: f64,
    /// Processes and threads.
    pub pids: u32,
    /// What it may write to its own disk, in bytes.
    pub disk_bytes: u64,
}

impl Default for ResourceLimits {
    /// Enough for a build, and no fork bomb or leak reaches the host.
    fn default() -> Self {
        Self { memory_bytes: 4 << 30, cpus: 2.0, pids: 4096, disk_bytes: 20 << 30 }
    }
}

/// A folder, file or named volume that is seen inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// An absolute path of the host, or the name of one of the engine's volumes.
    pub source: String,
    /// An absolute path inside.
    pub target: String,
    /// Whether it cannot be written to.
    pub read_only: bool,
}

/// A text that is no volume, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the volume {text:?} {problem}: write HOST:CONTAINER or HOST:CONTAINER:ro")]
pub struct VolumeError {
    text: String,
    problem: &'static str,
}

impl FromStr for Volume {
    type Err = VolumeError;

    /// Reads one of V0's `volumes`, which are separated by commas: `HOST:CONTAINER[:MODE]`, of the modes `rw`, `ro` and `overlay`.
    fn from_str(text: &str) -> Result<Self, VolumeError> {
        let refuse = |problem| Err(VolumeError { text: text.to_owned(), problem });
        let mut parts = text.trim().split(':');
        let (Some(source), Some(target)) = (parts.next(), parts.next()) else {
            return refuse("names no place in the container");
        };
        let read_only = match (parts.next(), parts.next()) {
            (None | Some("rw"), None) => false,
            // V0's overlay keeps writes from the host too.
            (Some("ro" | "overlay"), None) => true,
            _ => return refuse("has a mode that is none of rw, ro and overlay"),
        };
        if source.is_empty() || (source.contains('/') && !source.starts_with('/')) {
            return refuse("begins with neither an absolute path nor a volume's name");
        }
        if !target.starts_with('/') || target == "/" {
            return refuse("has no absolute path of a folder in the container");
        }
        Ok(Self { source: source.to_owned(), target: target.to_owned(), read_only })
    }
}

#[cfg(test)]
mod tests {
    use super::Volume;

    #[test]
    fn volumes_are_read_as_v0_writes_them() {
        let volume = |source: &str, target: &str, read_only| Volume {
            source: source.into(),
            target: target.into(),
            read_only,
        };
        for (text, expected) in [
            ("/home/me/data:/data", volume("/home/me/data", "/data", false)),
            ("/a:/b:rw", volume("/a", "/b", false)),
            (" cache:/var/cache:ro", volume("cache", "/var/cache", true)),
            ("/a:/b:overlay", volume("/a", "/b", true)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in ["", "/a", "/a:b", "a/b:/c", ":/c", "/a:/", "/a:/b:rx", "/a:/b:ro:z"] {
            assert!(text.parse::<Volume>().is_err(), "{text}");
        }
    }
}
