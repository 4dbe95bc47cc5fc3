//! Dependencies of a conversation, all behind traits.

use std::sync::Arc;

use super::state::Schedule;
use crate::agent::Agents;
use crate::events::EventStore;
use crate::memory::Memory;
use crate::replayed_user::ReplayedUser;
use crate::sandbox::{SandboxProvider, SandboxSpec};
use crate::security::SecurityAnalyzer;

/// Everything that a conversation uses.
#[derive(Clone)]
pub struct EngineParts {
    /// Stores the event log.
    pub store: Arc<dyn EventStore>,
    /// Right to append to the log. Dropped when the conversation's task has ended, which may be
    /// after its handles.
    pub write_lock: Arc<dyn Send + Sync>,
    /// Its agents.
    pub agents: Agents,
    /// Creates the sandbox.
    pub provider: Arc<dyn SandboxProvider>,
    /// The sandbox to create.
    pub spec: SandboxSpec,
    /// Assesses the risk of actions. `None` leaves each the risk that the agent declares.
    pub analyzer: Option<Arc<dyn SecurityAnalyzer>>,
    /// The user's own knowledge, to which the workspace's is added. `None` disables both.
    pub memory: Option<Memory>,
    /// Whether it runs without a user. An agent that waits for one is requested to continue.
    pub is_unattended: bool,
    /// Sends the messages of a saved conversation. `None` if none is replayed.
    pub replayed_user: Option<ReplayedUser>,
}

impl EngineParts {
    /// Returns the schedule of a process that has started nothing.
    pub(super) fn new_schedule(&self) -> Schedule {
        Schedule {
            continue_requests: self.is_unattended.then_some(0),
            replayed_user: self.replayed_user.clone(),
            ..Schedule::default()
        }
    }

    /// Shuts down the tool servers of all agents, with their processes.
    pub async fn shut_down_tool_servers(&self) {
        let Agents { own, team } = &self.agents;
        let members = std::iter::once(own).chain(team.values());
        futures_util::future::join_all(members.map(|member| member.tool_servers.shut_down())).await;
    }
}
