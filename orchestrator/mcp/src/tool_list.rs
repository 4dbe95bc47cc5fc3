//! What tools a server says it has, within bounds.

use engine::llm::Tool;
use rmcp::model::PaginatedRequestParams;
use rmcp::service::ServiceError;
use rmcp::{Peer, RoleClient};
use serde_json::{Value, json};

/// Tools of one server that are looked at: far more than are offered.
const MOST_LISTED: usize = 1000;

/// Answers that one list may take.
const MOST_PAGES: usize = 100;

/// The longest description that is told, in characters.
const LONGEST_DESCRIPTION: usize = 4096;

/// The longest schema of arguments that is told, in bytes of JSON.
const LONGEST_SCHEMA: usize = 16 << 10;

/// The longest name that is looked at, in bytes.
const LONGEST_NAME: usize = 256;

/// A tool as its server names it.
pub(crate) type ListedTool = Tool;

/// What a server has, and what is wrong with some of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ToolList {
    pub(crate) tools: Vec<ListedTool>,
    pub(crate) problem: Option<String>,
}

/// Asks for the whole list.
pub(crate) async fn list(peer: &Peer<RoleClient>) -> Result<ToolList, ServiceError> {
    let mut listed = Vec::new();
    let mut params = None;
    for _ in 0..MOST_PAGES {
        let page = peer.list_tools(params).await?;
        listed.extend(page.tools);
        match page.next_cursor {
            Some(cursor) if listed.len() < MOST_LISTED => {
                params = Some(PaginatedRequestParams::default().with_cursor(Some(cursor)));
            }
            _ => break,
        }
    }
    listed.truncate(MOST_LISTED);
    Ok(bounded(listed))
}

fn bounded(listed: Vec<rmcp::model::Tool>) -> ToolList {
    let all = listed.len();
    let tools: Vec<_> = listed.into_iter().filter_map(usable).collect();
    let unusable = all - tools.len();
    let problem = (unusable > 0).then(|| {
        format!(
            "{unusable} of its {all} tools are left out: a name may have {LONGEST_NAME} bytes, a schema \
             {LONGEST_SCHEMA} bytes and the type `object`"
        )
    });
    ToolList { tools, problem }
}

fn usable(tool: rmcp::model::Tool) -> Option<ListedTool> {
    let mut schema = (*tool.input_schema).clone();
    // Providers insist on both; servers forget them where there are no arguments.
    let kind = schema.entry("type").or_insert_with(|| "object".into());
    let is_object = kind == "object";
    schema.entry("properties").or_insert_with(|| json!({}));
    let parameters = Value::Object(schema);
    let fits = tool.name.len() <= LONGEST_NAME && parameters.to_string().len() <= LONGEST_SCHEMA;
    (is_object && fits).then(|| Tool {
        name: tool.name.into_owned(),
        description: tool.description.unwrap_or_default().chars().take(LONGEST_DESCRIPTION).collect(),
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
    fn a_tool_is_told_as_providers_take_it() {
        let long = "d".repeat(100_000);
        let list = bounded(vec![tool("ok", &long, json!({}))]);
        let [ok] = list.tools.as_slice() else { panic!("{list:?}") };
        assert_eq!(ok.parameters, json!({"type": "object", "properties": {}}));
        assert_eq!((ok.description.len(), list.problem.clone()), (LONGEST_DESCRIPTION, None));
    }

    #[test]
    fn what_cannot_be_offered_is_left_out_and_told() {
        let list = bounded(vec![
            tool("ok", "", json!({"type": "object"})),
            tool("wide", "", json!({"type": "object", "description": "x".repeat(LONGEST_SCHEMA)})),
            tool("odd", "", json!({"type": "array"})),
            tool(&"n".repeat(1000), "", json!({"type": "object"})),
        ]);
        assert_eq!(list.tools.len(), 1);
        assert!(list.problem.unwrap().starts_with("3 of its 4 tools are left out"));
    }
}
