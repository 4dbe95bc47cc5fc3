//! Ports of programs in the sandbox: lists them, and opens tunnels to them.
//!
//! No port is opened or published for that: a tunnel is a stream of the client's existing
//! connection.

mod listening;
mod tunnel;

pub(crate) use listening::{is_listening, listening};
pub(crate) use tunnel::{TunnelError, TunnelTarget, Tunnels};
