//! Limits of a conversation: how many steps its agents may take, and what their calls to models may
//! cost. Pure.
//!
//! The cost of a call is known when it has ended, so concurrent calls could exceed the budget, each
//! by its own cost. A call is therefore started alongside others only if the rest of the budget
//! covers the maximum cost of all of them; else it waits for them to end. A single call may always
//! start below the budget, so at most one call exceeds it.

use protocol::record::Limit;

use super::state::{AgentId, ModelCallId, ScheduledWork, State};

/// Reason why a draft is not written out once the budget is reached.
pub(super) const BUDGET_REACHED: &str = "the budget for model calls is used up";

/// Whether a call to a model may start.
#[derive(Debug, PartialEq)]
pub(super) enum Admission {
    Start,
    /// Not before another call has ended.
    Wait,
    /// Decided once the maximum cost of these calls is known.
    Estimate(Vec<ModelCallId>),
}

/// A limit that an agent has reached.
pub(super) struct LimitExceeded {
    pub(super) limit: Limit,
    /// Steps taken, or US dollars spent.
    pub(super) at: f64,
}

impl LimitExceeded {
    /// The reason why the agent does not step, for people.
    pub(super) fn reason(&self, agent: AgentId) -> String {
        let at = self.at;
        match self.limit {
            Limit::Iterations if agent.is_some() => "the limit of steps is reached".to_owned(),
            Limit::Iterations => {
                format!(
                    "the agent has reached its limit of {at} step{}",
                    if at == 1.0 { "" } else { "s" }
                )
            }
            Limit::Budget => format!("the model calls have cost ${at:.4}, the whole budget"),
        }
    }
}

impl State {
    /// The limit that one more step would exceed alongside `due_steps` others.
    pub(super) fn limit_exceeded(&self, due_steps: usize) -> Option<LimitExceeded> {
        let due_steps = u32::try_from(due_steps).unwrap_or(u32::MAX);
        if self.iterations.saturating_add(due_steps) >= self.max_iterations {
            Some(LimitExceeded {
                limit: Limit::Iterations,
                at: f64::from(self.iterations),
            })
        } else if self.is_budget_reached() {
            Some(LimitExceeded {
                limit: Limit::Budget,
                at: self.metrics.accumulated_cost,
            })
        } else {
            None
        }
    }

    /// Whether the calls so far have cost the whole budget.
    pub(super) fn is_budget_reached(&self) -> bool {
        self.could_reach_budget(0.0)
    }

    /// Whether the title search is not worth its cost: no step is held because of a title.
    pub(super) fn is_title_too_expensive(&self) -> bool {
        let title = self
            .schedule
            .work(ModelCallId::Title)
            .and_then(|work| work.max_cost);
        title.is_some_and(|cost| self.could_reach_budget(cost))
    }

    fn could_reach_budget(&self, cost: f64) -> bool {
        self.max_budget
            .is_some_and(|budget| self.metrics.accumulated_cost + cost >= budget)
    }

    /// Whether a call to a model may start alongside those in flight.
    pub(super) fn admission(&self, call: ModelCallId) -> Admission {
        let Some(budget) = self.max_budget else {
            return Admission::Start;
        };
        let others: Vec<(ModelCallId, &ScheduledWork)> = self.calls_in_flight().collect();
        // A single call does not wait for the title search, nor the search for a single call: the
        // search is abandoned where it could reach the budget.
        let is_free = others.len() <= usize::from(call == ModelCallId::Title);
        let Some(own) = self.schedule.work(call).filter(|_| !is_free) else {
            return Admission::Start;
        };
        let calls = || others.iter().copied().chain([(call, own)]);
        let unknown = calls().filter(|(_, work)| work.max_cost.is_none());
        let unknown: Vec<ModelCallId> = unknown.map(|(call, _)| call).collect();
        if !unknown.is_empty() {
            return Admission::Estimate(unknown);
        }
        let title = self
            .schedule
            .work(ModelCallId::Title)
            .filter(|work| work.is_started);
        let others = others
            .iter()
            .map(|(_, work)| *work)
            .chain(title)
            .filter_map(|work| work.max_cost);
        let own = own.max_cost.unwrap_or_default();
        match covers(budget, self.metrics.accumulated_cost, others, own) {
            true => Admission::Start,
            false => Admission::Wait,
        }
    }

