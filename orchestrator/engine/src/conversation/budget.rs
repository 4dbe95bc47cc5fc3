//! When a call to a model may begin: so that no more than one passes the budget.
//!
//! What a call costs is known when it has ended, so calls that are made at once could pass the budget each by their own
//! cost. A call is therefore begun beside others only where all of them together fit into what is left, each at the most
//! that it can cost; else it waits for their ends. With none underway any call may begin: whether the budget is reached
//! is for [`transition`](super::transition()) to say.

/// Whether a call may begin that costs at most `own`, while those are underway that cost at most `others`.
pub(super) fn admits(budget: Option<f64>, spent: f64, others: impl Iterator<Item = f64>, own: f64) -> bool {
    let Some(budget) = budget else { return true };
    // What costs nothing passes nothing, and is passed by nothing.
    if own <= 0.0 {
        return true;
    }
    let (mut is_alone, mut most) = (true, spent + own);
    for other in others.filter(|other| *other > 0.0) {
        is_alone = false;
        most += other;
    }
    is_alone || most <= budget
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_made_at_once_as_long_as_all_fit_and_near_the_limit_one_after_another() {
        let admitted =
            |spent: f64, others: &[f64], own| admits(Some(10.0), spent, others.iter().copied(), own);
        assert!(admitted(0.0, &[3.0, 3.0], 4.0));
        assert!(!admitted(0.5, &[3.0, 3.0], 4.0));
        assert!(!admitted(0.0, &[f64::INFINITY], 1.0) && !admitted(0.0, &[1.0], f64::INFINITY));
    }

    #[test]
    fn one_alone_may_always_begin_and_so_may_what_costs_nothing() {
        assert!(admits(Some(1.0), 0.99, std::iter::empty(), f64::INFINITY));
        assert!(admits(Some(1.0), 0.99, [0.0, 0.0].into_iter(), 5.0), "nothing is known of their price");
        assert!(admits(Some(1.0), 0.99, [5.0].into_iter(), 0.0));
        assert!(admits(None, 9e9, [f64::INFINITY].into_iter(), 5.0), "there is no budget");
    }
}
