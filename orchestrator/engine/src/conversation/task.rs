//! Task that owns a conversation: it feeds inputs to [`transition`] and performs the effects.
//!
//! One task per conversation, and the only writer of its log. It decides nothing: what may start,
//! and when, is in [`State::schedule`]. All work runs in a set of tasks that ends with it. It ends
//! when the conversation is closed, when the handle is dropped, or when the log cannot be appended
//! to: what is not in the log has not happened.

mod model_calls;
mod sandbox;
#[cfg(test)]
mod tests;
mod trace;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use protocol::record::ModelRetried;
use protocol::{
    ConversationId, Event, EventBody, EventId, Observation, Record, SandboxId, UserCommand,
};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::error::ConversationError;
use super::input::{Effect, Input, InputKind};
use super::live::LiveUpdate;
use super::mailbox::{SandboxDisposition, TaskRequest};
use super::parts::EngineParts;
use super::state::{AgentId, State};
use super::step::{StepOutcome, StepRunner};
use super::terminal::interrupted;
use super::transition::transition;
use crate::agent::{Agents, ModelCall};
use crate::clock;
use crate::draft_editor::DraftResult;
use crate::events::EventLog;
use crate::llm::{Llm, LlmError};
use crate::sandbox::{Sandbox, SandboxError};
use crate::title;
use model_calls::AgentWorker;
use sandbox::{Performer, RunningAction};
use trace::InputTrace;

/// Retries of calls that wait to be recorded. More are not recorded, so that a call never waits for
/// the log.
const MAX_QUEUED_RETRIES: usize = 32;

/// Timeout of the check whether a sandbox is lost, which delays a message of the user.
const SANDBOX_CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// A retry of a model call, with the step that makes it.
struct StepRetry {
    agent: AgentId,
    seen: EventId,
    retry: ModelRetried,
}

/// Result of work that the task started.
enum WorkResult {
    Step {
        agent: AgentId,
        seen: EventId,
        result: Result<StepOutcome, LlmError>,
    },
    Sandbox(Result<Arc<dyn Sandbox>, SandboxError>),
    Action {
        action: EventId,
        result: Result<Observation, SandboxError>,
    },
    Draft {
        action: EventId,
        result: Result<DraftResult, SandboxError>,
    },
    Title {
        title: String,
        call: Option<ModelCall>,
    },
}

/// Owner of a conversation.
pub(super) struct Task {
    parts: EngineParts,
    id: ConversationId,
    log: Arc<EventLog>,
    live: broadcast::Sender<LiveUpdate>,
    published_state: watch::Sender<Arc<State>>,
    state: State,
    /// Events that are not in the views yet. The others are not kept, so that memory does not grow
    /// with the log.
    events: Vec<Arc<Event>>,
    /// The latest sandbox, also when it was lost: its container may still exist.
    latest_sandbox: Option<SandboxId>,
    work: JoinSet<WorkResult>,
    /// Agents that have not ended.
    workers: BTreeMap<AgentId, AgentWorker>,
    /// Runs the steps of the conversation's own agent.
    step_runner: StepRunner,
    retries: (mpsc::Sender<StepRetry>, mpsc::Receiver<StepRetry>),
    /// The sandbox while it is connected. Also read by the conversation's handle.
    sandbox: watch::Sender<Option<Arc<dyn Sandbox>>>,
    /// Actions in flight. The result of any other action is dropped.
    actions: BTreeMap<EventId, RunningAction>,
    /// Model that finds titles. `None` if no title was requested.
    title_model: Option<Arc<dyn Llm>>,
    title_search: Option<AbortHandle>,
    /// Where the end of the command that is being applied is reported.
    applied: Option<oneshot::Sender<Option<EventId>>>,
    /// Agents that came with that command.
    sent_agents: Option<Box<Agents>>,
    /// Whether nothing is started any more.
    is_draining: bool,
    /// Where the end of the calls in flight is reported.
    drained: Vec<oneshot::Sender<()>>,
}

