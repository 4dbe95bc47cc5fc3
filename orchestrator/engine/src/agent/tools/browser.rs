//! Interact with the sandbox's browser. Offered if the sandbox has Chromium.

use protocol::Action;
use protocol::action::BrowseInteractiveAction;
use serde::Deserialize;
use serde_json::json;

use super::ToolError;
use crate::browsing::{self, BrowserCall};
use crate::llm::Tool;

pub(super) const NAME: &str = "browser";

const DESCRIPTION: &str = include_str!("browser.md");

pub(super) fn definition() -> Tool {
    Tool {
        name: NAME.into(),
        description: DESCRIPTION.trim_end().into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "code": {"type": "string", "description": "Calls, one a line."},
            },
            "required": ["code"],
        }),
    }
}

#[derive(Deserialize)]
pub(super) struct Arguments {
    code: String,
}

pub(super) fn to_action(mut arguments: Arguments, thought: &str) -> Result<Action, ToolError> {
    if arguments.code.trim().is_empty() {
        // As in V0, the agent sees the page as it is.
        "noop()".clone_into(&mut arguments.code);
    }
    let invalid = |error: browsing::InvalidCalls| ToolError::Arguments {
        tool: NAME.into(),
        problem: error.to_string(),
    };
    let calls = browsing::parse(&arguments.code).map_err(invalid)?;
    let messages = calls.into_iter().filter_map(|call| match call {
        BrowserCall::SendMessage(text) => Some(text),
        _ => None,
    });
    let action = BrowseInteractiveAction {
        browsergym_send_msg_to_user: messages.collect::<Vec<_>>().join("\n"),
        browser_actions: arguments.code,
        thought: thought.to_owned(),
        ..Default::default()
    };
    Ok(action.into())
}
