//! A step in the making: what the agent is told before it, what of the history it sees, what it decides, and how dangerous
//! that is judged to be. Asks the world; decides nothing that the log does not get to hear.

use std::sync::Arc;

use protocol::risk::ConfirmationPolicy;
use protocol::{Action, EventBody, EventSource, SecurityRisk};
use tokio::sync::Mutex;

use super::input::Notice;
use super::parts::Parts;
use super::setup::Repository;
use crate::agent::{AgentStep, TeamMember};
use crate::clock;
use crate::condenser::CondenserOutput;
use crate::llm::{Llm, LlmError, LlmProgress, LlmRequest, Tool};
use crate::memory::{Memory, WorkspaceFacts};
use crate::sandbox::Sandbox;
use crate::security::{self, RiskAssessment};
use crate::tool_servers::{ToolOffer, ToolServers, announce};
use crate::view::View;

/// Maximum length of the reason for a risk: it is kept in the log, and may come from a service.
const MAX_REASON_CHARS: usize = 1000;

/// What a step comes to.
pub(super) enum StepOutcome {
    /// The agent is to be told this first.
    Deferred(Vec<Notice>),
    /// The agent cannot work, and why.
    Refused(String),
    /// The agent decided, or a condenser did.
    Decided(Box<AgentStep>),
}

/// What the steps of one agent share, and of the knowledge of the workspace all of a conversation.
#[derive(Clone)]
pub(super) struct Steps {
    parts: Parts,
    member: TeamMember,
    known: Arc<Mutex<WorkspaceKnowledge>>,
}

/// Where the agent works.
pub(super) struct Place {
    /// Nothing: it cannot be reached now, or is not there yet.
    pub(super) sandbox: Option<Arc<dyn Sandbox>>,
    pub(super) repository: Repository,
}

/// What is known of a workspace, once it was looked at.
#[derive(Default)]
struct WorkspaceKnowledge {
    memory: Option<Memory>,
    /// Of which sandbox's life.
    boot_id: Option<protocol::BootId>,
}

impl Steps {
    pub(super) fn new(parts: Parts) -> Self {
        Self { member: parts.own.clone(), parts, known: Arc::default() }
    }

    /// The same for an agent that a task was handed on to. Nothing when there is none of that name.
    pub(super) fn of(&self, name: &str) -> Option<Self> {
        let member = self.parts.team.get(name)?.clone();
        Some(Self { member, ..self.clone() })
    }

    /// Whose tools the agent may call.
    pub(super) fn tool_servers(&self) -> Arc<dyn ToolServers> {
        Arc::clone(&self.member.tool_servers)
    }

    /// What writes out the edits that the agent drafts.
    pub(super) fn draft_editor(&self) -> Arc<dyn Llm> {
        Arc::clone(&self.member.draft_editor)
    }

    /// What the next step can cost at most, in US dollars: one call of the agent's or of its condenser's.
    pub(super) fn max_cost(&self, view: &View) -> f64 {
        if view.pending_call().is_some() {
            return 0.0;
        }
        let TeamMember { agent, condenser, llm, .. } = &self.member;
        let own = agent.system().tools.unwrap_or_default();
        let tools = own.iter().filter_map(Tool::from_openai).chain(view.offered_tools().iter().cloned());
        let request = LlmRequest { messages: view.messages(), tools: tools.collect() };
        let tokens = request.token_upper_bound();
        llm.max_cost(tokens).max(condenser.max_cost(tokens))
    }

