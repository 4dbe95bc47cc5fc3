//! Ports that programs in the sandbox open: which there are, and a byte tunnel to one.
//!
//! Nothing is listened on and nothing is published: a tunnel is a stream of the connection that the client has anyway.

mod listening;
mod tunnel;

pub(crate) use listening::{is_listening, listening};
pub(crate) use tunnel::{Target, Tunnels, Unreachable};
