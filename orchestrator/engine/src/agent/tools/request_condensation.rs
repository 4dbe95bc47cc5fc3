//! Request a condensation of the history.

use protocol::Action;
use protocol::action::CondensationRequestAction;
use serde_json::json;

use crate::llm::Tool;

pub(super) const NAME: &str = "request_condensation";

pub(super) fn definition() -> Tool {
    Tool {
        name: NAME.into(),
        description:
            "Asks that what has happened so far be made shorter, when much of it no longer matters for what \
                      is left to do. It is done before your next turn."
                .into(),
        parameters: json!({"type": "object", "properties": {}}),
    }
}

pub(super) fn to_action() -> Action {
    CondensationRequestAction {}.into()
}
