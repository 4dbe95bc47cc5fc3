//! Reads a saved trajectory: a JSON array of V0's events.

use std::path::Path;

use engine::replay::Trajectory;
use protocol::{Event, python_json};
use serde_json::Value;

use super::print;
use crate::exit::UsageError;
use crate::input_file;

/// Maximum size of a trajectory, in bytes.
const MAX_LENGTH: usize = 256 << 20;

/// Reads a saved trajectory. Prints how many actions cannot be replayed.
pub(super) fn read(path: &Path) -> anyhow::Result<Trajectory> {
    let invalid = |problem: String| {
        UsageError(format!(
            "cannot read the trajectory {}: {problem}",
            path.display()
        ))
    };
    let text =
        input_file::read_named(path, MAX_LENGTH).map_err(|error| invalid(error.to_string()))?;
    let values: Vec<Value> = serde_json::from_slice(&python_json::to_json(&text))
        .map_err(|error| invalid(format!("not a JSON array of events: {error}")))?;
    let event = |(number, value)| {
        Event::from_value(value)
            .map_err(|error| invalid(format!("entry {number}, counted from 0: {error}")))
    };
    let events = values
        .iter()
        .enumerate()
        .map(event)
        .collect::<Result<Vec<_>, _>>()?;
    let trajectory = Trajectory::new(&events);
    if trajectory.is_empty() {
        return Err(invalid("it has no action that can be replayed".into()).into());
    }
    if trajectory.cancelled() > 0 {
        print::note(&format!(
            "not replayed: {} stopped or rejected by the user\n",
            trajectory.cancelled()
        ));
    }
    if trajectory.unresolved_drafts() > 0 {
        print::note(&format!(
            "not replayed: {} drafted without a result\n",
            trajectory.unresolved_drafts()
        ));
    }
    Ok(trajectory)
}
