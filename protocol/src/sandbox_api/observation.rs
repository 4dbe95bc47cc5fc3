//! The observations that an action server may respond with. All other kinds originate at the host:
//! agent states, user decisions, retrieved knowledge, delegation.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{FrameError, SandboxAction};
use crate::observation::{Observation, ObservationKind};

/// The kinds of observation that an action server may respond with.
const OBSERVATION_KINDS: [&str; 6] = ["run", "run_ipython", "read", "write", "edit", "error"];

/// Maximum length of a kind that an error quotes, in characters.
const MAX_QUOTED_KIND: usize = 64;

/// An observation with unparsed `extras`. They are parsed only for an accepted kind, directly into
/// its type.
#[derive(Deserialize)]
struct RawObservation<'a> {
    #[serde(borrow)]
    observation: Cow<'a, str>,
    #[serde(default)]
    content: String,
    #[serde(borrow)]
    extras: &'a RawValue,
}

/// Parses an action server's observation, without a tree of JSON values: that would take a multiple
/// of the text's size.
pub(super) fn parse_observation(json: &[u8]) -> Result<Observation, FrameError> {
    let raw: RawObservation<'_> = serde_json::from_slice(json)?;
    if !OBSERVATION_KINDS.contains(&&*raw.observation) {
        let kind = raw.observation.chars().take(MAX_QUOTED_KIND).collect();
        return Err(FrameError::UnexpectedObservation(kind));
    }
    let kind = ObservationKind::from_current(&raw.observation, raw.extras)?;
    Ok(Observation {
        content: raw.content,
        kind,
    })
}

impl SandboxAction {
    /// Whether an observation of this kind can be the result of the action.
    pub fn accepts(&self, observation: &ObservationKind) -> bool {
        match observation {
            ObservationKind::Error(_) => true,
            ObservationKind::Run(_) => matches!(self, Self::Run(_)),
            ObservationKind::RunIpython(_) => matches!(self, Self::RunIpython(_)),
            ObservationKind::Read(_) => matches!(self, Self::Read(_)),
            ObservationKind::Write(_) => matches!(self, Self::Write(_)),
            ObservationKind::Edit(_) => matches!(self, Self::Edit(_)),
            ObservationKind::Browse(_) => {
                matches!(self, Self::Browse(_) | Self::BrowseInteractive(_))
            }
            ObservationKind::Null(_)
            | ObservationKind::Delegate(_)
            | ObservationKind::Success(_)
            | ObservationKind::AgentStateChanged(_)
            | ObservationKind::UserRejected(_)
            | ObservationKind::Think(_)
            | ObservationKind::Condense(_)
            | ObservationKind::Recall(_)
            | ObservationKind::Mcp(_)
            | ObservationKind::Download(_)
            | ObservationKind::TaskTracking(_)
            | ObservationKind::LoopDetection(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::action::Action;

    /// The mandatory fields of all kinds of actions and observations.
    fn fields() -> serde_json::Value {
        json!({
            "command": "", "code": "", "path": "", "content": "", "url": "", "browser_actions": "", "agent_state": "finished",
            "recall_type": "knowledge", "file_path": "", "thought": "", "outputs": {}, "agent": "", "inputs": {}, "query": "",
            "name": "", "arguments": {}, "prompt": "", "final_thought": "", "task_list": [],
        })
    }

    #[test]
    fn actions_accept_only_their_own_observation_and_errors() {
        let mut accepted = Vec::new();
        for action in [
            "run",
            "run_ipython",
            "read",
            "write",
            "edit",
            "browse",
            "browse_interactive",
        ] {
            let action = Action::from_fields(action, &fields()).unwrap();
            let action = SandboxAction::try_from(action).unwrap();
            for kind in ObservationKind::KINDS {
                let observation = ObservationKind::from_fields(kind, &fields()).unwrap();
                if action.accepts(&observation) {
                    accepted.push(format!("{} {kind}", action.kind()));
                }
            }
        }
        accepted.retain(|pair| !pair.ends_with(" error"));
        assert_eq!(
            accepted,
            [
                "run run",
                "run_ipython run_ipython",
                "read read",
                "write write",
                "edit edit",
                "browse browse",
                "browse_interactive browse",
            ]
        );
    }

    #[test]
    fn lists_that_need_excessive_memory_are_rejected() {
        let read = |images: serde_json::Value| {
            let json = json!({"observation": "run_ipython", "content": "", "extras": {"code": "", "image_urls": images}});
            parse_observation(json.to_string().as_bytes())
        };
        assert!(read(json!(vec!["data:"; 8])).is_ok() && read(json!(null)).is_ok());
        assert!(matches!(
            read(json!(vec![""; 10_001])),
            Err(FrameError::Json(_))
        ));
    }

    #[test]
    fn other_kinds_are_rejected_unparsed() {
        for kind in ObservationKind::KINDS {
            let json =
                json!({"observation": kind, "content": "output", "extras": fields()}).to_string();
            let read = parse_observation(json.as_bytes());
            if OBSERVATION_KINDS.contains(kind) {
                let read = read.unwrap();
                assert_eq!((read.kind.kind(), &*read.content), (*kind, "output"));
            } else {
                assert!(
                    matches!(read, Err(FrameError::UnexpectedObservation(named)) if named == *kind),
                    "{kind}"
                );
            }
        }
    }
}
