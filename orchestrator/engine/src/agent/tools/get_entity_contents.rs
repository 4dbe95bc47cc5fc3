//! Show classes, functions and files whole. Offered where the sandbox has Python 3.

use protocol::Action;
use serde::Deserialize;
use serde_json::json;

use super::{ToolError, code_graph};
use crate::llm::Tool;

pub(super) const NAME: &str = "get_entity_contents";

pub(super) fn definition() -> Tool {
    Tool {
        name: NAME.into(),
        description: "Shows the whole code of classes, functions and files, with line numbers."
            .into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "entity_names": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Each a path (`src/shop.py`), or a path and what is in that file \
                                    (`src/shop.py:Cart.add`).",
                },
            },
            "required": ["entity_names"],
        }),
    }
}

#[derive(Deserialize)]
pub(super) struct Arguments {
    entity_names: Vec<String>,
}

pub(super) fn to_action(arguments: Arguments, thought: &str) -> Result<Action, ToolError> {
    code_graph::action(
        NAME,
        &json!({"entity_names": arguments.entity_names}),
        thought,
    )
}
