//! Find lines in files.

use protocol::Action;
use serde::Deserialize;
use serde_json::json;

use super::{ToolError, search};
use crate::llm::Tool;

pub(super) const NAME: &str = "grep";

/// How many patterns the braces of one may stand for.
const MAX_PATTERNS: usize = 16;

pub(super) fn definition() -> Tool {
    Tool {
        name: NAME.into(),
        description:
            "Finds the lines that a pattern fits, with file and line number, at most 200. Passes over binary \
                      files, node_modules, and what begins with a dot. No output: nothing fits."
                .into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "A POSIX extended regular expression, for one line."},
                "path": {"type": "string", "description": "A folder or a file. Default: the workspace."},
                "include": {"type": "string", "description": "Only files of such names: `*.rs`, `*.{ts,tsx}`."},
            },
            "required": ["pattern"],
        }),
    }
}

#[derive(Deserialize)]
pub(super) struct Arguments {
    pattern: String,
    path: Option<String>,
    include: Option<String>,
}

pub(super) fn to_action(arguments: Arguments, thought: &str) -> Result<Action, ToolError> {
    let pattern = search::quote(NAME, &arguments.pattern)?;
    let path = search::quote(NAME, arguments.path.as_deref().unwrap_or("."))?;
    let names = match arguments
        .include
        .as_deref()
        .filter(|include| !include.is_empty())
    {
        None => String::new(),
        Some(include) => name_filter(include)?,
    };
    let files = search::files_in(&path, false);
    let command = format!(
        "if [ -f {path} ]; then grep -nIE -e {pattern} -- {path}; \
         else {files}{names} -exec grep -nHIE -e {pattern} -- {{}} +; fi"
    );
    Ok(search::action(&command, thought))
}

/// Returns the arguments of `find` that select files by name.
fn name_filter(include: &str) -> Result<String, ToolError> {
    let names = expand(include).filter(|names| names.iter().all(|name| !name.contains('/')));
    let Some(names) = names else {
        let problem = format!(
            "`include` is a pattern of names without folders, of at most {MAX_PATTERNS} kinds"
        );
        return Err(ToolError::Arguments {
            tool: NAME.into(),
            problem,
        });
    };
    let names = names
        .iter()
        .map(|name| Ok(format!("-name {}", search::quote(NAME, name)?)));
    Ok(format!(
        " \\( {} \\)",
        names.collect::<Result<Vec<_>, ToolError>>()?.join(" -o ")
    ))
}

/// Expands braces: `*.{ts,tsx}` is two patterns. `None` if there are too many.
fn expand(pattern: &str) -> Option<Vec<String>> {
    let mut done = Vec::new();
    let mut open = vec![pattern.to_owned()];
    while let Some(next) = open.pop() {
        let parts = next
            .split_once('{')
            .and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
        match parts {
            Some((before, (within, after))) => {
                open.extend(
                    within
                        .rsplit(',')
                        .map(|choice| format!("{before}{choice}{after}")),
                );
            }
            None => done.push(next),
        }
        if open.len() + done.len() > MAX_PATTERNS {
            return None;
        }
    }
    Some(done)
}
