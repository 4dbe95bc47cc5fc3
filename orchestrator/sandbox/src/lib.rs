//! Provisions action servers, and contains the one client of them.
//!
//! A backend ([`LocalProvider`], [`DockerProvider`], [`SshProvider`], [`RemoteServerProvider`],
//! [`RemoteRuntimeProvider`]) turns a spec into a running server and a way to open byte streams to
//! it. Everything else is in the client, which is the same for all backends. [`SandboxHost`] leases
//! the sandboxes of a backend to remote orchestrators. The crate reads no environment and no
//! configuration, and knows only the ids of conversations.

mod action_client;
mod confine;
mod connect;
mod docker;
mod host_secret;
mod local;
mod provisioning;
mod remote;
mod sandbox_host;
mod server_binary;
mod ssh;
mod unfinished_start;

pub use confine::confine_if_requested;
pub use connect::{ServerUrl, ServerUrlError};
pub use docker::{
    DEFAULT_IMAGE, DockerConfig, DockerProvider, Gpus, MAX_HOLDER_LENGTH, Pool, pool_entry_holder,
};
pub use host_secret::HostSecret;
pub use local::{
    BUBBLEWRAP_PROGRAMS, Bounds, CONTROL_GROUPS, Isolation, IsolationChoice, IsolationKind,
    LocalConfig, LocalProbes, LocalProvider,
};
pub use provisioning::sandbox_id_of;
pub use remote::{
    DEFAULT_REMOTE_COMMAND, RemoteRuntimeConfig, RemoteRuntimeProvider, RemoteServerConfig,
    RemoteServerProvider,
};
pub use sandbox_host::{HostKeys, HostKeysError, ImagePattern, SandboxHost, SandboxHostConfig};
pub use server_binary::ServerBinary;
pub use ssh::{HostKeyQuestion, InvalidSshTarget, SshConfig, SshProvider, SshTarget, UnknownHosts};
