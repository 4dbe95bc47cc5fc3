//! The number of descriptors that the process may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Number of descriptors that this program asks for. Not the maximum: some programs in local
/// sandboxes, which inherit the limit, close every number below it at their start.
const REQUESTED_DESCRIPTORS: u64 = 32_768;

/// Raises the limit of descriptors, which is 1024 for most shells, as far as the process may.
/// Returns it; `None` for no limit.
pub(super) fn raise_limit() -> Option<usize> {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current?;
    let requested = limit.maximum.map_or(REQUESTED_DESCRIPTORS, |maximum| {
        maximum.min(REQUESTED_DESCRIPTORS)
    });
    let raised = Rlimit {
        current: Some(requested),
        maximum: limit.maximum,
    };
    let current = if current >= requested {
        current
    } else if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, current, "cannot raise the limit of descriptors");
        current
    } else {
        requested
    };
    usize::try_from(current).ok()
}
