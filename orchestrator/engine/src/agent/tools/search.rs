//! Shell commands that search files without writing. V0 has no action for searches, so they are run
//! actions, in a shell of their own. Arguments of the model are quoted. Only POSIX programs are
//! required.

use protocol::Action;
use protocol::action::RunAction;

use super::ToolError;

/// Maximum number of lines in the output, and maximum length of a line in characters.
const MAX_LINES: usize = 200;
const MAX_LINE_CHARS: usize = 500;

/// Returns the action of a search, which waits until the search completes.
pub(super) fn action(command: &str, thought: &str) -> Action {
    let command =
        format!("{{ {command}; }} 2>&1 | head -n {MAX_LINES} | cut -c 1-{MAX_LINE_CHARS}");
    RunAction {
        command,
        thought: thought.to_owned(),
        is_static: true,
        blocking: true,
        ..Default::default()
    }
    .into()
}

/// Returns the start of a `find` command in a folder. Skips hidden files unless `hidden`, and
/// `node_modules`.
pub(super) fn files_in(path: &str, hidden: bool) -> String {
    let excluded = if hidden { ".git" } else { ".?*" };
    format!(
        "cd -- {path} && find . -name '{excluded}' -prune -o -name node_modules -prune -o -type f"
    )
}

/// Quotes a value as one shell word.
pub(super) fn quote(tool: &'static str, value: &str) -> Result<String, ToolError> {
    let quoted = shlex::try_quote(value).map(std::borrow::Cow::into_owned);
    quoted.map_err(|error| ToolError::Arguments {
        tool: tool.into(),
        problem: error.to_string(),
    })
}
