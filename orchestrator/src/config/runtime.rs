//! The runtimes, V0's name for the backends that provision sandboxes.

use std::fmt;
use std::str::FromStr;

/// Backend that provisions sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runtime {
    /// Docker if an engine answers, else local.
    Auto,
    /// Containers of a Docker engine.
    Docker,
    /// Processes of this machine.
    Local,
    /// A machine reached over SSH.
    Ssh,
    /// A remote action server, or a service that creates sandboxes.
    Remote,
}

impl Runtime {
    pub(crate) const ALL: [Self; 5] = [
        Self::Auto,
        Self::Docker,
        Self::Local,
        Self::Ssh,
        Self::Remote,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Docker => "docker",
            Self::Local => "local",
            Self::Ssh => "ssh",
            Self::Remote => "remote",
        }
    }

    /// Whether its sandboxes run on another machine, which does not share this machine's folders.
    pub(crate) fn is_on_other_machine(self) -> bool {
        matches!(self, Self::Ssh | Self::Remote)
    }

    /// Whether its sandboxes are created from images.
    pub(crate) fn has_images(self) -> bool {
        !matches!(self, Self::Local | Self::Ssh)
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Runtime {
    type Err = UnknownRuntime;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        // V0's earlier name of its Docker runtime.
        let name = if name == "eventstream" {
            "docker"
        } else {
            name
        };
        Self::ALL
            .into_iter()
            .find(|runtime| runtime.name() == name)
            .ok_or_else(|| UnknownRuntime(name.to_owned()))
    }
}

/// An unknown name of a runtime.
#[derive(Debug, thiserror::Error)]
#[error("there is no runtime {0}: there are {names}", names = Runtime::ALL.map(Runtime::name).join(", "))]
pub(crate) struct UnknownRuntime(String);
