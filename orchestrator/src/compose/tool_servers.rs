//! Tools that an agent can call in addition to its own: those of MCP servers, which the
//! configuration or a microagent names, and those of its sandbox.

use std::sync::Arc;

use engine::agent::Agent;
use engine::llm::Tool;
use engine::sandbox_tools::SandboxTools;
use engine::tool_servers::ToolServers;
use mcp::{McpServers, ToolBudget};

use crate::config::Config;

/// Size of a context window that is not known, in tokens.
const ASSUMED_WINDOW: u64 = 128_000;

/// Share of the context window that the definitions of tools may have.
const WINDOW_SHARE: u64 = 10;

/// The tool servers of one conversation, not started yet. The names of the agent's own tools are
/// reserved.
pub(crate) fn tool_servers(config: &Config, agent: &dyn Agent) -> Arc<dyn ToolServers> {
    let late = agent.sandbox_tools();
    let own = agent.system();
    let own = Tool::all_from_stored(&own).chain(late.iter().map(|late| late.tool.clone()));
    let reserved = own.map(|tool| tool.name).collect();
    let environment = &config.host.local_environment;
    let servers = McpServers::new(
        config.mcp.servers.clone(),
        reserved,
        tool_budget(config),
        environment,
    );
    Arc::new(SandboxTools::new(Arc::new(servers), late))
}

/// Waits for the price table, which knows the window, only if servers are configured.
fn tool_budget(config: &Config) -> ToolBudget {
    let default_tokens = || {
        if config.mcp.servers.is_empty() {
            return (ASSUMED_WINDOW / WINDOW_SHARE) as usize;
        }
        let model = config
            .llm
            .model
            .as_ref()
            .map(|model| config.llm.provider_config(model));
        let window = model
            .and_then(|model| llm::describe(&model).context_window)
            .unwrap_or(ASSUMED_WINDOW);
        usize::try_from(window / WINDOW_SHARE).unwrap_or(usize::MAX)
    };
    ToolBudget {
        tools: config.mcp.max_listed_tools,
        tokens: config
            .mcp
            .max_listed_tool_tokens
            .unwrap_or_else(default_tokens),
    }
}
