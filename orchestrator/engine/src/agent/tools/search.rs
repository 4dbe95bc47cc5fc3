//! Shell text that looks through files and writes nothing. No action of V0's searches, so it is a run action, as V0's is; the
//! shell is one of its own, what comes from the model is quoted, and nothing but POSIX's own programs is needed.

use protocol::Action;
use protocol::action::RunAction;

use super::ToolError;

/// How many lines are told, and how many letters of each.
const MOST_LINES: usize = 200;
const LONGEST_LINE: usize = 500;

/// The action of a search. It may be silent until its timeout.
pub(super) fn action(command: &str, thought: &str) -> Action {
    let command = format!("{{ {command}; }} 2>&1 | head -n {MOST_LINES} | cut -c 1-{LONGEST_LINE}");
    RunAction { command, thought: thought.to_owned(), is_static: true, blocking: true, ..Default::default() }
        .into()
}

/// Goes to a folder and begins to look through its files. Of versions and of packages only if `hidden` things are meant.
pub(super) fn files_in(path: &str, hidden: bool) -> String {
    let passed_over = if hidden { ".git" } else { ".?*" };
    format!("cd -- {path} && find . -name '{passed_over}' -prune -o -name node_modules -prune -o -type f")
}

/// A value as one word of shell text.
pub(super) fn quote(tool: &'static str, value: &str) -> Result<String, ToolError> {
    let quoted = shlex::try_quote(value).map(std::borrow::Cow::into_owned);
    quoted.map_err(|error| ToolError::Arguments { tool: tool.into(), problem: error.to_string() })
}
