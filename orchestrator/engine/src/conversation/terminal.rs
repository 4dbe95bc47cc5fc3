//! Terminal events of actions without a result of a sandbox or tool server. Pure.

use protocol::Observation;
use protocol::observation::UserRejectedObservation;

/// `error_id` of the observation of an action whose sandbox was lost: it may or may not have
/// completed.
pub const INTERRUPTED: &str = "ACTION$INTERRUPTED";

/// `error_id` of the observation of an action that was never sent to a sandbox.
pub const NOT_PERFORMED: &str = "ACTION$NOT_PERFORMED";

/// Reason why a draft is not written out after a stop.
pub(super) const STOPPED: &str = "the user stopped it";

/// Observation of an action that was started and whose result is unknown.
pub(super) fn interrupted(detail: &str) -> Observation {
    let text = format!("The action was interrupted: {detail}. Whether it completed is unknown.");
    Observation::error(text, INTERRUPTED)
}

/// Observation of an action that the user did not confirm.
pub(super) fn rejected(text: &str) -> Observation {
    Observation::new(text, UserRejectedObservation {})
}

/// Observation of an action that was not started.
pub(super) fn not_performed(reason: &str) -> Observation {
    Observation::error(
        format!("The action was not performed: {reason}."),
        NOT_PERFORMED,
    )
}
