//! The client of MCP servers: programs that offer tools over the Model Context Protocol.
//!
//! [`McpServers`] is the engine's [`ToolServers`](engine::tool_servers::ToolServers). A server runs on this host, in the
//! sandbox, or somewhere behind HTTP (`transport`); `server` is the life of one: started, asked for its tools, called,
//! started again when it dies, given up. `catalogue` tells their tools apart, `tool_list` and `result` bound what they
//! say: all of it is hostile. No failure of a server is more than a sentence to the model or to the user.

mod catalogue;
mod config;
mod result;
mod server;
mod servers;
mod tool_list;
mod transport;
mod words;

pub use config::{McpServer, NoAddress, Program, Remote, Transport};
pub use servers::McpServers;
