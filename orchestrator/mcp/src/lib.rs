//! Client of MCP servers: programs that offer tools over the Model Context Protocol.
//!
//! [`McpServers`] implements the engine's [`ToolServers`](engine::tool_servers::ToolServers). A
//! server runs on this host, in the sandbox, or behind HTTP (`transport`). `server` manages its
//! lifecycle: start, tool list, calls and restarts. `catalogue` gives tools unique names, and
//! `search` finds tools. `tool_list` and `result` limit what a server sends, because servers are
//! untrusted. A failed server is an error message for the model or the user, never a failed step.

mod catalogue;
mod config;
mod quote;
mod result;
mod search;
mod server;
mod servers;
mod tool_list;
mod transport;

pub use config::{InvalidServerUrl, McpServer, Program, Remote, ToolBudget, Transport};
pub use servers::McpServers;
