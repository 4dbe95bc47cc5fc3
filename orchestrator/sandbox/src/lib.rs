//! Places action servers, and holds the one client that speaks to them.
//!
//! A backend ([`LocalProvider`], [`DockerProvider`]) turns a spec into a running server and a way to open byte streams
//! to it; everything after that is the same client. Reads no environment and no configuration: what it needs comes in
//! through its constructors. Knows nothing of conversations but their ids.

mod action_client;
mod connect;
mod docker;
mod host_secret;
mod local;
mod placement;
mod server_binary;
mod unfinished_start;

pub use docker::{DEFAULT_IMAGE, DockerConfig, DockerProvider};
pub use host_secret::HostSecret;
pub use local::{LocalConfig, LocalProvider};
pub use placement::sandbox_id_of;
pub use server_binary::ServerBinary;
