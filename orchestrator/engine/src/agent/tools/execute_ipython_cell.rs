//! Run Python code in the sandbox's Jupyter kernel. Offered if the sandbox has IPython.

use protocol::Action;
use protocol::action::{ConfirmationState, RunIpythonAction};
use serde::Deserialize;
use serde_json::json;

use crate::llm::Tool;

pub(super) const NAME: &str = "execute_ipython_cell";

pub(super) fn definition() -> Tool {
    Tool {
        name: NAME.into(),
        description: "Runs a cell of Python in IPython. Variables and imports stay from cell to cell. The answer holds what \
                      the cell prints and the value of its last line; figures and other images are shown. Magics \
                      work: `%pip install` gets packages for it. Nobody answers `input()`. A cell that takes too long \
                      is interrupted."
            .into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "code": {"type": "string", "description": "The cell."},
            },
            "required": ["code"],
        }),
    }
}

#[derive(Deserialize)]
pub(super) struct Arguments {
    code: String,
}

pub(super) fn to_action(arguments: Arguments, thought: &str) -> Action {
    RunIpythonAction {
        code: arguments.code,
        thought: thought.to_owned(),
        include_extra: true,
        confirmation_state: ConfirmationState::default(),
        security_risk: protocol::SecurityRisk::default(),
        kernel_init_code: String::new(),
    }
    .into()
}
