//! The one client of action servers, and what the backends that provision them share.
//!
//! A [`Backend`] (`sandbox-local`, `sandbox-docker`, `sandbox-ssh`, `sandbox-remote`) turns a spec
//! into a running server and a [`Connector`], which opens byte streams to it. [`Provider`] makes it
//! a [`SandboxProvider`](engine::sandbox::SandboxProvider). Its sandboxes are [`ActionClient`]s,
//! the same for all backends. The crate reads no environment and no configuration, and knows only
//! the ids of conversations.

mod action_client;
mod backend;
mod connect;
mod host_secret;
mod provider;
pub mod provisioning;
mod server_binary;
mod server_location;
mod started_server;
mod unfinished_start;

pub use action_client::{ActionClient, Address, RunningActions};
pub use backend::{Backend, OnPaused, ProvisionRequest, Provisioned};
pub use connect::{
    ConnectError, Connector, GreetingError, ServerUrl, ServerUrlError, UnixSocket, expect_greeting,
};
pub use host_secret::HostSecret;
pub use provider::Provider;
pub use server_binary::ServerBinary;
pub use server_location::ServerLocation;
pub use started_server::{StartTimeout, StartedServer};
pub use unfinished_start::{Steps, UnfinishedStart};
