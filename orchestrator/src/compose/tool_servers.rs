//! The MCP servers that are configured.

use std::sync::Arc;

use engine::agent::Agent;
use engine::llm::Tool;
use engine::tool_servers::{NoToolServers, ToolServers};
use mcp::McpServers;

use crate::config::Config;

/// The tool servers of one conversation, none of them started. No tool of theirs has the name of one of the agent's.
pub(crate) fn tool_servers(config: &Config, agent: &dyn Agent) -> Arc<dyn ToolServers> {
    if config.mcp_servers.is_empty() {
        return Arc::new(NoToolServers);
    }
    let own = agent.system().tools.unwrap_or_default();
    let reserved = own.iter().filter_map(Tool::from_openai).map(|tool| tool.name).collect();
    Arc::new(McpServers::new(config.mcp_servers.clone(), reserved, &config.local_environment))
}
