//! Runs an agent's step: offers tools, recalls knowledge, condenses the history, calls the agent
//! and assesses the risk of its action. All results become events.

use std::sync::Arc;

use protocol::risk::ConfirmationPolicy;
use protocol::{Action, EventBody, EventSource, SecurityRisk};
use tokio::sync::{Mutex, broadcast};

use super::input::Notice;
use super::live::LiveUpdate;
use super::parts::EngineParts;
use super::setup::Repository;
use crate::agent::{AgentStep, Agents, TeamMember};
use crate::clock;
use crate::condenser::{self, CondenserOutput};
use crate::llm::{Llm, LlmError, LlmProgress, LlmRequest, Tool};
use crate::memory::{Memory, WorkspaceFacts};
use crate::sandbox::Sandbox;
use crate::security::{self, RiskAssessment};
use crate::tool_servers::{ToolOffer, ToolServers, announce};
use crate::view::View;

/// Maximum length of the reason for a risk in the log. It may come from a remote service.
const MAX_REASON_CHARS: usize = 1000;

/// Maximum number of problems with a workspace's knowledge that clients see.
const MAX_REPORTED_PROBLEMS: usize = 8;

/// Outcome of a step.
pub(super) enum StepOutcome {
    /// The log lacks these notices for the agent.
    Deferred(Vec<Notice>),
    /// The agent cannot work, for this reason.
    Refused(String),
    /// Decision of the agent or its condenser.
    Decided(Box<AgentStep>),
}

/// Runs the steps of one agent. All agents of a conversation share the knowledge of the workspace.
#[derive(Clone)]
pub(super) struct StepRunner {
    parts: EngineParts,
    member: TeamMember,
    knowledge: Arc<Mutex<WorkspaceKnowledge>>,
    live: broadcast::Sender<LiveUpdate>,
}

/// The sandbox and the repository in which an agent works.
pub(super) struct StepWorkspace {
    /// `None` if it is not connected.
    pub(super) sandbox: Option<Arc<dyn Sandbox>>,
    pub(super) repository: Repository,
}

/// Knowledge of a workspace, once it is read.
#[derive(Default)]
struct WorkspaceKnowledge {
    memory: Option<Memory>,
    /// Boot id of the sandbox that it was read from.
    boot_id: Option<protocol::BootId>,
}

impl StepRunner {
    pub(super) fn new(parts: EngineParts, live: broadcast::Sender<LiveUpdate>) -> Self {
        Self {
            member: parts.agents.own.clone(),
            parts,
            knowledge: Arc::default(),
            live,
        }
    }

    /// Returns the runner of another agent. `None` if the team has no agent of that name.
    pub(super) fn for_agent(&self, name: &str) -> Option<Self> {
        let member = self.parts.agents.team.get(name)?.clone();
        Some(Self {
            member,
            ..self.clone()
        })
    }

    /// Replaces the models of the conversation's agents. This is the runner of its own agent.
    pub(super) fn use_models_of(&mut self, agents: &Agents) {
        self.parts.agents.use_models_of(agents);
        self.member = self.parts.agents.own.clone();
    }

    /// Tool servers of the agent.
    pub(super) fn tool_servers(&self) -> Arc<dyn ToolServers> {
        Arc::clone(&self.member.tool_servers)
    }

    /// Model that writes out the agent's drafts of edits.
    pub(super) fn draft_editor(&self) -> Arc<dyn Llm> {
        Arc::clone(&self.member.draft_editor)
    }

    /// Maximum cost of the next step, in US dollars: one call of the agent or of its condenser.
    pub(super) fn max_cost(&self, view: &View) -> f64 {
        if view.pending_call().is_some() {
            return 0.0;
        }
        let TeamMember {
            agent,
            condenser,
            llm,
            ..
        } = &self.member;
        let own = agent.system();
        let tools = Tool::all_from_stored(&own)
            .chain(view.offered_tools().iter().cloned())
            .collect();
        let request = LlmRequest {
            messages: view.messages(),
            tools,
        };
        let tokens = request.token_upper_bound();
        llm.max_cost(tokens).max(condenser.max_cost(tokens))
    }