    /// All calls in flight but the title search.
    fn calls_in_flight(&self) -> impl Iterator<Item = (ModelCallId, &ScheduledWork)> {
        let steps = self
            .schedule
            .steps
            .iter()
            .map(|(agent, work)| (ModelCallId::Step(*agent), work));
        let drafts = self.pending().filter(|(_, pending)| pending.is_draft());
        let drafts = drafts.filter_map(|(_, pending)| {
            Some((
                ModelCallId::Draft(pending.action),
                self.schedule.actions.get(&pending.action)?,
            ))
        });
        steps.chain(drafts).filter(|(_, work)| work.is_started)
    }
}

/// Whether a budget covers what is spent, a call and the other calls in flight, all at their
/// maximum cost.
fn covers(budget: f64, spent: f64, others: impl Iterator<Item = f64>, own: f64) -> bool {
    // A free call exceeds nothing, and no call waits for it.
    if own <= 0.0 {
        return true;
    }
    let (mut is_alone, mut max_cost) = (true, spent + own);
    for other in others.filter(|other| *other > 0.0) {
        is_alone = false;
        max_cost += other;
    }
    is_alone || max_cost <= budget
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::state::TitleSearch;

    #[test]
    fn calls_are_concurrent_only_while_the_budget_covers_all() {
        let covers =
            |spent: f64, others: &[f64], own| covers(10.0, spent, others.iter().copied(), own);
        assert!(covers(0.0, &[3.0, 3.0], 4.0));
        assert!(!covers(0.5, &[3.0, 3.0], 4.0));
        assert!(!covers(0.0, &[f64::INFINITY], 1.0) && !covers(0.0, &[1.0], f64::INFINITY));
    }

    #[test]
    fn a_single_call_and_a_free_one_may_always_start() {
        assert!(covers(1.0, 0.99, std::iter::empty(), f64::INFINITY));
        assert!(
            covers(1.0, 0.99, [0.0, 0.0].into_iter(), 5.0),
            "the price of the others is unknown"
        );
        assert!(covers(1.0, 0.99, [5.0].into_iter(), 0.0));
        let state = scheduled(None, &[(1, Some(f64::INFINITY), true), (2, None, false)]);
        assert_eq!(
            state.admission(step(2)),
            Admission::Start,
            "there is no budget"
        );
    }

    fn step(id: u64) -> ModelCallId {
        ModelCallId::Step(Some(protocol::EventId(id)))
    }

    fn scheduled(max_budget: Option<f64>, steps: &[(u64, Option<f64>, bool)]) -> State {
        let mut state = State {
            max_budget,
            ..State::default()
        };
        for (id, max_cost, is_started) in steps {
            let work = ScheduledWork {
                is_started: *is_started,
                max_cost: *max_cost,
            };
            state
                .schedule
                .steps
                .insert(Some(protocol::EventId(*id)), work);
        }
        state
    }

    #[test]
    fn costs_are_estimated_only_for_concurrent_calls() {
        let waiting = (2, None, false);
        let state = scheduled(Some(1.0), &[waiting]);
        assert_eq!(state.admission(step(2)), Admission::Start);
        let state = scheduled(Some(1.0), &[(1, None, true), waiting]);
        assert_eq!(
            state.admission(step(2)),
            Admission::Estimate(vec![step(1), step(2)])
        );
        let waiting = (2, Some(0.6), false);
        let state = scheduled(Some(1.0), &[(1, Some(0.5), true), waiting]);
        assert_eq!(state.admission(step(2)), Admission::Wait);
    }

    #[test]
    fn a_title_waits_for_several_calls_that_leave_it_nothing() {
        let started = |id| (id, Some(0.4), true);
        for (calls, admission) in [
            (vec![started(1)], Admission::Start),
            (vec![started(1), started(2)], Admission::Wait),
        ] {
            let mut state = scheduled(Some(1.0), &calls);
            let work = ScheduledWork {
                max_cost: Some(0.3),
                ..ScheduledWork::default()
            };
            state.schedule.title = Some(TitleSearch {
                message: "work".into(),
                work,
            });
            assert_eq!(state.admission(ModelCallId::Title), admission);
            assert!(!state.is_title_too_expensive());
        }
    }
}
