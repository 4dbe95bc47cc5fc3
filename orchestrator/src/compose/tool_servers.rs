//! Tools that an agent can call in addition to its own: those of MCP servers, which the configuration or a microagent names,
//! and those of its sandbox.

use std::sync::Arc;

use engine::agent::Agent;
use engine::llm::Tool;
use engine::sandbox_tools::SandboxTools;
use engine::tool_servers::ToolServers;
use mcp::{McpServer, McpServers};

use crate::config::HostEnvironment;

/// The tool servers of one conversation, not started yet. The names of the agent's own tools are reserved.
pub(crate) fn tool_servers(
    servers: &[McpServer],
    host: &HostEnvironment,
    agent: &dyn Agent,
) -> Arc<dyn ToolServers> {
    let late = agent.sandbox_tools();
    let own = agent.system();
    let own = Tool::all_from_stored(&own).chain(late.iter().map(|late| late.tool.clone()));
    let reserved = own.map(|tool| tool.name).collect();
    let servers = McpServers::new(servers.to_vec(), reserved, &host.local_environment);
    Arc::new(SandboxTools::new(Arc::new(servers), late))
}
