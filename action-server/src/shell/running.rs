//! The output of a running command that was not reported yet, and its outcome. Pure. Memory is
//! bounded by the limit of the text and by [`MAX_UNSENT_BYTES`].

use std::collections::VecDeque;

use super::answers::CommandOutcome;
use super::baseline::Baseline;
use super::output::{FoldedText, OutputFold};

/// Maximum raw output that is kept for the next action while no action is attached. Only for
/// display: the observation does not depend on it.
const MAX_UNSENT_BYTES: usize = 64 * 1024;

/// Receives raw output, if an action is attached.
pub(super) type OutputListener<'a> = Option<&'a mut dyn FnMut(&[u8])>;

/// A command that was sent to the shell.
pub(super) struct RunningCommand {
    baseline: Baseline,
    limit: usize,
    fold: OutputFold,
    unsent: VecDeque<u8>,
    answered: bool,
    ending: Option<CommandOutcome>,
}

impl RunningCommand {
    pub(super) fn new(baseline: Baseline, limit: usize) -> Self {
        let (fold, unsent) = (OutputFold::new(limit), VecDeque::new());
        Self {
            baseline,
            limit,
            fold,
            unsent,
            answered: false,
            ending: None,
        }
    }

    /// Processes output of the terminal. Output after the end of the command is of a background job
    /// and is dropped.
    pub(super) fn on_output(&mut self, bytes: &[u8], output: &mut OutputListener<'_>) {
        if self.ending.is_some() {
            return;
        }
        self.fold.feed(bytes);
        match output {
            Some(output) => output(bytes),
            None => self.keep_unsent(bytes),
        }
    }

    fn keep_unsent(&mut self, bytes: &[u8]) {
        self.unsent.extend(bytes);
        let excess = self.unsent.len().saturating_sub(MAX_UNSENT_BYTES);
        self.unsent.drain(..excess);
    }

    /// Sends the raw output that was kept to an action that attaches.
    pub(super) fn catch_up(&mut self, output: &mut dyn FnMut(&[u8])) {
        let (front, back) = self.unsent.as_slices();
        [front, back]
            .into_iter()
            .filter(|bytes| !bytes.is_empty())
            .for_each(output);
        self.unsent.clear();
    }

    /// Drops the output so far, because the command has not started yet. An attached action may
    /// have received it.
    pub(super) fn restart(&mut self) {
        self.fold = OutputFold::new(self.limit);
        self.unsent.clear();
    }

    /// Sets the outcome, unless it was set before.
    pub(super) fn end(&mut self, ending: CommandOutcome) {
        self.ending.get_or_insert(ending);
    }

    /// Returns the outcome if the command has ended.
    pub(super) fn ending(&self) -> Option<&CommandOutcome> {
        self.ending.as_ref()
    }

    /// Returns the processes that existed before the command.
    pub(super) fn baseline(&self) -> &Baseline {
        &self.baseline
    }

    /// Returns the text that was not reported yet, and whether it is the first report.
    pub(super) fn take_text(&mut self) -> (FoldedText, bool) {
        let first = !std::mem::replace(&mut self.answered, true);
        (self.fold.take_text(), first)
    }
}
