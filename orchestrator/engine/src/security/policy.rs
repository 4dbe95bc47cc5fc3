//! Decides which actions need confirmation.

use protocol::Action;
use protocol::record::{ApprovalGranted, ApprovalScope};
use protocol::risk::ConfirmationPolicy;

use super::severity;
use super::shell::BLANKS;
use crate::tool_servers::SEARCH_TOOLS;

/// Whether an action needs the user's confirmation, according to its assessed risk.
pub fn needs_confirmation(policy: ConfirmationPolicy, action: &Action) -> bool {
    has_effect(action) && policy.requires_confirmation(action.security_risk())
}

/// Returns the narrowest approval that covers an action and similar ones. `None` if every such
/// action needs its own approval: the meaning of input to a running process and of calls in a
/// browser depends on the situation. The same holds for commands with their own working directory
/// and cells with code for a new kernel. No agent creates these, but a trajectory may contain them.
pub fn approval(action: &Action) -> Option<ApprovalGranted> {
    let scope = match action {
        Action::Run(run) if !run.is_input && !run.is_static && run.cwd.is_none() => {
            ApprovalScope::Command {
                command: run.command.clone(),
            }
        }
        Action::RunIpython(cell) if cell.kernel_init_code.is_empty() => ApprovalScope::Cell {
            code: cell.code.clone(),
        },
        Action::CallToolMcp(call) => ApprovalScope::McpTool {
            name: call.name.clone(),
        },
        Action::Read(_) | Action::Write(_) | Action::Edit(_) => ApprovalScope::Action {
            action: action.kind().to_owned(),
        },
        _ => return None,
    };
    Some(ApprovalGranted {
        scope,
        risk: action.security_risk(),
    })
}

/// Whether an approval covers an action: the same scope, and no higher risk.
pub fn covers(granted: &ApprovalGranted, action: &Action) -> bool {
    approval(action).is_some_and(|own| {
        own.scope == granted.scope && severity(own.risk) <= severity(granted.risk)
    })
}

/// Whether an action has an effect. Thoughts, messages, searches for tools and waiting for a
/// running command have none.
fn has_effect(action: &Action) -> bool {
    match action {
        Action::Run(run) => run.is_input || !run.command.trim_matches(BLANKS).is_empty(),
        Action::RunIpython(_)
        | Action::Read(_)
        | Action::Write(_)
        | Action::Edit(_)
        | Action::Browse(_)
        | Action::BrowseInteractive(_)
        | Action::Delegate(_) => true,
        Action::CallToolMcp(call) => call.name != SEARCH_TOOLS,
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
        BrowseAction, CallToolMcpAction, EditAction, EditCommand, FinishAction, MessageAction,
        RunAction, RunIpythonAction, ThinkAction,
    };

    use super::*;

    #[test]
    fn confirmation_depends_on_policy_and_risk() {
        let confirmed = |policy| {
            [Unknown, Low, Medium, High].map(|security_risk| {
                needs_confirmation(
                    policy,
                    &RunAction {
                        command: "ls".into(),
                        security_risk,
                        ..Default::default()
                    }
                    .into(),
                )
            })
        };
        assert_eq!(confirmed(ConfirmationPolicy::Never), [false; 4]);
        assert_eq!(
            confirmed(ConfirmationPolicy::Risky { from: High }),
            [true, false, false, true]
        );
        assert_eq!(
            confirmed(ConfirmationPolicy::Risky { from: Medium }),
            [true, false, true, true]
        );
        assert_eq!(confirmed(ConfirmationPolicy::Always), [true; 4]);
    }

    #[test]
    fn approval_covers_similar_actions_of_no_higher_risk() {
        let run = |command: &str, security_risk| -> Action {
            RunAction {
                command: command.into(),
                security_risk,
                ..Default::default()
            }
            .into()
        };
        let granted = approval(&run("make test", Medium)).unwrap();
        assert!(
            covers(&granted, &run("make test", Low)) && covers(&granted, &run("make test", Medium))
        );
        for other in [
            run("make test ", Low),
            run("make", Low),
            run("make test", High),
            run("make test", Unknown),
        ] {
            assert!(!covers(&granted, &other), "{other:?}");
        }
        let call = |name: &str| {
            Action::from(CallToolMcpAction {
                name: name.into(),
                ..Default::default()
            })
        };
        let granted = approval(&call("search")).unwrap();
        assert!(covers(&granted, &call("search")) && !covers(&granted, &call("delete")));
        let edit = |path: &str| Action::from(EditAction::new(path, EditCommand::Create));
        assert!(covers(&approval(&edit("/a")).unwrap(), &edit("/b")));
        let in_folder = RunAction {
            cwd: Some("/etc".into()),
            ..Default::default()
        };
        let cell = |kernel_init_code: &str| {
            let cell = serde_json::json!({"code": "1", "kernel_init_code": kernel_init_code});
            Action::from(serde_json::from_value::<RunIpythonAction>(cell).unwrap())
        };
        assert_eq!(
            (approval(&in_folder.into()), approval(&cell("x()"))),
            (None, None)
        );
        assert!(!covers(&approval(&cell("")).unwrap(), &cell("x()")));
        let input = RunAction {
            command: "y".into(),
            is_input: true,
            ..Default::default()
        };
        assert_eq!(
            (
                approval(&input.into()),
                approval(&BrowseAction::default().into())
            ),
            (None, None)
        );
    }

    #[test]
    fn thoughts_messages_searches_and_waiting_need_no_confirmation() {
        let search = CallToolMcpAction {
            name: SEARCH_TOOLS.into(),
            ..Default::default()
        };
        let harmless: [Action; 5] = [
            search.into(),
            ThinkAction::default().into(),
            MessageAction::default().into(),
            FinishAction::default().into(),
            RunAction::default().into(),
        ];
        for action in harmless {
            assert!(
                !needs_confirmation(ConfirmationPolicy::Always, &action),
                "{action:?}"
            );
        }
        // A shell runs a program with the name of another space.
        for (command, is_confirmed) in [(" \t\n", false), ("\u{3000}", true), ("\u{a0} ", true)] {
            let run = RunAction {
                command: command.into(),
                ..Default::default()
            };
            assert_eq!(
                needs_confirmation(ConfirmationPolicy::Always, &run.into()),
                is_confirmed,
                "{command:?}"
            );
        }
        let enter = RunAction {
            is_input: true,
            ..Default::default()
        };
        assert!(needs_confirmation(
            ConfirmationPolicy::Always,
            &enter.into()
        ));
    }
}