    /// Runs a step. Dropping the future abandons it.
    pub(super) async fn run(
        &self,
        view: View,
        workspace: &StepWorkspace,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<StepOutcome, LlmError> {
        // Nothing comes between the calls of one response.
        if view.pending_call().is_none() {
            let offer = self.offer(workspace).await;
            if let Some(obstacle) = offer.obstacle {
                return Ok(StepOutcome::Refused(obstacle));
            }
            let notices = self.notices(&view, workspace, &offer).await;
            if !notices.is_empty() {
                return Ok(StepOutcome::Deferred(notices));
            }
        }
        let TeamMember {
            agent,
            condenser,
            llm,
            ..
        } = &self.member;
        let condensed = match view.pending_call() {
            // No model is called.
            Some(_) => CondenserOutput::View(view),
            None => condenser::condense(condenser.as_ref(), view, on_progress).await?,
        };
        let (mut step, shown) = match condensed {
            CondenserOutput::View(view) => (
                Box::new(agent.step(&view, llm.as_ref(), on_progress).await?),
                Some(view),
            ),
            CondenserOutput::Condensation(step) => (step, None),
        };
        if let EventBody::Action(action) = &mut step.body {
            if let Action::Delegate(delegate) = action {
                let member = self.parts.agents.team.get(&delegate.agent);
                step.briefing = member.map(|member| member.agent.system());
            }
            if let Some(history) = &shown {
                step.risk_reason = self.assess_risk(action, history).await;
            }
        }
        Ok(StepOutcome::Decided(step))
    }

    async fn notices(
        &self,
        view: &View,
        workspace: &StepWorkspace,
        offer: &ToolOffer,
    ) -> Vec<Notice> {
        let to_notice = |body| Notice {
            source: EventSource::Environment,
            body,
            is_result: false,
        };
        let mut notices: Vec<Notice> = announce(view, offer).into_iter().map(to_notice).collect();
        notices.extend(self.recall(view, workspace).await.into_iter().flatten());
        notices
    }

    /// Offers the tools of servers, including the servers that the workspace's knowledge
    /// configures.
    pub(super) async fn offer(&self, workspace: &StepWorkspace) -> ToolOffer {
        self.read_knowledge(workspace).await;
        self.member
            .tool_servers
            .offer(workspace.sandbox.as_ref())
            .await
    }

    /// Reads the knowledge of the workspace once per boot of its sandbox.
    async fn read_knowledge(&self, workspace: &StepWorkspace) {
        let (Some(own), Some(sandbox)) = (&self.parts.memory, &workspace.sandbox) else {
            return;
        };
        let lease = sandbox.lease();
        let mut knowledge = self.knowledge.lock().await;
        if knowledge.boot_id.as_ref() != Some(&lease.boot_id) {
            let Repository {
                folder,
                knowledge_folder,
                ..
            } = &workspace.repository;
            let folder = if folder.is_empty() {
                &lease.working_dir
            } else {
                folder
            };
            let memory = own
                .clone()
                .load(sandbox.as_ref(), folder, knowledge_folder)
                .await;
            for problem in memory.problems() {
                tracing::warn!(%problem, "cannot use knowledge of the workspace");
            }
            for problem in memory.problems().iter().take(MAX_REPORTED_PROBLEMS) {
                // Fails if no client is subscribed.
                drop(self.live.send(LiveUpdate::Problem(problem.to_string())));
            }
            *knowledge = WorkspaceKnowledge {
                memory: Some(memory),
                boot_id: Some(lease.boot_id.clone()),
            };
        }
        let servers = knowledge
            .memory
            .as_ref()
            .map(Memory::servers)
            .unwrap_or_default();
        drop(knowledge);
        self.member.tool_servers.set_sandbox_servers(servers).await;
    }

    /// Recalls knowledge for the user's latest message.
    async fn recall(&self, view: &View, workspace: &StepWorkspace) -> Option<[Notice; 2]> {
        let own = self.parts.memory.as_ref()?;
        let query = view.unrecalled_message()?;
        let knowledge = self.knowledge.lock().await;
        let memory = knowledge.memory.as_ref().unwrap_or(own);
        let recall = memory.recall(query, &workspace_facts(workspace), view.recalled())?;
        let action = EventBody::Action(recall.action.into());
        let action = Notice {
            source: EventSource::User,
            body: action,
            is_result: false,
        };
        let observation = Notice {
            source: EventSource::Environment,
            body: recall.observation.into(),
            is_result: true,
        };
        Some([action, observation])
    }

    /// Assesses the action's risk if it can require confirmation. Returns the reason, which is
    /// empty if there is none. Without an analyzer the risk is unknown, whatever the model
    /// declares.
    async fn assess_risk(&self, action: &mut Action, history: &View) -> String {
        let Some(analyzer) = &self.parts.analyzer else {
            action.set_security_risk(SecurityRisk::Unknown);
            return String::new();
        };
        if !security::needs_confirmation(ConfirmationPolicy::Always, action) {
            return String::new();
        }
        let assessed = tokio::time::timeout(
            security::MAX_ASSESSMENT_TIME,
            analyzer.assess(action, history),
        )
        .await;
        let RiskAssessment { risk, reason } = match assessed {
            Ok(Ok(assessment)) => assessment,
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot assess an action's risk");
                RiskAssessment {
                    risk: SecurityRisk::Unknown,
                    reason: error.to_string(),
                }
            }
            Err(_) => RiskAssessment {
                risk: SecurityRisk::Unknown,
                reason: format!(
                    "the security analyzer did not respond within {:?}",
                    security::MAX_ASSESSMENT_TIME
                ),
            },
        };
        tracing::debug!(
            action = action.kind(),
            ?risk,
            reason,
            "assessed an action's risk"
        );
        action.set_security_risk(risk);
        reason.chars().take(MAX_REASON_CHARS).collect()
    }
}

fn workspace_facts(
    StepWorkspace {
        sandbox,
        repository,
    }: &StepWorkspace,
) -> WorkspaceFacts {
    let Repository {
        name,
        branch,
        folder,
        ..
    } = repository.clone();
    WorkspaceFacts {
        repo_name: name,
        repo_branch: branch,
        repo_directory: folder,
        date: clock::now()
            .as_str()
            .get(..10)
            .unwrap_or_default()
            .to_owned(),
        working_dir: sandbox
            .as_ref()
            .map(|sandbox| sandbox.lease().working_dir.clone())
            .unwrap_or_default(),
        ..WorkspaceFacts::default()
    }
}
