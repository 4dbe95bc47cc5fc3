//! Which actions the user is asked about.

use protocol::Action;
use protocol::risk::ConfirmationPolicy;

/// Whether the user is asked about an action, as far as it is judged.
pub fn asks(policy: ConfirmationPolicy, action: &Action) -> bool {
    does_something(action) && policy.asks(action.security_risk())
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
    use protocol::action::{FinishAction, MessageAction, RunAction, ThinkAction};

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
