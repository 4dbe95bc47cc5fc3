//! The specification of a sandbox.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use jiff::Timestamp;
use protocol::ConversationId;
pub use protocol::runtime_api::ResourceLimits;

/// The specification of a sandbox to create.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxSpec {
    /// The conversation that it belongs to. A sandbox that a user created has the id of a
    /// conversation that never starts.
    pub conversation: ConversationId,
    /// When it is removed.
    pub lifetime: Lifetime,
    /// The image, for runtimes that use one. `None` for the runtime's default.
    pub image: Option<String>,
    /// A folder of the host to work in. `None` for a new one inside the sandbox.
    pub workspace: Option<PathBuf>,
    /// Further mounts, for runtimes that support them.
    pub volumes: Vec<Volume>,
    /// Environment variables for all processes, which override the image's. They may be secret:
    /// they are sent to the action server once it responds, and never passed to the container
    /// engine, which would show them.
    pub environment: BTreeMap<String, String>,
    /// Its resource limits.
    pub resources: ResourceLimits,
}

impl SandboxSpec {
    /// Creates a spec with the defaults.
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

/// When a sandbox is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Once its conversation no longer needs it. A sweep removes it if no process uses it.
    Conversation,
    /// When a user removes it.
    UntilRemoved,
    /// At this time, unless a user removes it before. A sweep removes it, also while a process uses
    /// it.
    Until(Timestamp),
}

/// The text of [`Lifetime::UntilRemoved`].
const UNTIL_REMOVED: &str = "until-removed";

/// Precedes the time of [`Lifetime::Until`].
const UNTIL: &str = "until-";

impl Lifetime {
    /// Returns when the sandbox is removed. `None` if that is not a matter of time.
    pub fn expires_at(self) -> Option<Timestamp> {
        match self {
            Self::Until(time) => Some(time),
            Self::Conversation | Self::UntilRemoved => None,
        }
    }

    /// Whether its time is over.
    pub fn is_expired(self) -> bool {
        self.expires_at()
            .is_some_and(|time| time <= Timestamp::now())
    }

    /// Whether a user created the sandbox, which has no conversation then.
    pub fn is_chosen_by_user(self) -> bool {
        self != Self::Conversation
    }
}

/// The form in which runtimes store it with a sandbox.
impl fmt::Display for Lifetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conversation => f.write_str("conversation"),
            Self::UntilRemoved => f.write_str(UNTIL_REMOVED),
            Self::Until(time) => write!(f, "{UNTIL}{time:.0}"),
        }
    }
}

/// An unknown lifetime.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the lifetime of a sandbox")]
pub struct UnknownLifetime(pub(super) String);

impl FromStr for Lifetime {
    type Err = UnknownLifetime;

    fn from_str(text: &str) -> Result<Self, UnknownLifetime> {
        match text {
            "conversation" => Ok(Self::Conversation),
            UNTIL_REMOVED => Ok(Self::UntilRemoved),
            _ => {
                let time = text.strip_prefix(UNTIL).and_then(|time| time.parse().ok());
                time.map(Self::Until)
                    .ok_or_else(|| UnknownLifetime(text.to_owned()))
            }
        }
    }
}

/// A folder, file or named volume that is mounted in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// An absolute path of the host, or the name of a volume of the container engine.
    pub source: String,
    /// An absolute path in the sandbox.
    pub target: String,
    /// Whether it is read-only.
    pub read_only: bool,
}

/// The error of an invalid volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the volume {text:?} {problem}: write HOST:CONTAINER or HOST:CONTAINER:ro")]
pub struct VolumeError {
    text: String,
    problem: &'static str,
}

impl FromStr for Volume {
    type Err = VolumeError;

    /// Parses an element of V0's comma-separated `volumes`: `HOST:CONTAINER[:MODE]` with the mode
    /// `rw`, `ro` or `overlay`.
    fn from_str(text: &str) -> Result<Self, VolumeError> {
        let refuse = |problem| {
            Err(VolumeError {
                text: text.to_owned(),
                problem,
            })
        };
        let mut parts = text.trim().split(':');
        let (Some(source), Some(target)) = (parts.next(), parts.next()) else {
            return refuse("names no place in the container");
        };
        let read_only = match (parts.next(), parts.next()) {
            (None | Some("rw"), None) => false,
            // Like `ro`, V0's overlay protects the host from writes.
            (Some("ro" | "overlay"), None) => true,
            _ => return refuse("has a mode that is none of rw, ro and overlay"),
        };
        if source.is_empty() || (source.contains('/') && !source.starts_with('/')) {
            return refuse("begins with neither an absolute path nor a volume's name");
        }
        if !target.starts_with('/') || target == "/" {
            return refuse("has no absolute path of a folder in the container");
        }
        Ok(Self {
            source: source.to_owned(),
            target: target.to_owned(),
            read_only,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Lifetime, Volume};

    #[test]
    fn lifetime_is_parsed_from_its_text() {
        let time = "2026-01-02T03:04:05Z".parse().unwrap();
        for lifetime in [
            Lifetime::Conversation,
            Lifetime::UntilRemoved,
            Lifetime::Until(time),
        ] {
            assert_eq!(lifetime.to_string().parse(), Ok(lifetime));
        }
        assert_eq!(
            Lifetime::Until(time).to_string(),
            "until-2026-01-02T03:04:05Z"
        );
        assert!(
            ["", "until-", "until-soon", "forever"]
                .iter()
                .all(|text| text.parse::<Lifetime>().is_err())
        );
        assert!(Lifetime::Until(time).is_expired() && !Lifetime::UntilRemoved.is_expired());
    }

    #[test]
    fn volumes_are_parsed_from_v0s_format() {
        let volume = |source: &str, target: &str, read_only| Volume {
            source: source.into(),
            target: target.into(),
            read_only,
        };
        for (text, expected) in [
            (
                "/home/me/data:/data",
                volume("/home/me/data", "/data", false),
            ),
            ("/a:/b:rw", volume("/a", "/b", false)),
            (" cache:/var/cache:ro", volume("cache", "/var/cache", true)),
            ("/a:/b:overlay", volume("/a", "/b", true)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in [
            "",
            "/a",
            "/a:b",
            "a/b:/c",
            ":/c",
            "/a:/",
            "/a:/b:rx",
            "/a:/b:ro:z",
        ] {
            assert!(text.parse::<Volume>().is_err(), "{text}");
        }
    }
}
