//! Work that calls models: steps, drafts and titles.

use protocol::EventId;
use protocol::action::EditAction;
use protocol::record::ModelRetried;
use protocol::sandbox_api::ActionRequest;
use tokio::sync::{broadcast, mpsc};
use tokio::task::AbortHandle;
use tracing::Instrument as _;

use super::{StepRetry, Task, WorkResult};
use crate::conversation::live::Live;
use crate::conversation::state::{AgentId, ModelCallId};
use crate::conversation::step::{Place, Steps};
use crate::conversation::terminal::STOPPED;
use crate::draft_editor::{self, DraftResult};
use crate::llm::{LlmErrorKind, LlmProgress};
use crate::title;
use crate::view::View;

/// An agent's view, and the step that it is taking.
pub(super) struct AgentWorker {
    view: View,
    steps: Steps,
    /// The step in flight, by the first event that it does not see.
    pub(super) running_step: Option<(EventId, AbortHandle)>,
}

impl Task {
    pub(super) fn is_step_running(&self, agent: AgentId, seen: EventId) -> bool {
        let step = self.workers.get(&agent).and_then(|worker| worker.running_step.as_ref());
        step.is_some_and(|(running, _)| *running == seen)
    }

    pub(super) fn start_step(&mut self, agent: AgentId, seen: EventId) {
        let place = self.current_place();
        let on_progress = report_progress(agent, seen, self.live.clone(), self.retries.0.clone());
        self.update_views();
        let Some(worker) = self.workers.get_mut(&agent) else { return };
        let (view, steps) = (worker.view.clone(), worker.steps.clone());
        let step = async move {
            WorkResult::Step { agent, seen, result: steps.run(view, &place, &on_progress).await }
        };
        let abort = self.work.spawn(step.instrument(tracing::info_span!("step", from = %seen)));
        worker.running_step = Some((seen, abort));
    }

    pub(super) fn abandon_step(&mut self, agent: AgentId) {
        let step = self.workers.get_mut(&agent).and_then(|worker| worker.running_step.take());
        if let Some((_, step)) = step {
            step.abort();
        }
    }

    /// Has a model write out the draft of an edit. The edit is performed when it is in the log.
    pub(super) fn write_draft(&mut self, action: EventId, draft: EditAction, request: ActionRequest) {
        let Some(sandbox) = self.sandbox.clone() else {
            return tracing::error!(%action, "a draft was started without a sandbox");
        };
        let llm = self.steps_of(action).draft_editor();
        self.start_action(action, true, |cancel| async move {
            let result = tokio::select! {
                biased;
                () = cancel.cancelled() => Ok(DraftResult::failed(STOPPED)),
                result = draft_editor::resolve(&draft, &request, sandbox.as_ref(), llm.as_ref()) => result,
            };
            WorkResult::Draft { action, result }
        });
    }

    pub(super) fn find_title(&mut self, message: String) {
        let Some(llm) = self.title_model.clone() else { return };
        self.title_search = Some(self.work.spawn(async move {
            let (title, call) = title::generate_title(llm.as_ref(), &message).await;
            WorkResult::Title { title, call }
        }));
    }

    /// Maximum cost of a call to a model, in US dollars.
    pub(super) fn max_cost(&mut self, call: ModelCallId) -> f64 {
        match call {
            ModelCallId::Step(agent) => {
                self.update_views();
                let worker = self.workers.get(&agent);
                worker.map_or(f64::INFINITY, |worker| worker.steps.max_cost(&worker.view))
            }
            ModelCallId::Draft(action) => {
                draft_editor::max_cost(self.steps_of(action).draft_editor().as_ref())
            }
            // Known since the title was requested.
            ModelCallId::Title => f64::INFINITY,
        }
    }

    /// Brings the views of all agents up to the end of the log.
    fn update_views(&mut self) {
        for (agent, _) in self.state.agents() {
            let worker = self.workers.entry(agent).or_insert_with(|| {
                let child = agent.and_then(|id| self.state.children.get(&id));
                let steps = child.and_then(|child| self.steps.of(&child.agent));
                let steps = steps.unwrap_or_else(|| self.steps.clone());
                AgentWorker { view: View::for_agent(agent), steps, running_step: None }
            });
            worker.view.update(&self.events);
        }
        self.events.clear();
    }

    pub(super) fn current_place(&self) -> Place {
        let repository = self.state.repository().unwrap_or_default();
        Place { sandbox: self.sandbox.clone(), repository }
    }

    /// The steps of the agent that takes an action.
    pub(super) fn steps_of(&self, action: EventId) -> Steps {
        let pending = self.state.pending().find(|(_, pending)| pending.action == action);
        let child = pending.and_then(|(agent, _)| self.state.children.get(&agent?));
        child.and_then(|child| self.steps.of(&child.agent)).unwrap_or_else(|| self.steps.clone())
    }
}

/// Reports the progress of an agent's call to its model to clients, and retries to the task, which records them.
fn report_progress(
    agent: AgentId,
    seen: EventId,
    live: broadcast::Sender<Live>,
    retries: mpsc::Sender<StepRetry>,
) -> impl Fn(LlmProgress) {
    move |progress| {
        if let LlmProgress::Retrying { attempt, attempts, after, error } = &progress {
            let retry = ModelRetried {
                attempt: *attempt,
                attempts: *attempts,
                after: after.as_secs_f64(),
                reason: error.to_string(),
            };
            let is_rate_limited = *error == LlmErrorKind::RateLimited;
            // A full queue is no failure: see `MAX_QUEUED_RETRIES`.
            drop(retries.try_send(StepRetry { agent, seen, retry, is_rate_limited }));
        }
        // Fails if no client listens.
        drop(live.send(Live::Model { agent, progress }));
    }
}
