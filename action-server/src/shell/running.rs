//! One command between its first byte and its ending: what it said that nobody has been told yet.
//!
//! Pure bookkeeping; bounded by the fold's limit and [`MAX_UNHEARD_BYTES`].

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::answers::Ending;
use super::marks::{Mark, Piece};
use super::output::{Fold, Folded};
use super::process_tree::Baseline;

/// Raw output kept for the next action while none listens: what a person would scroll back, not a log. The observation
/// does not depend on it.
const MAX_UNHEARD_BYTES: usize = 64 * 1024;

/// Who hears the raw output as it comes, if anyone.
pub(super) type Listener<'a> = Option<&'a mut dyn FnMut(&[u8])>;

/// A command that was sent to the shell.
pub(super) struct Running {
    number: Option<u64>,
    baseline: Baseline,
    fold: Fold,
    unheard: VecDeque<u8>,
    started: bool,
    answered: bool,
    ending: Option<Ending>,
}

/// What a piece of output meant.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Output of the command.
    Said,
    /// The command begins.
    Started,
    /// The shell is at its prompt, in this folder; whether it ends the command is in [`Running::ending`].
    Prompted(PathBuf),
    /// Nothing of the command's.
    Nothing,
}

impl Running {
    pub(super) fn new(number: Option<u64>, baseline: Baseline, limit: usize) -> Self {
        Self {
            number,
            baseline,
            fold: Fold::new(limit),
            unheard: VecDeque::new(),
            started: number.is_none(),
            answered: false,
            ending: None,
        }
    }

    /// Takes a piece of what the terminal says. Before the command's start mark that is a background job's, the echo of
    /// our typing, or a late prompt; after its end mark it is a background job's again. It belongs to no action and is
    /// dropped.
    pub(super) fn hear(&mut self, piece: Piece<'_>, output: &mut Listener<'_>) -> Meaning {
        let speaking = self.started && self.ending.is_none();
        match piece {
            Piece::Output(bytes) if speaking => {
                self.fold.feed(bytes);
                match output {
                    Some(output) => output(bytes),
                    None => self.keep_unheard(bytes),
                }
                Meaning::Said
            }
            Piece::Output(_) => Meaning::Nothing,
            Piece::Mark(Mark::Start { number }) => {
                let ours = Some(number) == self.number && !self.started;
                self.started |= ours;
                if ours { Meaning::Started } else { Meaning::Nothing }
            }
            Piece::Mark(Mark::End { status, working_dir, .. }) => {
                if speaking {
                    self.ending = Some(Ending::Completed { status });
                }
                Meaning::Prompted(OsString::from_vec(working_dir).into())
            }
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

    /// Ends it, if it has not ended before.
    pub(super) fn end(&mut self, ending: Ending) {
        self.ending.get_or_insert(ending);
    }

    /// How it ended.
    pub(super) fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// Whether its start mark has come, if one was to come: before, nothing of it was run.
    pub(super) fn has_begun(&self) -> bool {
        self.started
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
