//! Search for definitions and lines of code. Offered if the sandbox has Python 3.

use protocol::Action;
use serde::Deserialize;
use serde_json::json;

use super::{ToolError, code_graph};
use crate::llm::Tool;

pub(super) const NAME: &str = "search_code_snippets";

pub(super) fn definition() -> Tool {
    Tool {
        name: NAME.into(),
        description: "Finds code by words: for each term the classes and functions of that name with their code, and the \
                      other lines that hold it, with what they are in. Or shows what is around given lines of one file. \
                      Give `search_terms` or `line_nums`."
            .into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "search_terms": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Names, words, or pieces of code.",
                },
                "line_nums": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "description": "Lines of the file that `file_path_or_pattern` names.",
                },
                "file_path_or_pattern": {
                    "type": "string",
                    "description": "A file, a folder, or a pattern such as `src/**/*.py`. Default: `**/*.py`.",
                },
            },
            "required": [],
        }),
    }
}

#[derive(Deserialize)]
pub(super) struct Arguments {
    search_terms: Option<Vec<String>>,
    line_nums: Option<Vec<u32>>,
    file_path_or_pattern: Option<String>,
}

pub(super) fn to_action(arguments: Arguments, thought: &str) -> Result<Action, ToolError> {
    let Arguments {
        search_terms,
        line_nums,
        file_path_or_pattern,
    } = arguments;
    let (terms, lines) = (
        search_terms.unwrap_or_default(),
        line_nums.unwrap_or_default(),
    );
    let pattern = file_path_or_pattern.filter(|pattern| !pattern.trim().is_empty());
    let problem = match (terms.is_empty(), lines.is_empty(), &pattern) {
        (true, true, _) => Some("give `search_terms` or `line_nums`"),
        (_, false, None) => Some("`line_nums` need the file in `file_path_or_pattern`"),
        _ => None,
    };
    if let Some(problem) = problem {
        return Err(ToolError::Arguments {
            tool: NAME.into(),
            problem: problem.into(),
        });
    }
    let pattern = pattern.unwrap_or_else(|| "**/*.py".into());
    let arguments =
        json!({"search_terms": terms, "line_nums": lines, "file_path_or_pattern": pattern});
    code_graph::action(NAME, &arguments, thought)
}
