//! One command between its first byte and its ending: what it said that nobody has been told yet.
//!
//! Pure bookkeeping; bounded by the fold's limit and [`MAX_UNHEARD_BYTES`].

use std::collections::VecDeque;

use super::answers::Ending;
use super::baseline::Baseline;
use super::output::{Fold, Folded};

/// Raw output kept for the next action while none listens: what a person would scroll back, not a log. The observation
/// does not depend on it.
const MAX_UNHEARD_BYTES: usize = 64 * 1024;

/// Who hears the raw output as it comes, if anyone.
pub(super) type Listener<'a> = Option<&'a mut dyn FnMut(&[u8])>;

/// A command that was sent to the shell.
pub(super) struct Running {
    baseline: Baseline,
    limit: usize,
    fold: Fold,
    unheard: VecDeque<u8>,
    answered: bool,
    ending: Option<Ending>,
}

impl Running {
    pub(super) fn new(baseline: Baseline, limit: usize) -> Self {
        let (fold, unheard) = (Fold::new(limit), VecDeque::new());
        Self { baseline, limit, fold, unheard, answered: false, ending: None }
    }

    /// Takes what the terminal shows. After the command's end that is a background job's, belongs to no action and is dropped.
    pub(super) fn on_output(&mut self, bytes: &[u8], output: &mut Listener<'_>) {
        if self.ending.is_some() {
            return;
        }
        self.fold.feed(bytes);
        match output {
            Some(output) => output(bytes),
            None => self.keep_unheard(bytes),
        }
    }

    fn keep_unheard(&mut self, bytes: &[u8]) {
        self.unheard.extend(bytes);
        let excess = self.unheard.len().saturating_sub(MAX_UNHEARD_BYTES);
        self.unheard.drain(..excess);
    }

    /// What was said while no action listened, for the action that listens now.
    pub(super) fn catch_up(&mut self, output: &mut dyn FnMut(&[u8])) {
        let (front, back) = self.unheard.as_slices();
        [front, back].into_iter().filter(|bytes| !bytes.is_empty()).for_each(output);
        self.unheard.clear();
    }

    /// It has not begun yet: what was shown is not its own. Who listens has heard that.
    pub(super) fn begin_anew(&mut self) {
        self.fold = Fold::new(self.limit);
        self.unheard.clear();
    }

    /// Ends it, if it has not ended before.
    pub(super) fn end(&mut self, ending: Ending) {
        self.ending.get_or_insert(ending);
    }

    /// How it ended.
    pub(super) fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// What was there before it.
    pub(super) fn baseline(&self) -> &Baseline {
        &self.baseline
    }

    /// What has not been told yet, and whether it is the first that is told.
    pub(super) fn take(&mut self) -> (Folded, bool) {
        let first = !std::mem::replace(&mut self.answered, true);
        (self.fold.take(), first)
    }
}
