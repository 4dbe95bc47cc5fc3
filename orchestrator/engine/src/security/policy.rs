//! Which actions the user is asked about.

use protocol::{Action, SecurityRisk};

/// When the user is asked before an action is performed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ConfirmationPolicy {
    /// Not at all.
    #[default]
    Never,
    /// About what is at least this risky, and about what nobody could judge.
    Risky(SecurityRisk),
    /// About everything that does something.
    Always,
}

impl ConfirmationPolicy {
    /// Whether the user is asked about an action of that risk.
    pub fn asks(&self, action: &Action, risk: SecurityRisk) -> bool {
        does_something(action)
            && match self {
                Self::Never => false,
                Self::Risky(threshold) => risk == SecurityRisk::Unknown || risk >= *threshold,
                Self::Always => true,
            }
    }
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
        let run: Action = RunAction { command: "ls".into(), ..Default::default() }.into();
        let asked =
            |policy: ConfirmationPolicy| [Unknown, Low, Medium, High].map(|risk| policy.asks(&run, risk));
        assert_eq!(asked(ConfirmationPolicy::Never), [false; 4]);
        assert_eq!(asked(ConfirmationPolicy::Risky(High)), [true, false, false, true]);
        assert_eq!(asked(ConfirmationPolicy::Risky(Medium)), [true, false, true, true]);
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
            assert!(!ConfirmationPolicy::Always.asks(&action, Unknown), "{action:?}");
        }
        let enter = RunAction { is_input: true, ..Default::default() };
        assert!(ConfirmationPolicy::Always.asks(&enter.into(), Unknown));
    }
}
