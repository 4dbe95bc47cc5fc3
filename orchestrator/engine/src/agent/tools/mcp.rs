//! Call a tool of an MCP server. The server supplies its definition.

use protocol::Action;
use protocol::action::CallToolMcpAction;
use serde_json::{Map, Value};

pub(super) fn to_action(name: &str, arguments: Map<String, Value>, thought: &str) -> Action {
    CallToolMcpAction { name: name.to_owned(), arguments, thought: thought.to_owned(), ..Default::default() }
        .into()
}
