//! Two tools that search for tools of servers and call one that was found, in place of many
//! definitions in each request.

use serde_json::json;

use crate::llm::Tool;

/// The tool that searches for tools. Servers perform it, as a call.
pub const SEARCH_TOOLS: &str = "search_tools";

/// The tool that calls a found tool. Its call becomes an action of the found tool.
pub const CALL_TOOL: &str = "call_tool";

/// Maximum length of the names of tools in a description, in characters.
const MAX_NAMES_CHARS: usize = 4000;

/// Returns the two tools. `tools` are those that can be found now.
pub(super) fn tool_search(tools: &[Tool]) -> [Tool; 2] {
    let search = Tool {
        name: SEARCH_TOOLS.into(),
        description: format!(
            "Searches the tools of connected servers, and returns their names, descriptions and arguments. Call a found tool \
             with `{CALL_TOOL}`. The result has the best matches. There may be more tools later. Tools now: {}",
            names(tools)
        ),
        parameters: json!({
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "Words that describe what the tool does, or its name.",
                },
            },
            "required": ["query"],
        }),
    };
    let call = Tool {
        name: CALL_TOOL.into(),
        description: format!("Calls a tool that `{SEARCH_TOOLS}` has found."),
        parameters: json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The tool's name."},
                "arguments": {
                    "type": "object",
                    "description": "Its arguments, as the search result describes them.",
                    "additionalProperties": true,
                },
            },
            "required": ["name"],
        }),
    };
    [search, call]
}

/// Lists names, as far as they fit.
fn names(tools: &[Tool]) -> String {
    let mut names = String::new();
    for (index, tool) in tools.iter().enumerate() {
        if names.len() + tool.name.len() > MAX_NAMES_CHARS {
            names.push_str(&format!(" and {} more", tools.len() - index));
            break;
        }
        let separator = if names.is_empty() { "" } else { ", " };
        names.push_str(&format!("{separator}{}", tool.name));
    }
    names
}