    /// Takes one. Dropping the future abandons it.
    pub(super) async fn run(
        &self,
        view: View,
        place: &Place,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<StepOutcome, LlmError> {
        // The calls of one response follow each other.
        if view.pending_call().is_none() {
            let offer = self.offer(place).await;
            if let Some(obstacle) = offer.obstacle {
                return Ok(StepOutcome::Refused(obstacle));
            }
            let notices = self.notices(&view, place, &offer).await;
            if !notices.is_empty() {
                return Ok(StepOutcome::Deferred(notices));
            }
        }
        let TeamMember { agent, condenser, llm, .. } = &self.member;
        let condensed = match view.pending_call() {
            // No model is asked.
            Some(_) => CondenserOutput::View(view),
            None => condenser.condense(view, on_progress).await?,
        };
        let (mut step, shown) = match condensed {
            CondenserOutput::View(view) => {
                (Box::new(agent.step(&view, llm.as_ref(), on_progress).await?), Some(view))
            }
            CondenserOutput::Condensation(step) => (step, None),
        };
        if let EventBody::Action(action) = &mut step.body {
            if let Action::Delegate(delegate) = action {
                let member = self.parts.team.get(&delegate.agent);
                step.briefing = member.map(|member| member.agent.system());
            }
            if let Some(history) = &shown {
                step.risk_reason = self.judge(action, history).await;
            }
        }
        Ok(StepOutcome::Decided(step))
    }

    async fn notices(&self, view: &View, place: &Place, offer: &ToolOffer) -> Vec<Notice> {
        let told = |body| Notice { source: EventSource::Environment, body, is_result: false };
        let mut notices: Vec<Notice> = announce(view, offer).into_iter().map(told).collect();
        notices.extend(self.recall(view, place).await.into_iter().flatten());
        notices
    }

    /// The tools of servers, also of those that the knowledge of the workspace asks for.
    pub(super) async fn offer(&self, place: &Place) -> ToolOffer {
        self.read_knowledge(place).await;
        self.member.tool_servers.offer(place.sandbox.as_ref()).await
    }

    /// Reads the knowledge of the workspace, once in each life of its sandbox.
    async fn read_knowledge(&self, place: &Place) {
        let (Some(own), Some(sandbox)) = (&self.parts.memory, &place.sandbox) else { return };
        let lease = sandbox.lease();
        let mut known = self.known.lock().await;
        if known.boot_id.as_ref() != Some(&lease.boot_id) {
            let Repository { folder, knowledge, .. } = &place.repository;
            let folder = if folder.is_empty() { &lease.working_dir } else { folder };
            let memory = own.clone().load(sandbox.as_ref(), folder, knowledge).await;
            for problem in memory.problems() {
                tracing::warn!(%problem, "knowledge of the workspace");
            }
            *known = WorkspaceKnowledge { memory: Some(memory), boot_id: Some(lease.boot_id.clone()) };
        }
        let servers = known.memory.as_ref().map(Memory::servers).unwrap_or_default();
        drop(known);
        self.member.tool_servers.set_sandbox_servers(servers).await;
    }

    /// What the user's latest message brings to mind.
    async fn recall(&self, view: &View, place: &Place) -> Option<[Notice; 2]> {
        let own = self.parts.memory.as_ref()?;
        let query = view.unrecalled_message()?;
        let known = self.known.lock().await;
        let memory = known.memory.as_ref().unwrap_or(own);
        let recall = memory.recall(query, &facts(place), view.recalled())?;
        let action = EventBody::Action(Action::from(recall.action));
        let asked = Notice { source: EventSource::User, body: action, is_result: false };
        let found =
            Notice { source: EventSource::Environment, body: recall.observation.into(), is_result: true };
        Some([asked, found])
    }

    /// Has the action's risk assessed, if the user can be asked about it. Returns the reason; empty if there is none.
    async fn judge(&self, action: &mut Action, history: &View) -> String {
        let Some(analyzer) = &self.parts.analyzer else { return String::new() };
        if !security::needs_confirmation(ConfirmationPolicy::Always, action) {
            return String::new();
        }
        let assessed =
            tokio::time::timeout(security::MAX_ASSESSMENT_TIME, analyzer.assess(action, history)).await;
        let RiskAssessment { risk, reason } = match assessed {
            Ok(Ok(judgement)) => judgement,
            Ok(Err(error)) => {
                tracing::warn!(%error, "an action's risk stays unknown");
                RiskAssessment { risk: SecurityRisk::Unknown, reason: error.to_string() }
            }
            Err(_) => RiskAssessment {
                risk: SecurityRisk::Unknown,
                reason: format!(
                    "the security analyzer did not answer within {:?}",
                    security::MAX_ASSESSMENT_TIME
                ),
            },
        };
        tracing::debug!(action = action.kind(), ?risk, reason, "assessed an action's risk");
        action.set_security_risk(risk);
        reason.chars().take(MAX_REASON_CHARS).collect()
    }
}

fn facts(Place { sandbox, repository }: &Place) -> WorkspaceFacts {
    let Repository { name, branch, folder, .. } = repository.clone();
    WorkspaceFacts {
        repo_name: name,
        repo_branch: branch,
        repo_directory: folder,
        date: clock::now().as_str().get(..10).unwrap_or_default().to_owned(),
        working_dir: sandbox.as_ref().map(|sandbox| sandbox.lease().working_dir.clone()).unwrap_or_default(),
        ..WorkspaceFacts::default()
    }
}