impl Task {
    /// Creates the owner of a log, in the state that the log folds to.
    pub(super) fn new(
        parts: EngineParts,
        id: ConversationId,
        log: Arc<EventLog>,
        live: broadcast::Sender<LiveUpdate>,
        published_state: watch::Sender<Arc<State>>,
        state: State,
        events: Vec<Arc<Event>>,
    ) -> Self {
        Self {
            step_runner: StepRunner::new(parts.clone(), live.clone()),
            parts,
            id,
            log,
            live,
            published_state,
            state,
            latest_sandbox: latest_sandbox(events.iter().map(Arc::as_ref)),
            events,
            work: JoinSet::new(),
            workers: BTreeMap::new(),
            retries: mpsc::channel(MAX_QUEUED_RETRIES),
            sandbox: watch::Sender::default(),
            actions: BTreeMap::new(),
            title_model: None,
            title_search: None,
            applied: None,
            sent_agents: None,
            is_draining: false,
            drained: Vec::new(),
        }
    }

    /// Returns a receiver of the connected sandbox.
    pub(super) fn watch_sandbox(&self) -> watch::Receiver<Option<Arc<dyn Sandbox>>> {
        self.sandbox.subscribe()
    }

    /// Returns the sandbox while it is connected.
    fn connected_sandbox(&self) -> Option<Arc<dyn Sandbox>> {
        self.sandbox.borrow().clone()
    }

    /// Handles the first input and all that follow, until the conversation ends.
    pub(super) async fn run(
        mut self,
        mut mailbox: mpsc::Receiver<TaskRequest>,
        first: InputKind,
    ) -> Result<(), ConversationError> {
        self.handle(first).await?;
        loop {
            self.report_drained();
            tokio::select! {
                biased;
                request = mailbox.recv() => match request {
                    Some(TaskRequest::Apply { request, agents, applied }) => {
                        if matches!(request.command, UserCommand::SendMessage(_)) {
                            self.check_sandbox().await?;
                        }
                        (self.applied, self.sent_agents) = (Some(applied), agents);
                        self.handle(InputKind::User(request)).await?;
                        (self.applied, self.sent_agents) = (None, None);
                    }
                    Some(TaskRequest::FindTitle { llm, message }) => {
                        let max_cost = title::max_cost(llm.as_ref(), &message);
                        self.title_model = Some(llm);
                        self.handle(InputKind::TitleRequested { message, max_cost }).await?;
                    }
                    Some(TaskRequest::Drain { drained }) => {
                        self.is_draining = true;
                        self.drained.push(drained);
                    }
                    Some(TaskRequest::Close { sandbox }) => return self.close(sandbox).await,
                    None => return Ok(()),
                },
                Some(StepRetry { agent, seen, retry }) = self.retries.1.recv() => {
                    if self.is_step_running(agent, seen) {
                        self.handle(InputKind::CallRetried { agent, retry }).await?;
                    }
                }
                Some(result) = self.work.join_next() => match result {
                    Ok(result) => {
                        if let Some(input) = self.on_work_result(result) {
                            self.handle(input).await?;
                        }
                    }
                    Err(error) if error.is_cancelled() => {}
                    Err(_) => return Err(ConversationError::Panicked(self.id)),
                },
            }
        }
    }

    /// Reports that the conversation is drained once no model and no tool server is being called.
    /// What runs in the sandbox continues there, and is attached to when the log is recovered.
    fn report_drained(&mut self) {
        let steps = self
            .workers
            .values()
            .any(|worker| worker.running_step.is_some());
        let calls = self
            .actions
            .values()
            .any(|running| running.performer != Performer::Sandbox);
        if self.is_draining && !steps && !calls {
            // Sending fails if no caller waits any more.
            for drained in self.drained.drain(..) {
                let _ = drained.send(());
            }
        }
    }

