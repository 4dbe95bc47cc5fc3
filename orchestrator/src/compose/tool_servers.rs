//! What an agent may call beside its own tools: MCP servers that are configured, and what its sandbox can perform.

use std::sync::Arc;

use engine::agent::Agent;
use engine::llm::Tool;
use engine::sandbox_tools::SandboxTools;
use engine::tool_servers::{NoToolServers, ToolServers};
use mcp::McpServers;

use crate::config::Config;

/// The tool servers of one conversation, none of them started. No tool of theirs has the name of one of the agent's.
pub(crate) fn tool_servers(config: &Config, agent: &dyn Agent) -> Arc<dyn ToolServers> {
    let late = agent.sandbox_tools();
    let servers: Arc<dyn ToolServers> = if config.mcp_servers.is_empty() {
        Arc::new(NoToolServers)
    } else {
        let own = agent.system().tools.unwrap_or_default();
        let own = own.iter().filter_map(Tool::from_openai).chain(late.iter().map(|late| late.tool.clone()));
        let reserved = own.map(|tool| tool.name).collect();
        Arc::new(McpServers::new(config.mcp_servers.clone(), reserved, &config.local_environment))
    };
    Arc::new(SandboxTools::new(servers, late))
}
