//! Places action servers, and holds the one client that speaks to them.
//!
//! A backend ([`LocalProvider`], [`DockerProvider`], [`SshProvider`], [`RemoteServerProvider`],
//! [`RemoteRuntimeProvider`]) turns a spec into a running server and a way to open byte streams to it; everything after
//! that is the same client. [`SandboxHost`] lends what a backend places. Reads no environment and no configuration: what
//! it needs comes in through its constructors. Knows nothing of conversations but their ids.

mod action_client;
mod confine;
mod connect;
mod docker;
mod host_secret;
mod local;
mod placement;
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
    BUBBLEWRAP_PROGRAMS, Bounds, CONTROL_GROUPS, Isolation, IsolationChoice, IsolationKind, LocalConfig,
    LocalProvider,
};
pub use placement::sandbox_id_of;
pub use remote::{
    DEFAULT_REMOTE_COMMAND, RemoteRuntimeConfig, RemoteRuntimeProvider, RemoteServerConfig,
    RemoteServerProvider,
};
pub use sandbox_host::{HostKeys, HostKeysError, SandboxHost, SandboxHostConfig};
pub use server_binary::ServerBinary;
pub use ssh::{HostKeyQuestion, SshConfig, SshProvider, UnknownHosts};
