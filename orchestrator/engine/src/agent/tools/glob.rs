//! Find files by their names.

use protocol::Action;
use serde::Deserialize;
use serde_json::json;

use super::{ToolError, search};
use crate::llm::Tool;

pub(super) const NAME: &str = "glob";

pub(super) fn definition() -> Tool {
    Tool {
        name: NAME.into(),
        description: "Finds files by their names, at most 200, sorted. Passes over node_modules, and what begins with a \
                      dot unless the pattern does. No output: nothing fits."
            .into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "pattern": {
                    "type": "string",
                    "description": "As in .gitignore: without a slash at any depth; `src/**/*.{js,ts}` below the folder.",
                },
                "path": {"type": "string", "description": "The folder. Default: the workspace."},
            },
            "required": ["pattern"],
        }),
    }
}

#[derive(Deserialize)]
pub(super) struct Arguments {
    pattern: String,
    path: Option<String>,
}

pub(super) fn to_action(arguments: Arguments, thought: &str) -> Result<Action, ToolError> {
    let pattern = arguments.pattern.trim_start_matches("./");
    let path = search::quote(NAME, arguments.path.as_deref().unwrap_or("."))?;
    let hidden = pattern.starts_with('.') || pattern.contains("/.");
    let files = search::files_in(&path, hidden);
    let regex = search::quote(NAME, &to_regex(pattern))?;
    let command = format!("{files} -print | sed 's|^\\./||' | grep -E -e {regex} | sort");
    Ok(search::action(&command, thought))
}

/// A POSIX extended regular expression that fits the paths that the pattern fits.
fn to_regex(pattern: &str) -> String {
    let mut regex = String::from(if pattern.contains('/') {
        "^"
    } else {
        "^(.*/)?"
    });
    let mut rest = pattern.trim_start_matches('/');
    let mut braces = 0_usize;
    while let Some(character) = rest.chars().next() {
        let closes = |closing: char| rest.contains(closing);
        let (taken, part) = match character {
            '*' if rest.starts_with("**/") => (3, "(.*/)?".to_owned()),
            '*' if rest.starts_with("**") => (2, ".*".to_owned()),
            '*' => (1, "[^/]*".to_owned()),
            '?' => (1, "[^/]".to_owned()),
            '{' if closes('}') => {
                braces += 1;
                (1, "(".to_owned())
            }
            ',' if braces > 0 => (1, "|".to_owned()),
            '}' if braces > 0 => {
                braces -= 1;
                (1, ")".to_owned())
            }
            '.' | '^' | '$' | '+' | '(' | ')' | '|' | '\\' | '[' | ']' | '{' | '}' => {
                (1, format!("\\{character}"))
            }
            other => (other.len_utf8(), other.to_string()),
        };
        regex.push_str(&part);
        rest = rest.get(taken..).unwrap_or_default();
    }
    regex + &")".repeat(braces) + "$"
}