    async fn close(mut self, disposition: SandboxDisposition) -> Result<(), ConversationError> {
        // First, so that nothing runs in the sandbox while it is removed.
        self.work.abort_all();
        while let Some(ended) = self.work.join_next().await {
            // No event has a sandbox whose start has completed just now.
            if let Ok(WorkResult::Sandbox(Ok(sandbox))) = ended {
                self.latest_sandbox = Some(sandbox.lease().sandbox_id.clone());
            }
        }
        self.parts.provider.wait_for_cleanup().await;
        if disposition == SandboxDisposition::Keep {
            return Ok(());
        }
        let Some(sandbox) = self.latest_sandbox.take() else {
            return Ok(());
        };
        if disposition == SandboxDisposition::Pause {
            // Where the runtime cannot pause a sandbox, it keeps running.
            if let Ok(pausing) = self.parts.provider.pausing()
                && let Err(error) = pausing.pause(&sandbox).await
            {
                tracing::debug!(%sandbox, %error, "cannot pause the sandbox");
            }
            return Ok(());
        }
        if let Err(error) = self.parts.provider.destroy(&sandbox).await {
            tracing::warn!(%sandbox, %error, "cannot remove the sandbox");
        } else if self.state.lease.is_some() {
            // Only its events matter: the conversation is being closed.
            self.decide(InputKind::SandboxRemoved).await?;
        }
        Ok(())
    }

    /// Reports a sandbox that was lost while nothing ran in it, so that its replacement precedes
    /// the user's message, and no action of the agent fails. Actions in flight report it
    /// themselves.
    async fn check_sandbox(&mut self) -> Result<(), ConversationError> {
        let is_used = self
            .actions
            .values()
            .any(|running| running.performer != Performer::ToolServer);
        let Some(sandbox) = self.connected_sandbox().filter(|_| !is_used) else {
            return Ok(());
        };
        match timeout(SANDBOX_CHECK_TIMEOUT, sandbox.check_connection()).await {
            Ok(Err(error)) if error.ends_connection() => {
                let lost = self.lose_sandbox(&error);
                self.handle(lost).await
            }
            _ => Ok(()),
        }
    }

    /// Converts a result to an input. `None` if the work was abandoned, which can happen after its
    /// result was queued.
    fn on_work_result(&mut self, result: WorkResult) -> Option<InputKind> {
        match result {
            WorkResult::Step {
                agent,
                seen,
                result,
            } => {
                if !self.is_step_running(agent, seen) {
                    return None;
                }
                self.workers.get_mut(&agent)?.running_step = None;
                Some(match result {
                    Ok(StepOutcome::Deferred(notices)) => {
                        InputKind::StepDeferred { agent, notices }
                    }
                    Ok(StepOutcome::Refused(reason)) => InputKind::StepRefused { agent, reason },
                    Ok(StepOutcome::Decided(step)) => InputKind::StepDone {
                        agent,
                        seen,
                        result: Ok(step),
                    },
                    Err(error) => InputKind::StepDone {
                        agent,
                        seen,
                        result: Err(error),
                    },
                })
            }
            WorkResult::Sandbox(Ok(sandbox)) => {
                let lease = sandbox.lease().clone();
                self.sandbox.send_replace(Some(sandbox));
                Some(InputKind::SandboxReady(lease))
            }
            WorkResult::Sandbox(Err(error)) => Some(self.lose_sandbox(&error)),
            WorkResult::Action { action, result } => {
                self.actions.remove(&action)?;
                let observation = match result {
                    Ok(observation) => observation,
                    Err(error) if error.ends_connection() => {
                        return Some(self.lose_sandbox(&error));
                    }
                    // It was cancelled, but its result is unknown.
                    Err(error) => interrupted(&error.to_string()),
                };
                Some(InputKind::ActionDone {
                    action,
                    observation: Box::new(observation),
                })
            }
            WorkResult::Draft { action, result } => {
                self.actions.remove(&action)?;
                let result = match result {
                    Ok(result) => result,
                    Err(error) if error.ends_connection() => {
                        return Some(self.lose_sandbox(&error));
                    }
                    Err(error) => DraftResult::failed(error.to_string()),
                };
                Some(InputKind::DraftDone { action, result })
            }
            WorkResult::Title { title, call } => {
                self.title_search.take()?;
                Some(InputKind::TitleFound { title, call })
            }
        }
    }

