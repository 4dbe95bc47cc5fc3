//! The calls to models that the task makes, and which of them wait: for the sandbox, and for each other where the budget is
//! near.

use std::sync::Arc;

use protocol::EventId;
use protocol::record::ModelRetried;
use tokio::sync::{broadcast, mpsc};
use tokio::task::AbortHandle;
use tracing::Instrument as _;

use super::{Done, Draft, Performance, Retry, Task, Worker};
use crate::conversation::budget;
use crate::conversation::handle::{ConversationError, Live};
use crate::conversation::input::InputKind;
use crate::conversation::state::AgentId;
use crate::conversation::transition::UNPAID;
use crate::draft_editor::{self, DraftResult};
use crate::llm::{Llm, LlmErrorKind, LlmProgress};
use crate::title;

/// A title that a model is asked for.
pub(super) struct TitleSearch {
    pub(super) llm: Arc<dyn Llm>,
    /// What the user said first.
    pub(super) message: String,
    pub(super) begun: Option<AbortHandle>,
}

impl TitleSearch {
    fn max_cost(&self) -> f64 {
        title::max_cost(self.llm.as_ref(), &self.message)
    }
}

impl Task {
    /// Begins the steps that waited, as far as they have a sandbox and the budget lets them, then drafts and the search for a
    /// title.
    pub(super) fn begin_waiting(&mut self) {
        let waiting = self.workers.iter().filter(|(_, worker)| matches!(worker.step, Some((_, None))));
        let waiting: Vec<AgentId> = waiting.map(|(agent, _)| *agent).collect();
        if !waiting.is_empty() {
            self.take_in();
            waiting.into_iter().for_each(|agent| self.begin_step(agent));
        }
        for draft in std::mem::take(&mut self.drafts) {
            self.write_out(draft);
        }
        self.begin_title();
    }

    fn begin_step(&mut self, agent: AgentId) {
        let Some(worker) = self.workers.get(&agent) else { return };
        if !self.admits(|| worker.steps.max_cost(&worker.view)) {
            return;
        }
        let place = self.current_place();
        let seen = self.state.next_id;
        let Some(worker) = self.workers.get_mut(&agent) else { return };
        let (view, steps) = (worker.view.clone(), worker.steps.clone());
        let on_progress = tell_progress(agent, seen, self.live.clone(), self.retries.0.clone());
        let step =
            async move { Done::Step { agent, seen, result: steps.take(view, &place, &on_progress).await } };
        let begun = self.work.spawn(step.instrument(tracing::info_span!("step", from = %seen)));
        worker.step = Some((seen, Some(begun)));
    }

    /// Whether a call to a model may begin beside those that are underway, by what it can cost at most. One alone does not
    /// wait for the search for a title, which is given up where it could reach the budget.
    fn admits(&self, own: impl FnOnce() -> f64) -> bool {
        let budget = self.state.max_budget;
        // Looked at only where it matters: all that a model is told is measured for it.
        if budget.is_none() || self.calls_underway() == 0 {
            return true;
        }
        let title = self.title.as_ref().filter(|title| title.begun.is_some()).map(TitleSearch::max_cost);
        let steps = self.steps_underway().map(|worker| worker.steps.max_cost(&worker.view));
        let drafts = self.drafts_underway().map(|llm| draft_editor::max_cost(llm.as_ref()));
        let others = steps.chain(drafts).chain(title);
        budget::admits(budget, self.state.metrics.accumulated_cost, others, own())
    }

    /// How many there are, the search for a title apart.
    fn calls_underway(&self) -> usize {
        self.steps_underway().count() + self.drafts_underway().count()
    }

    fn steps_underway(&self) -> impl Iterator<Item = &Worker> {
        self.workers.values().filter(|worker| matches!(worker.step, Some((_, Some(_)))))
    }

    fn drafts_underway(&self) -> impl Iterator<Item = &Arc<dyn Llm>> {
        self.performing.values().filter_map(|performing| performing.draft.as_ref()).map(|(llm, _)| llm)
    }

    /// Begins the search for a title that waits, unless it could have one of several others' calls pass the budget.
    fn begin_title(&mut self) {
        let Some(title) = self.title.as_ref().filter(|title| title.begun.is_none()) else { return };
        if self.calls_underway() > 1 && !self.admits(|| title.max_cost()) {
            return;
        }
        let (llm, message) = (Arc::clone(&title.llm), title.message.clone());
        let begun = self.work.spawn(async move {
            let (title, call) = title::generate_title(llm.as_ref(), &message).await;
            Done::Title { title, call }
        });
        if let Some(title) = &mut self.title {
            title.begun = Some(begun);
        }
    }

    /// The agents whose steps waited while others' calls reached the budget. Whether they are still to be taken is decided
    /// anew.
    pub(super) fn take_back(&mut self) -> Vec<AgentId> {
        if !self.state.is_budget_reached() {
            return Vec::new();
        }
        let waits = |worker: &mut Worker| worker.step.take_if(|(_, begun)| begun.is_none()).is_some();
        self.workers.iter_mut().filter_map(|(agent, worker)| waits(worker).then_some(*agent)).collect()
    }

    /// Gives up what would be paid for though the budget is reached, and a title that could reach it.
    pub(super) async fn give_up_unpaid(&mut self) -> Result<(), ConversationError> {
        let (budget, spent) = (self.state.max_budget, self.state.metrics.accumulated_cost);
        let is_too_much =
            |title: &mut TitleSearch| budget.is_some_and(|most| spent + title.max_cost() >= most);
        if let Some(TitleSearch { begun: Some(begun), .. }) = self.title.take_if(is_too_much) {
            begun.abort();
        }
        if !self.state.is_budget_reached() {
            return Ok(());
        }
        for draft in std::mem::take(&mut self.drafts) {
            let action = draft.performance.action;
            self.performing.remove(&action);
            self.follow(InputKind::EditDrafted { action, drafted: DraftResult::refused(UNPAID) }).await?;
        }
        Ok(())
    }

    /// The edit that comes of a draft, or that the user stopped it: of one that waits for others' calls too. It is performed
    /// when it is in the log.
    pub(super) fn write_out(&mut self, draft: Draft) {
        let action = draft.performance.action;
        let llm = self.steps_of(action).draft_editor();
        let is_stopped = draft.performance.cancel.is_cancelled();
        let is_unpaid = self.state.is_budget_reached();
        if !is_stopped && (is_unpaid || !self.admits(|| draft_editor::max_cost(llm.as_ref()))) {
            return self.drafts.push(draft);
        }
        let Draft { edit, sandbox, performance: Performance { request, cancel, .. } } = draft;
        let asked = Arc::clone(&llm);
        let work = self.work.spawn(async move {
            let result = tokio::select! {
                biased;
                () = cancel.cancelled() => Ok(DraftResult::refused("the user stopped it")),
                result = draft_editor::write_out(&edit, &request, sandbox.as_ref(), asked.as_ref()) => result,
            };
            Done::Draft { action, result }
        });
        if let Some(performing) = self.performing.get_mut(&action) {
            performing.draft = Some((llm, work));
        }
    }
}

/// Tells who listens what happens during an agent's call to its model, and the task when it is made again.
fn tell_progress(
    agent: AgentId,
    seen: EventId,
    live: broadcast::Sender<Live>,
    retries: mpsc::Sender<Retry>,
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
            // That the task is far behind is no failure.
            drop(retries.try_send(Retry { agent, seen, retry, is_rate_limited }));
        }
        // Nor that nobody hears it now.
        drop(live.send(Live::Model { agent, progress }));
    }
}
