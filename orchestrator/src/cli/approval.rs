//! Describes an action that awaits confirmation: the whole action, its risk, and the reason for the
//! risk. Pure.
//!
//! The text is from a model. Each line has a mark, so that none can imitate the prompt, and control
//! characters are escaped.

use protocol::action::{EditAction, EditCommand, ReadAction, WriteAction};
use protocol::{Action, SecurityRisk};
use rustix::termios::tcgetwinsize;

use super::print::{visible, visible_line};

/// Describes an action that awaits confirmation. `network` is the one of the sandbox, if it is
/// known.
pub(super) fn describe(action: &Action, risk_reason: &str, network: Option<&str>) -> String {
    let (title, text) = title_and_text(action);
    let lines = match text.matches('\n').count() {
        0 | 1 => String::new(),
        lines => format!(" ({lines} lines)"),
    };
    let reason = match risk_reason {
        "" => String::new(),
        reason => format!(": {}", visible_line(reason)),
    };
    let network = network.map(visible_line);
    let network = network
        .map(|network| format!("  network of the sandbox: {network}\n"))
        .unwrap_or_default();
    let risk = risk_name(action.security_risk());
    format!("\napproval needed: {title}{lines}\n{text}  risk: {risk}{reason}\n{network}")
}

/// Describes the actions that can be approved together with this one. `None` if each needs its own
/// approval.
pub(super) fn describe_similar(action: &Action) -> Option<&'static str> {
    engine::security::approval(action)?;
    Some(match action {
        Action::Run(_) => "this command",
        Action::RunIpython(_) => "this cell",
        Action::CallToolMcp(_) => "this tool",
        Action::Read(_) => "reading files at this risk",
        _ => "edits at this risk",
    })
}

fn risk_name(risk: SecurityRisk) -> &'static str {
    match risk {
        SecurityRisk::Unknown => "unknown",
        SecurityRisk::Low => "low",
        SecurityRisk::Medium => "medium",
        SecurityRisk::High => "high",
    }
}

/// Returns a title, and the marked lines of the action.
fn title_and_text(action: &Action) -> (String, String) {
    match action {
        Action::Run(run) if run.is_input => (
            "type into the running program".into(),
            marked('>', &run.command),
        ),
        Action::Run(run) => {
            let shell = if run.is_static {
                " in a shell of its own"
            } else {
                ""
            };
            let folder = run
                .cwd
                .as_deref()
                .map(|cwd| format!(" in the folder {}", visible_line(cwd)));
            (
                format!("run a command{shell}{}", folder.unwrap_or_default()),
                marked('$', &run.command),
            )
        }
        Action::RunIpython(cell) if cell.kernel_init_code.is_empty() => {
            ("run a Python cell".into(), marked('|', &cell.code))
        }
        Action::RunIpython(cell) => {
            let text = marked('*', &cell.kernel_init_code) + &marked('|', &cell.code);
            (
                "run a Python cell, in a new kernel after the lines marked *".into(),
                text,
            )
        }
        Action::Edit(edit) => edit_title_and_text(edit),
        Action::Write(WriteAction {
            path,
            content,
            start,
            end,
            ..
        }) => {
            let range = match (start, end) {
                (0, -1) => String::new(),
                _ => format!(", replacing lines {start} to {end}"),
            };
            (
                format!("write {}{range}", visible_line(path)),
                marked('+', content),
            )
        }
        Action::Read(ReadAction { path, .. }) => {
            (format!("read {}", visible_line(path)), String::new())
        }
        Action::CallToolMcp(call) => {
            let arguments = serde_json::to_string_pretty(&call.arguments).unwrap_or_default();
            (
                format!("call the MCP tool {}", visible_line(&call.name)),
                marked('|', &arguments),
            )
        }
        Action::Delegate(delegate) => {
            let inputs = serde_json::to_string_pretty(&delegate.inputs).unwrap_or_default();
            (
                format!(
                    "delegate a task to the agent {}",
                    visible_line(&delegate.agent)
                ),
                marked('|', &inputs),
            )
        }
        Action::Browse(browse) => (format!("open {}", visible_line(&browse.url)), String::new()),
        Action::BrowseInteractive(browse) => (
            "act in the browser".into(),
            marked('|', &browse.browser_actions),
        ),
        other => (other.kind().to_owned(), marked('|', &other.message())),
    }
}

fn edit_title_and_text(edit: &EditAction) -> (String, String) {
    let path = visible_line(&edit.path);
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    match &edit.command {
        _ if edit.is_draft() => {
            let end = if edit.end == -1 {
                "the end".to_owned()
            } else {
                edit.end.to_string()
            };
            let title = format!(
                "edit {path}, lines {} to {end}, from a draft that a model completes",
                edit.start
            );
            (title, marked('|', &edit.content))
        }
        EditCommand::Create => (
            format!("create {path}"),
            marked('+', &text(&edit.file_text)),
        ),
        EditCommand::StrReplace => {
            let diff = marked('-', &text(&edit.old_str)) + &marked('+', &text(&edit.new_str));
            (format!("edit {path}"), diff)
        }
        EditCommand::Insert => {
            let line = edit.insert_line.unwrap_or_default();
            (
                format!("edit {path}, after line {line}"),
                marked('+', &text(&edit.new_str)),
            )
        }
        EditCommand::UndoEdit => (format!("undo the latest edit of {path}"), String::new()),
        other => (
            format!("{} {path}", visible_line(other.as_str())),
            String::new(),
        ),
    }
}

