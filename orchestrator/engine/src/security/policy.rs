//! Which actions the user is asked about.

use protocol::Action;
use protocol::record::{ApprovalGranted, ApprovalScope};
use protocol::risk::ConfirmationPolicy;

use super::severity;

/// Whether the user is asked about an action, as far as it is judged.
pub fn asks(policy: ConfirmationPolicy, action: &Action) -> bool {
    does_something(action) && policy.requires_confirmation(action.security_risk())
}

/// The narrowest approval that covers an action and those like it. `None` where every action needs an approval of its
/// own: input to a running process and calls in a browser mean something else each time. So do commands with a folder of
/// their own and cells with code for a new kernel, which no agent here makes, but trajectories can hold.
pub fn approval(action: &Action) -> Option<ApprovalGranted> {
    let scope = match action {
        Action::Run(run) if !run.is_input && !run.is_static && run.cwd.is_none() => {
            ApprovalScope::Command { command: run.command.clone() }
        }
        Action::RunIpython(cell) if cell.kernel_init_code.is_empty() => {
            ApprovalScope::Cell { code: cell.code.clone() }
        }
        Action::CallToolMcp(call) => ApprovalScope::McpTool { name: call.name.clone() },
        Action::Read(_) | Action::Write(_) | Action::Edit(_) => {
            ApprovalScope::Action { action: action.kind().to_owned() }
        }
        _ => return None,
    };
    Some(ApprovalGranted { scope, risk: action.security_risk() })
}

/// Whether an approval covers an action: it is like the approved one, and no riskier.
pub fn covers(granted: &ApprovalGranted, action: &Action) -> bool {
    approval(action)
        .is_some_and(|own| own.scope == granted.scope && severity(own.risk) <= severity(granted.risk))
}

/// Not: thinking, talking, waiting for what runs.
fn does_something(action: &Action) -> bool {
    match action {
        Action::Run(run) => run.is_input || !run.command.trim().is_empty(),
        Action::RunIpython(_)
        | Action::Read(_)
        | Action::Write(_)
        | Action::Edit(_)
        | Action::Browse(_)
        | Action::BrowseInteractive(_)
        | Action::CallToolMcp(_)
        | Action::Delegate(_) => true,
        Action::Null(_)
        | Action::System(_)
        | Action::Message(_)
        | Action::Think(_)
        | Action::Finish(_)
        | Action::Reject(_)
        | Action::ChangeAgentState(_)
        | Action::Recall(_)
        | Action::Condensation(_)
        | Action::CondensationRequest(_)
        | Action::TaskTracking(_)
        | Action::LoopRecovery(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use protocol::SecurityRisk::{High, Low, Medium, Unknown};
    use protocol::action::{
        BrowseAction, CallToolMcpAction, EditAction, FinishAction, MessageAction, RunAction,
        RunIpythonAction, ThinkAction,
    };

    use super::*;

    #[test]
    fn who_is_asked_about_what() {
        let asked = |policy| {
            [Unknown, Low, Medium, High].map(|security_risk| {
                asks(policy, &RunAction { command: "ls".into(), security_risk, ..Default::default() }.into())
            })
        };
        assert_eq!(asked(ConfirmationPolicy::Never), [false; 4]);
        assert_eq!(asked(ConfirmationPolicy::Risky { from: High }), [true, false, false, true]);
        assert_eq!(asked(ConfirmationPolicy::Risky { from: Medium }), [true, false, true, true]);
        assert_eq!(asked(ConfirmationPolicy::Always), [true; 4]);
    }

    #[test]
    fn an_approval_covers_what_is_alike_and_no_riskier() {
        let run = |command: &str, security_risk| -> Action {
            RunAction { command: command.into(), security_risk, ..Default::default() }.into()
        };
        let granted = approval(&run("make test", Medium)).unwrap();
        assert!(covers(&granted, &run("make test", Low)) && covers(&granted, &run("make test", Medium)));
        for other in
            [run("make test ", Low), run("make", Low), run("make test", High), run("make test", Unknown)]
        {
            assert!(!covers(&granted, &other), "{other:?}");
        }
        let call = |name: &str| Action::from(CallToolMcpAction { name: name.into(), ..Default::default() });
        let granted = approval(&call("search")).unwrap();
        assert!(covers(&granted, &call("search")) && !covers(&granted, &call("delete")));
        let edit = |path: &str| Action::from(EditAction::new(path, "create"));
        assert!(covers(&approval(&edit("/a")).unwrap(), &edit("/b")));
        let in_folder = RunAction { cwd: Some("/etc".into()), ..Default::default() };
        let cell = |kernel_init_code: &str| {
            let cell = serde_json::json!({"code": "1", "kernel_init_code": kernel_init_code});
            Action::from(serde_json::from_value::<RunIpythonAction>(cell).unwrap())
        };
        assert_eq!((approval(&in_folder.into()), approval(&cell("x()"))), (None, None));
        assert!(!covers(&approval(&cell("")).unwrap(), &cell("x()")));
        let input = RunAction { command: "y".into(), is_input: true, ..Default::default() };
        assert_eq!((approval(&input.into()), approval(&BrowseAction::default().into())), (None, None));
    }

    #[test]
    fn nobody_is_asked_about_thoughts_words_and_waiting() {
        let harmless: [Action; 4] = [
            ThinkAction::default().into(),
            MessageAction::default().into(),
            FinishAction::default().into(),
            RunAction::default().into(),
        ];
        for action in harmless {
            assert!(!asks(ConfirmationPolicy::Always, &action), "{action:?}");
        }
        let enter = RunAction { is_input: true, ..Default::default() };
        assert!(asks(ConfirmationPolicy::Always, &enter.into()));
    }
}
