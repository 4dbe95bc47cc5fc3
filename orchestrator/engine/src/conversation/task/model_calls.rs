//! Work that calls models: steps, drafts and titles.

use protocol::EventId;
use protocol::action::EditAction;
use protocol::record::ModelRetried;
use protocol::sandbox_api::ActionRequest;
use tokio::sync::{broadcast, mpsc};
use tokio::task::AbortHandle;
use tracing::Instrument as _;

use super::sandbox::Performer;
use super::{StepRetry, Task, WorkResult};
use crate::agent::Agents;
use crate::conversation::live::LiveUpdate;
use crate::conversation::state::{AgentId, ModelCallId, State};
use crate::conversation::step::{StepRunner, StepWorkspace};
use crate::conversation::terminal::STOPPED;
use crate::draft_editor::{self, DraftResult};
use crate::llm::LlmProgress;
use crate::title;
use crate::view::View;

/// An agent's view, and the step that it is taking.
pub(super) struct AgentWorker {
    view: View,
    step_runner: StepRunner,
    /// The step in flight, by the first event that it does not see.
    pub(super) running_step: Option<(EventId, AbortHandle)>,
}

impl Task {
    pub(super) fn is_step_running(&self, agent: AgentId, seen: EventId) -> bool {
        let step = self
            .workers
            .get(&agent)
            .and_then(|worker| worker.running_step.as_ref());
        step.is_some_and(|(running, _)| *running == seen)
    }

    pub(super) fn start_step(&mut self, agent: AgentId, seen: EventId) {
        let workspace = self.current_workspace();
        let on_progress = report_progress(agent, seen, self.live.clone(), self.retries.0.clone());
        self.update_views();
        let Some(worker) = self.workers.get_mut(&agent) else {
            return;
        };
        let (view, runner) = (worker.view.clone(), worker.step_runner.clone());
        let step = async move {
            WorkResult::Step {
                agent,
                seen,
                result: runner.run(view, &workspace, &on_progress).await,
            }
        };
        let abort = self
            .work
            .spawn(step.instrument(tracing::info_span!("step", from = %seen)));
        worker.running_step = Some((seen, abort));
    }

    pub(super) fn abandon_step(&mut self, agent: AgentId) {
        let step = self
            .workers
            .get_mut(&agent)
            .and_then(|worker| worker.running_step.take());
        if let Some((_, step)) = step {
            step.abort();
        }
    }

    /// Has a model write out the draft of an edit. The edit is performed when it is in the log.
    pub(super) fn write_draft(
        &mut self,
        action: EventId,
        draft: EditAction,
        request: ActionRequest,
    ) {
        let Some(sandbox) = self.connected_sandbox() else {
            return tracing::error!(%action, "a draft was started without a sandbox");
        };
        let llm = self.step_runner_for(action).draft_editor();
        self.start_action(action, Performer::DraftEditor, |cancel| async move {
            let result = tokio::select! {
                biased;
                () = cancel.cancelled() => Ok(DraftResult::failed(STOPPED)),
                result = draft_editor::resolve(&draft, &request, sandbox.as_ref(), llm.as_ref()) => result,
            };
            WorkResult::Draft { action, result }
        });
    }

    pub(super) fn find_title(&mut self, message: String) {
        let Some(llm) = self.title_model.clone() else {
            return;
        };
        let search = async move {
            let (title, call) = title::generate_title(llm.as_ref(), &message).await;
            WorkResult::Title { title, call }
        };
        self.title_search = Some(
            self.work
                .spawn(search.instrument(tracing::info_span!("title"))),
        );
    }

    /// Maximum cost of a call to a model, in US dollars.
    pub(super) fn max_cost(&mut self, call: ModelCallId) -> f64 {
        match call {
            ModelCallId::Step(agent) => {
                self.update_views();
                let worker = self.workers.get(&agent);
                worker.map_or(f64::INFINITY, |worker| {
                    worker.step_runner.max_cost(&worker.view)
                })
            }
            ModelCallId::Draft(action) => {
                draft_editor::max_cost(self.step_runner_for(action).draft_editor().as_ref())
            }
            // Known since the title was requested.
            ModelCallId::Title => f64::INFINITY,
        }
    }

    pub(super) fn replace_models(&mut self, agents: &Agents) {
        self.step_runner.use_models_of(agents);
        for (agent, worker) in &mut self.workers {
            worker.step_runner = step_runner(&self.state, &self.step_runner, *agent);
        }
    }

    /// Brings the views of all agents up to the end of the log.
    fn update_views(&mut self) {
        for (agent, _) in self.state.agents() {
            let worker = self.workers.entry(agent).or_insert_with(|| AgentWorker {
                view: View::for_agent(agent),
                step_runner: step_runner(&self.state, &self.step_runner, agent),
                running_step: None,
            });
            worker.view.update(&self.events);
        }
        self.events.clear();
    }

    pub(super) fn current_workspace(&self) -> StepWorkspace {
        let repository = self.state.repository().unwrap_or_default();
        StepWorkspace {
            sandbox: self.connected_sandbox(),
            repository,
        }
    }

    /// Returns the step runner of the agent that takes an action.
    pub(super) fn step_runner_for(&self, action: EventId) -> StepRunner {
        let pending = self.state.find_pending(action);
        step_runner(
            &self.state,
            &self.step_runner,
            pending.and_then(|(agent, _)| agent),
        )
    }
}

fn step_runner(state: &State, own: &StepRunner, agent: AgentId) -> StepRunner {
    let child = agent.and_then(|id| state.children.get(&id));
    child
        .and_then(|child| own.for_agent(&child.agent))
        .unwrap_or_else(|| own.clone())
}

/// Reports the progress of an agent's call to its model to clients, and retries to the task, which
/// records them.
fn report_progress(
    agent: AgentId,
    seen: EventId,
    live: broadcast::Sender<LiveUpdate>,
    retries: mpsc::Sender<StepRetry>,
) -> impl Fn(LlmProgress) {
    move |progress| {
        if let LlmProgress::Retrying {
            attempt,
            attempts,
            after,
            error,
        } = &progress
        {
            let retry = ModelRetried {
                attempt: *attempt,
                attempts: *attempts,
                after: after.as_secs_f64(),
                reason: error.to_string(),
            };
            // A full queue is no failure: see `MAX_QUEUED_RETRIES`.
            drop(retries.try_send(StepRetry { agent, seen, retry }));
        }
        // Fails if no client is subscribed.
        drop(live.send(LiveUpdate::Model { agent, progress }));
    }
}