/// Assumed width of a terminal that does not report it.
const DEFAULT_COLUMNS: usize = 80;

/// Marks each line of a text. Wraps long lines and marks the continuations too, because a line that
/// the terminal wraps could imitate a line of the prompt.
fn marked(mark: char, text: &str) -> String {
    let columns = tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    let columns = if columns == 0 {
        DEFAULT_COLUMNS
    } else {
        columns
    };
    let room = columns.saturating_sub("  $ ".len() + 1).max(2);
    text.split_terminator('\n')
        .map(|line| marked_line(mark, &visible(line), room))
        .collect()
}

fn marked_line(mark: char, line: &str, room: usize) -> String {
    let mut marked = format!("  {mark} ");
    let mut used = 0;
    for character in line.chars() {
        // The maximum width of tabs and wide characters.
        let width = match character {
            '\t' => 8,
            _ if character.is_ascii() => 1,
            _ => 2,
        };
        if used > 0 && used + width > room {
            marked.push_str("\n  … ");
            used = 0;
        }
        marked.push(character);
        used += width;
    }
    marked.push('\n');
    marked
}

#[cfg(test)]
mod tests {
    use protocol::action::{CallToolMcpAction, RunAction, RunIpythonAction};
    use serde_json::json;

    use super::*;

    fn described(action: Action, risk_reason: &str) -> String {
        describe(&action, risk_reason, Some("none"))
    }

    #[test]
    fn long_line_is_wrapped_behind_a_mark() {
        let padding = " ".repeat(6);
        let shown = marked_line('$', &format!("true{padding}  risk: low"), 10);
        assert_eq!(shown, "  $ true      \n  …   risk: lo\n  … w\n");
        assert_eq!(marked_line('|', "漢字漢字", 4), "  | 漢字\n  … 漢字\n");
    }

    #[test]
    fn command_is_shown_whole_with_risk_and_reason() {
        let command = "cd build\nrm -rf *".to_owned();
        let run = RunAction {
            command,
            security_risk: SecurityRisk::High,
            ..Default::default()
        };
        assert_eq!(
            described(run.into(), "it deletes\nfiles"),
            "\napproval needed: run a command (2 lines)\n  $ cd build\n  $ rm -rf *\n  risk: high: it deletes\\nfiles\n  \
             network of the sandbox: none\n"
        );
    }

    #[test]
    fn edit_is_shown_as_removed_and_added_lines() {
        let (old_str, new_str) = (Some("one\ntwo".to_owned()), Some("three\n".to_owned()));
        let edit = EditAction {
            old_str,
            new_str,
            ..EditAction::new("/w/a b", EditCommand::StrReplace)
        };
        let shown = described(edit.into(), "");
        assert!(
            shown.contains("edit /w/a b (3 lines)\n  - one\n  - two\n  + three\n  risk: unknown\n"),
            "{shown}"
        );
        let file_text = Some((1..=500).map(|line| format!("{line}\n")).collect());
        let create = EditAction {
            file_text,
            ..EditAction::new("/w/c", EditCommand::Create)
        };
        assert!(
            described(create.into(), "").contains("  + 500\n"),
            "all lines are shown"
        );
    }

    #[test]
    fn arguments_of_a_tool_are_shown() {
        let arguments = json!({"table": "users", "rows": [1, 2]})
            .as_object()
            .cloned()
            .unwrap();
        let call = CallToolMcpAction {
            name: "delete".into(),
            arguments,
            ..Default::default()
        };
        let shown = described(call.into(), "");
        assert!(
            shown.contains("call the MCP tool delete")
                && shown.contains("  |   \"table\": \"users\""),
            "{shown}"
        );
    }

    #[test]
    fn folder_and_kernel_code_of_a_foreign_action_are_shown() {
        let command = "ls".to_owned();
        let cwd = Some("/etc\n  risk: low".to_owned());
        let shown = described(
            RunAction {
                command,
                cwd,
                is_static: true,
                ..Default::default()
            }
            .into(),
            "",
        );
        let title =
            "run a command in a shell of its own in the folder /etc\\n  risk: low\n  $ ls\n";
        assert!(shown.contains(title), "{shown}");
        let cell = json!({"code": "1 + 1", "kernel_init_code": "import os\nos.x()"});
        let cell: RunIpythonAction = serde_json::from_value(cell).unwrap();
        let shown = described(cell.into(), "");
        assert!(
            shown.contains("the lines marked * (3 lines)\n  * import os\n  * os.x()\n  | 1 + 1\n"),
            "{shown}"
        );
    }

    #[test]
    fn hostile_text_is_escaped_and_marked() {
        let command = "ls\r\x1b[2K\u{9b}2J\u{202e}#\u{200b}\n  risk: low".to_owned();
        let shown = described(
            RunAction {
                command,
                ..Default::default()
            }
            .into(),
            "",
        );
        assert!(
            shown.contains("  $ ls\\r\\x1b[2K\\x9b2J\\u{202e}#\\u{200b}\n  $   risk: low\n"),
            "{shown}"
        );
    }
}
