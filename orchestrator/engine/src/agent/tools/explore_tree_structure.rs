//! Explore the containment, imports, calls and inheritance of code. Offered if the sandbox has
//! Python 3.

use protocol::Action;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{ToolError, code_graph};
use crate::llm::Tool;

pub(super) const NAME: &str = "explore_tree_structure";

const ENTITIES: [&str; 4] = ["directory", "file", "class", "function"];
const DEPENDENCIES: [&str; 4] = ["contains", "imports", "invokes", "inherits"];

pub(super) fn definition() -> Tool {
    let filter = |of: &[&str], what: &str| {
        json!({
            "type": "array",
            "items": {"type": "string", "enum": of},
            "description": format!("Only these kinds of {what}. Default: all."),
        })
    };
    Tool {
        name: NAME.into(),
        description: "Shows, as a tree, how the code of the workspace hangs together: folders contain files, files classes \
                      and functions; files import, functions invoke, classes inherit. `/` as start with only `contains` is \
                      an overview of the workspace. Names are followed, not types: a call on a value of unknown class is \
                      not seen."
            .into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "start_entities": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Each `/`, a path, or a path and what is in that file (`src/shop.py:Cart.add`).",
                },
                "direction": {
                    "type": "string",
                    "enum": ["downstream", "upstream", "both"],
                    "description": "downstream: what a start contains, imports, invokes and inherits from. upstream: what \
                                    contains, imports, invokes and inherits from it. Default: downstream.",
                },
                "traversal_depth": {
                    "type": "integer",
                    "description": "How many steps; -1: as far as it goes. Default: 2.",
                },
                "entity_type_filter": filter(&ENTITIES, "entities"),
                "dependency_type_filter": filter(&DEPENDENCIES, "dependencies"),
            },
            "required": ["start_entities"],
        }),
    }
}

#[derive(Deserialize, Serialize)]
pub(super) struct Arguments {
    start_entities: Vec<String>,
    #[serde(default)]
    direction: Direction,
    traversal_depth: Option<i32>,
    entity_type_filter: Option<Vec<String>>,
    dependency_type_filter: Option<Vec<String>>,
}

#[derive(Clone, Copy, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    #[default]
    Downstream,
    Upstream,
    Both,
}

pub(super) fn to_action(arguments: Arguments, thought: &str) -> Result<Action, ToolError> {
    let problem = |problem: String| ToolError::Arguments {
        tool: NAME.into(),
        problem,
    };
    for (filter, known) in [
        (&arguments.entity_type_filter, ENTITIES),
        (&arguments.dependency_type_filter, DEPENDENCIES),
    ] {
        if let Some(other) = filter
            .iter()
            .flatten()
            .find(|kind| !known.contains(&kind.as_str()))
        {
            return Err(problem(format!(
                "there is no kind {other}: there are {}",
                known.join(", ")
            )));
        }
    }
    let arguments = json!({
        "start_entities": arguments.start_entities,
        "direction": arguments.direction,
        "traversal_depth": arguments.traversal_depth.unwrap_or(2),
        "entity_type_filter": arguments.entity_type_filter,
        "dependency_type_filter": arguments.dependency_type_filter,
    });
    code_graph::action(NAME, &arguments, thought)
}
