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

/// Maximum size of a cursor, in bytes. Each is kept, to find one that repeats.
const MAX_CURSOR_BYTES: usize = 4096;

/// Maximum length of a description, in characters. Longer ones are truncated.
const MAX_DESCRIPTION_CHARS: usize = 4096;

/// Maximum size of the schema of a tool's arguments, in bytes of JSON.
const MAX_SCHEMA_BYTES: usize = 16 << 10;

/// Maximum size of all tools of a server, in bytes. Further ones are left out.
const MAX_LIST_BYTES: usize = 4 << 20;

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

/// Reads all pages of the list. Stops at a cursor that repeats. Only what is offered of a page is
/// kept, because each may be as long as a message.
pub(crate) async fn list(peer: &Peer<RoleClient>) -> Result<ToolList, ServiceError> {
    let mut read = ReadTools::default();
    let mut cursors = HashSet::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let (tools, next) = read_page(peer, cursor).await?;
        read.add(&tools);
        match next {
            Some(next)
                if read.count < MAX_LISTED_TOOLS
                    && next.len() <= MAX_CURSOR_BYTES
                    && cursors.insert(next.clone()) =>
            {
                cursor = Some(next);
            }
            _ => break,
        }
    }
    Ok(read.into_list())
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

/// The usable tools of the pages that were read, and the names of the others. Only the first of
/// several tools of one name can be called.
#[derive(Default)]
struct ReadTools {
    tools: Vec<ListedTool>,
    names: HashSet<String>,
    count: usize,
    byte_count: usize,
    /// The first unusable ones.
    unusable: Vec<String>,
    unusable_count: usize,
}

impl ReadTools {
    fn add(&mut self, page: &[Value]) {
        for entry in page.iter().take(MAX_LISTED_TOOLS - self.count) {
            self.count += 1;
            let fits = |(_, bytes): &(ListedTool, usize)| self.byte_count + bytes <= MAX_LIST_BYTES;
            match to_tool(entry).filter(fits) {
                Some((tool, bytes)) if self.names.insert(tool.name.clone()) => {
                    self.byte_count += bytes;
                    self.tools.push(tool);
                }
                Some(_) => {}
                None => {
                    self.unusable_count += 1;
                    if self.unusable.len() < MAX_DISPLAYED_TOOLS {
                        self.unusable.push(display_name(entry, self.count));
                    }
                }
            }
        }
    }

    fn into_list(self) -> ToolList {
        let (count, all) = (self.unusable_count, self.count);
        let more = match count > self.unusable.len() {
            true => ", …",
            false => "",
        };
        let problem = (count > 0).then(|| {
            format!(
                "{count} of its {all} tools are left out ({}{more}): a tool needs a name of at most {MAX_NAME_BYTES} bytes \
                 and an input schema of at most {MAX_SCHEMA_BYTES} bytes and the type `object`, and all together have at most \
                 {MAX_LIST_BYTES} bytes",
                self.unusable.join(", "),
            )
        });
        ToolList {
            tools: self.tools,
            problem,
        }
    }
}

/// Converts a tool, and returns its size in bytes. `None` if it has no name or input schema,
/// exceeds a limit, or its arguments are not an object.
fn to_tool(entry: &Value) -> Option<(ListedTool, usize)> {
    let name = entry["name"].as_str()?;
    let mut schema = entry["inputSchema"].as_object()?.clone();
    // Providers require both; servers omit them for tools without arguments.
    let kind = schema.entry("type").or_insert_with(|| "object".into());
    let is_object = kind == "object";
    schema.entry("properties").or_insert_with(|| json!({}));
    let parameters = Value::Object(schema);
    let schema_bytes = parameters.to_string().len();
    let fits = name.len() <= MAX_NAME_BYTES && schema_bytes <= MAX_SCHEMA_BYTES;
    let description = entry["description"].as_str().unwrap_or_default();
    let description: String = description.chars().take(MAX_DESCRIPTION_CHARS).collect();
    let bytes = name.len() + description.len() + schema_bytes;
    let tool = Tool {
        name: name.to_owned(),
        description,
        parameters,
    };
    (is_object && fits).then_some((tool, bytes))
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

    fn to_tool_list(page: &[Value]) -> ToolList {
        let mut read = ReadTools::default();
        read.add(page);
        read.into_list()
    }

    #[test]
    fn tools_of_all_pages_together_are_bounded() {
        let schema = json!({"description": "x".repeat(MAX_SCHEMA_BYTES - 100)});
        let mut read = ReadTools::default();
        for page in 0..30 {
            let name = |number| format!("{page}-{number}");
            let tool = |number| json!({"name": name(number), "inputSchema": schema});
            read.add(&(0..20).map(tool).collect::<Vec<_>>());
        }
        let list = read.into_list();
        let max_tools = MAX_LIST_BYTES / (MAX_SCHEMA_BYTES - 100);
        assert!(
            (200..=max_tools).contains(&list.tools.len()),
            "{}",
            list.tools.len()
        );
        let problem = list.problem.unwrap();
        assert!(
            problem.contains("of its 600 tools are left out"),
            "{problem}"
        );
    }

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
