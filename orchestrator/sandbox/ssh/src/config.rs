//! Settings of the SSH backend.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sandbox_client::{HostSecret, ServerBinary};

use super::target::SshTarget;

/// Settings of the SSH backend. The environment is not read; [`SshConfig::new`] fills in OpenSSH's
/// default paths.
#[derive(Debug)]
pub struct SshConfig {
    /// The host of the sandboxes.
    pub target: SshTarget,
    /// The action server's binary, for the architecture of the remote host.
    pub server: ServerBinary,
    /// Secret that sandbox keys are derived from. It also identifies this installation on the
    /// remote host.
    pub secret: HostSecret,
    /// The local home folder: `~` in configuration files.
    pub home: PathBuf,
    /// The local user name, and the default for the remote one.
    pub user: String,
    /// Configuration files of OpenSSH's client. The first value wins; missing files are skipped.
    pub config_files: Vec<PathBuf>,
    /// `known_hosts` files in addition to the user's.
    pub global_known_hosts: Vec<PathBuf>,
    /// Socket of an SSH agent, usually the value of `SSH_AUTH_SOCK`.
    pub agent: Option<PathBuf>,
    /// Policy for unknown host keys. A configuration file can override it per host.
    pub unknown_hosts: UnknownHosts,
    /// Time without requests after which a server exits.
    pub idle_timeout: Duration,
    /// Timeout of a start on a connected host: upload and server. The connection has its own
    /// timeouts.
    pub start_timeout: Duration,
}

impl SshConfig {
    /// Uses OpenSSH's default paths, no agent, refuses unknown hosts, and sets timeouts of one day
    /// idle and 60 s for a start.
    pub fn new(
        target: SshTarget,
        home: impl Into<PathBuf>,
        user: impl Into<String>,
        server: ServerBinary,
        secret: HostSecret,
    ) -> Self {
        let home = home.into();
        Self {
            target,
            server,
            secret,
            config_files: vec![home.join(".ssh/config"), "/etc/ssh/ssh_config".into()],
            global_known_hosts: vec!["/etc/ssh/ssh_known_hosts".into()],
            home,
            user: user.into(),
            agent: None,
            unknown_hosts: UnknownHosts::Refuse,
            idle_timeout: Duration::from_secs(86_400),
            start_timeout: Duration::from_secs(60),
        }
    }
}

/// Policy for unknown host keys. A changed key is always refused.
#[derive(Clone, Default)]
pub enum UnknownHosts {
    /// Refuse the host. The error explains how to add its key.
    #[default]
    Refuse,
    /// Trust the key on first use, and store it.
    AcceptNew,
    /// Ask the user, and store a confirmed key. The callback may block: no connection is open
    /// meanwhile.
    Ask(Arc<dyn Fn(&HostKeyQuestion) -> bool + Send + Sync>),
}

impl fmt::Debug for UnknownHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refuse => "Refuse",
            Self::AcceptNew => "AcceptNew",
            Self::Ask(_) => "Ask(…)",
        })
    }
}

/// Request to the user to confirm an unknown host key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostKeyQuestion {
    /// Host in `known_hosts` notation: `name`, or `[name]:port`.
    pub host: String,
    /// Key type, such as `ssh-ed25519`.
    pub algorithm: String,
    /// `SHA256:…`, in the format of `ssh-keygen -l`.
    pub fingerprint: String,
}
