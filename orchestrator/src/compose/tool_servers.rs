//! What an agent may call beside its own tools: MCP servers that are configured or that its knowledge asks for, and what
//! its sandbox can perform.

use std::sync::Arc;

use engine::agent::Agent;
use engine::llm::Tool;
use engine::sandbox_tools::SandboxTools;
use engine::tool_servers::ToolServers;
use mcp::McpServers;

use crate::config::Config;

/// The tool servers of one conversation, none of them started. No tool of theirs has the name of one of the agent's.
pub(crate) fn tool_servers(config: &Config, agent: &dyn Agent) -> Arc<dyn ToolServers> {
    let late = agent.sandbox_tools();
    let own = agent.system().tools.unwrap_or_default();
    let own = own.iter().filter_map(Tool::from_openai).chain(late.iter().map(|late| late.tool.clone()));
    let reserved = own.map(|tool| tool.name).collect();
    let servers = McpServers::new(config.mcp_servers.clone(), reserved, &config.local_environment);
    Arc::new(SandboxTools::new(Arc::new(servers), late))
}
