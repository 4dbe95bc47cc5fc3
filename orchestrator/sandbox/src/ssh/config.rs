//! What the SSH backend needs of the host.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::{HostSecret, ServerBinary};

/// What the SSH backend needs of the host. Nothing is read from the environment: [`SshConfig::new`] says where things
/// usually are.
#[derive(Debug)]
pub struct SshConfig {
    /// `[user@]host[:port]`, `ssh://[user@]host[:port]`, or a name that a configuration file explains.
    pub target: String,
    /// The server's program, for the other side's processor.
    pub server: ServerBinary,
    /// What keys are derived from. It also names this installation on the other side.
    pub secret: HostSecret,
    /// The user's home folder here: `~` in configuration files, and where their keys are.
    pub home: PathBuf,
    /// The user's name here, which is also theirs there unless something else is said.
    pub user: String,
    /// Configuration files of OpenSSH's client; the first that says something decides. A missing one is empty.
    pub config_files: Vec<PathBuf>,
    /// Files of known hosts beside the user's.
    pub global_known_hosts: Vec<PathBuf>,
    /// The socket of an agent that holds keys; usually the value of `SSH_AUTH_SOCK`.
    pub agent: Option<PathBuf>,
    /// What to do about a host whose key is not known, unless a configuration file says so for that host.
    pub unknown_hosts: UnknownHosts,
    /// A server that nobody speaks to for so long ends itself.
    pub idle_timeout: Duration,
    /// For a whole start: connection, upload, server.
    pub start_timeout: Duration,
}

impl SshConfig {
    /// The usual files of OpenSSH's client, no agent, unknown hosts refused, a day to idle, 60 s to start.
    pub fn new(
        target: impl Into<String>,
        home: impl Into<PathBuf>,
        user: impl Into<String>,
        server: ServerBinary,
        secret: HostSecret,
    ) -> Self {
        let home = home.into();
        Self {
            target: target.into(),
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

/// What to do about a host whose key is not known. One whose key has changed is always refused.
#[derive(Clone, Default)]
pub enum UnknownHosts {
    /// Refuse it, and say how to make it known.
    #[default]
    Refuse,
    /// Believe it the first time, and write its key down.
    AcceptNew,
    /// Ask somebody; a yes is written down. It may take its time: nothing is open meanwhile.
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

/// What somebody is asked who knows the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostKeyQuestion {
    /// The host as files of known hosts name it: `name`, or `[name]:port`.
    pub host: String,
    /// `ssh-ed25519`, …
    pub algorithm: String,
    /// `SHA256:…`, as `ssh-keygen -l` prints it.
    pub fingerprint: String,
}