    /// Decides on an input and performs the effects.
    async fn handle(&mut self, input: InputKind) -> Result<(), ConversationError> {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for effect in self.decide(input).await? {
                inputs.extend(self.perform(effect));
            }
            self.workers
                .retain(|agent, _| self.state.run(*agent).is_some());
        }
        Ok(())
    }

    /// Decides on an input, appends its events and publishes the state. Returns the other effects.
    async fn decide(&mut self, input: InputKind) -> Result<Vec<Effect>, ConversationError> {
        let trace = InputTrace::new(&self.state, &input);
        let state = std::mem::take(&mut self.state);
        let (state, mut effects) = transition(
            state,
            Input {
                at: clock::now(),
                kind: input,
            },
        );
        self.state = state;
        if let Some(Effect::Append(_)) = effects.first() {
            let Effect::Append(events) = effects.remove(0) else {
                return Ok(effects);
            };
            let appended = self.log.append(events).await;
            let events =
                appended.map_err(|error| ConversationError::Log(self.id.clone(), error))?;
            self.latest_sandbox =
                latest_sandbox(events.iter().map(Arc::as_ref)).or(self.latest_sandbox.take());
            trace.log(&events, &self.state);
            self.events.extend(events.iter().cloned());
        }
        self.published_state
            .send_replace(Arc::new(self.state.clone()));
        Ok(effects)
    }

    /// Performs an effect. Returns the input that it results in immediately, if any.
    fn perform(&mut self, effect: Effect) -> Option<InputKind> {
        if self.is_draining && effect.starts_work() {
            return None;
        }
        match effect {
            // Already done by `decide`: events are durable before any work on them starts.
            Effect::Append(_) => {}
            Effect::ReportApplied { event } => {
                if let Some(applied) = self.applied.take() {
                    // Sending fails if the caller does not wait.
                    let _ = applied.send(event);
                }
            }
            Effect::ReplaceModels => {
                if let Some(agents) = self.sent_agents.take() {
                    self.replace_models(&agents);
                }
            }
            Effect::Step { agent, seen } => self.start_step(agent, seen),
            Effect::AbandonStep { agent } => self.abandon_step(agent),
            Effect::Create => self.create_sandbox(),
            Effect::Attach(lease) => self.attach_sandbox(*lease),
            Effect::Execute {
                action,
                request,
                time_left,
            } => self.execute(action, *request, time_left),
            Effect::WriteDraft {
                action,
                draft,
                request,
            } => self.write_draft(action, *draft, *request),
            Effect::CallTool { action, call } => self.call_tool(action, *call),
            Effect::Cancel { action } => {
                if let Some(running) = self.actions.get(&action) {
                    running.cancel.cancel();
                }
            }
            Effect::EstimateCost(call) => {
                let max_cost = self.max_cost(call);
                return Some(InputKind::CostEstimated { call, max_cost });
            }
            Effect::FindTitle { message } => self.find_title(message),
            Effect::AbandonTitle => {
                if let Some(search) = self.title_search.take() {
                    search.abort();
                }
            }
        }
        None
    }
}

fn latest_sandbox<'a>(events: impl IntoIterator<Item = &'a Event>) -> Option<SandboxId> {
    let leased = |event: &'a Event| match &event.body {
        EventBody::Record(Record::SandboxLeased(lease)) => Some(&lease.sandbox_id),
        _ => None,
    };
    events.into_iter().filter_map(leased).last().cloned()
}
