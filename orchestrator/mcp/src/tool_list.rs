//! Lists the tools of a server, within limits.

use engine::llm::Tool;
use rmcp::model::PaginatedRequestParams;
use rmcp::service::ServiceError;
use rmcp::{Peer, RoleClient};
use serde_json::{Value, json};

/// Maximum number of tools of a server that are read. Far fewer are offered.
const MAX_LISTED_TOOLS: usize = 1000;

/// Maximum number of pages of a list.
const MAX_PAGES: usize = 100;

/// Maximum length of a description, in characters. Longer ones are truncated.
const MAX_DESCRIPTION_CHARS: usize = 4096;

/// Maximum size of the schema of a tool's arguments, in bytes of JSON.
const MAX_SCHEMA_BYTES: usize = 16 << 10;

/// Maximum size of a name, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// A tool under the name that its server gives it.
pub(crate) type ListedTool = Tool;

/// Usable tools of a server, and the reason why others are omitted. `None` if all are usable.
#[derive(Debug, Clone, Default)]
pub(crate) struct ToolList {
    pub(crate) tools: Vec<ListedTool>,
    pub(crate) problem: Option<String>,
}

/// Reads all pages of the list.
pub(crate) async fn list(peer: &Peer<RoleClient>) -> Result<ToolList, ServiceError> {
    let mut listed = Vec::new();
    let mut params = None;
    for _ in 0..MAX_PAGES {
        let page = peer.list_tools(params).await?;
        listed.extend(page.tools);
        match page.next_cursor {
            Some(cursor) if listed.len() < MAX_LISTED_TOOLS => {
                params = Some(PaginatedRequestParams::default().with_cursor(Some(cursor)));
            }
            _ => break,
        }
    }
    listed.truncate(MAX_LISTED_TOOLS);
    Ok(to_tool_list(listed))
}

/// Converts the usable tools, and counts the others.
fn to_tool_list(listed: Vec<rmcp::model::Tool>) -> ToolList {
    let all = listed.len();
    let tools: Vec<_> = listed.into_iter().filter_map(to_tool).collect();
    let unusable = all - tools.len();
    let problem = (unusable > 0).then(|| {
        format!(
            "{unusable} of its {all} tools are left out: a name may have {MAX_NAME_BYTES} bytes, a schema \
             {MAX_SCHEMA_BYTES} bytes and the type `object`"
        )
    });
    ToolList { tools, problem }
}

/// Converts a tool. `None` if it exceeds a limit, or its arguments are not an object.
fn to_tool(tool: rmcp::model::Tool) -> Option<ListedTool> {
    let mut schema = (*tool.input_schema).clone();
    // Providers require both; servers omit them for tools without arguments.
    let kind = schema.entry("type").or_insert_with(|| "object".into());
    let is_object = kind == "object";
    schema.entry("properties").or_insert_with(|| json!({}));
    let parameters = Value::Object(schema);
    let fits = tool.name.len() <= MAX_NAME_BYTES && parameters.to_string().len() <= MAX_SCHEMA_BYTES;
    (is_object && fits).then(|| Tool {
        name: tool.name.into_owned(),
        description: tool.description.unwrap_or_default().chars().take(MAX_DESCRIPTION_CHARS).collect(),
        parameters,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, description: &str, schema: Value) -> rmcp::model::Tool {
        let tool = json!({"name": name, "description": description, "inputSchema": schema});
        serde_json::from_value(tool).unwrap()
    }

    #[test]
    fn tool_is_completed_as_providers_require() {
        let long = "d".repeat(100_000);
        let list = to_tool_list(vec![tool("ok", &long, json!({}))]);
        let [ok] = list.tools.as_slice() else { panic!("{list:?}") };
        assert_eq!(ok.parameters, json!({"type": "object", "properties": {}}));
        assert_eq!((ok.description.len(), list.problem.clone()), (MAX_DESCRIPTION_CHARS, None));
    }

    #[test]
    fn unusable_tools_are_omitted_and_reported() {
        let list = to_tool_list(vec![
            tool("ok", "", json!({"type": "object"})),
            tool("wide", "", json!({"type": "object", "description": "x".repeat(MAX_SCHEMA_BYTES)})),
            tool("odd", "", json!({"type": "array"})),
            tool(&"n".repeat(1000), "", json!({"type": "object"})),
        ]);
        assert_eq!(list.tools.len(), 1);
        assert!(list.problem.unwrap().starts_with("3 of its 4 tools are left out"));
    }
}
