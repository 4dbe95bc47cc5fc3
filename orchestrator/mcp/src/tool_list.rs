//! Lists the tools of a server, within limits.

use std::collections::HashSet;

use engine::llm::Tool;
use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams};
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

/// Maximum number of unusable tools that are named, and of characters of their names.
const MAX_DISPLAYED_TOOLS: usize = 10;
const MAX_DISPLAYED_CHARS: usize = 64;

/// A tool under the name that its server gives it.
pub(crate) type ListedTool = Tool;

/// Usable tools of a server, and the reason why others are omitted. `None` if all are usable.
#[derive(Debug, Clone, Default)]
pub(crate) struct ToolList {
    pub(crate) tools: Vec<ListedTool>,
    pub(crate) problem: Option<String>,
}

/// Reads all pages of the list. Stops at a cursor that repeats.
pub(crate) async fn list(peer: &Peer<RoleClient>) -> Result<ToolList, ServiceError> {
    let mut listed = Vec::new();
    let mut cursors = HashSet::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let (tools, next) = read_page(peer, cursor).await?;
        listed.extend(tools);
        match next {
            Some(next) if listed.len() < MAX_LISTED_TOOLS && cursors.insert(next.clone()) => {
                cursor = Some(next);
            }
            _ => break,
        }
    }
    listed.truncate(MAX_LISTED_TOOLS);
    Ok(to_tool_list(&listed))
}

/// Reads a page and the cursor of the next one. Not with rmcp's `list_tools`, which rejects a page
/// for one invalid entry.
async fn read_page(
    peer: &Peer<RoleClient>,
    cursor: Option<String>,
) -> Result<(Vec<Value>, Option<String>), ServiceError> {
    let params = cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
    let request = ListToolsRequest {
        method: Default::default(),
        params,
        extensions: Default::default(),
    };
    let result = peer
        .send_request(ClientRequest::ListToolsRequest(request))
        .await?;
    let mut page = serde_json::to_value(result).unwrap_or_default();
    match page.get_mut("tools").map(Value::take) {
        Some(Value::Array(tools)) => Ok((tools, page["nextCursor"].as_str().map(str::to_owned))),
        _ => Err(ServiceError::UnexpectedResponse),
    }
}

/// Converts the usable tools, and names the others. Only the first of several tools of one name can
/// be called.
fn to_tool_list(listed: &[Value]) -> ToolList {
    let mut list = ToolList::default();
    let (mut names, mut unusable) = (HashSet::new(), Vec::new());
    for (number, entry) in (1..).zip(listed) {
        match to_tool(entry) {
            Some(tool) if names.insert(tool.name.clone()) => list.tools.push(tool),
            Some(_) => {}
            None => unusable.push(display_name(entry, number)),
        }
    }
    if !unusable.is_empty() {
        let (count, all) = (unusable.len(), listed.len());
        let more = if count > MAX_DISPLAYED_TOOLS {
            ", …"
        } else {
            ""
        };
        unusable.truncate(MAX_DISPLAYED_TOOLS);
        list.problem = Some(format!(
            "{count} of its {all} tools are left out ({}{more}): a tool needs a name of at most {MAX_NAME_BYTES} bytes and \
             an input schema of at most {MAX_SCHEMA_BYTES} bytes and the type `object`",
            unusable.join(", "),
        ));
    }
    list
}

/// Converts a tool. `None` if it has no name or input schema, exceeds a limit, or its arguments are
/// not an object.
fn to_tool(entry: &Value) -> Option<ListedTool> {
    let name = entry["name"].as_str()?;
    let mut schema = entry["inputSchema"].as_object()?.clone();
    // Providers require both; servers omit them for tools without arguments.
    let kind = schema.entry("type").or_insert_with(|| "object".into());
    let is_object = kind == "object";
    schema.entry("properties").or_insert_with(|| json!({}));
    let parameters = Value::Object(schema);
    let fits = name.len() <= MAX_NAME_BYTES && parameters.to_string().len() <= MAX_SCHEMA_BYTES;
    let description = entry["description"].as_str().unwrap_or_default();
    (is_object && fits).then(|| Tool {
        name: name.to_owned(),
        description: description.chars().take(MAX_DESCRIPTION_CHARS).collect(),
        parameters,
    })
}

/// Returns the start of a tool's name, or its number in the list if it has no name.
fn display_name(entry: &Value, number: usize) -> String {
    match entry["name"].as_str() {
        Some(name) => name.chars().take(MAX_DISPLAYED_CHARS).collect(),
        None => format!("number {number}, without a name"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_is_completed_as_providers_require() {
        let long = "d".repeat(100_000);
        let list = to_tool_list(&[json!({"name": "ok", "description": long, "inputSchema": {}})]);
        let [ok] = list.tools.as_slice() else {
            panic!("{list:?}")
        };
        assert_eq!(ok.parameters, json!({"type": "object", "properties": {}}));
        assert_eq!(
            (ok.description.len(), list.problem.clone()),
            (MAX_DESCRIPTION_CHARS, None)
        );
    }

    #[test]
    fn unusable_tools_are_omitted_and_reported() {
        let object = json!({"type": "object"});
        let list = to_tool_list(&[
            json!({"name": "ok", "description": 7, "inputSchema": object, "annotations": "none"}),
            json!({"name": "ok", "inputSchema": object}),
            json!({"name": "wide", "inputSchema": {"description": "x".repeat(MAX_SCHEMA_BYTES)}}),
            json!({"name": "odd", "inputSchema": {"type": "array"}}),
            json!({"name": "n".repeat(1000), "inputSchema": object}),
            json!({"name": "bare"}),
            json!({"inputSchema": object}),
            json!("text"),
        ]);
        assert_eq!(
            list.tools
                .iter()
                .map(|tool| tool.name.as_str())
                .collect::<Vec<_>>(),
            ["ok"]
        );
        let problem = list.problem.unwrap();
        let named = format!(
            "6 of its 8 tools are left out (wide, odd, {}, bare, number 7, without a name, number 8, without a name): ",
            "n".repeat(MAX_DISPLAYED_CHARS)
        );
        assert!(problem.starts_with(&named), "{problem}");
        let problem = to_tool_list(&vec![json!({}); 900]).problem.unwrap();
        assert!(
            problem.starts_with("900 of its 900") && problem.len() < 700,
            "{problem}"
        );
    }
}
