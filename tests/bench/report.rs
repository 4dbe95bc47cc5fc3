//! The output of figures. Each is printed as soon as it is measured, so that an aborted run shows
//! its results.

use std::sync::{Arc, Mutex, PoisonError};

use super::figure::{Figure, header};

/// Repetitions of a short run, in percent of a full run.
const SHORT_PERCENT: usize = 2;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Enough for figures that can be compared.
    Full,
    /// Just enough to check that each group runs. Aims are ignored.
    Short,
}

/// The format of the result on standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// A row for each figure.
    Table,
    /// A list at the end; the rows go to standard error.
    Json,
}

/// Collects figures. Clones share them.
#[derive(Clone)]
pub(crate) struct BenchmarkReport {
    effort: Effort,
    format: Format,
    figures: Arc<Mutex<Vec<Figure>>>,
}

impl BenchmarkReport {
    /// Creates an empty report and prints the heads of the columns.
    pub(crate) fn new(effort: Effort, format: Format) -> Self {
        let report = Self {
            effort,
            format,
            figures: Arc::default(),
        };
        report.print(&header());
        report
    }

    /// Returns `full` in a full run, and a small part of it in a short one.
    pub(crate) fn repetitions(&self, full: usize) -> usize {
        match self.effort {
            Effort::Full => full,
            Effort::Short => (full * SHORT_PERCENT / 100).max(1),
        }
    }

    /// Prints and stores a figure. A short run ignores its aim, because too little was measured.
    pub(crate) fn add(&self, mut figure: Figure) {
        if self.effort == Effort::Short && figure.error.is_none() {
            (figure.aim, figure.ok) = (String::new(), true);
        }
        self.print(&figure.to_string());
        self.figures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(figure);
    }

    /// Adds figures of one measurement.
    pub(crate) fn add_all(&self, figures: impl IntoIterator<Item = Figure>) {
        figures.into_iter().for_each(|figure| self.add(figure));
    }

    /// Adds a row for a group, or a part of it, that is skipped because the machine lacks
    /// something.
    pub(crate) fn skip(&self, group: &'static str, reason: &'static str) {
        self.add(Figure::skipped(group, reason));
    }

    /// Prints the list if the format is JSON. Returns whether every aim was met and no group
    /// failed.
    pub(crate) fn finish(self) -> bool {
        let figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        if self.format == Format::Json {
            println!("{}", serde_json::to_string_pretty(&*figures).unwrap());
        }
        figures.iter().all(|figure| figure.ok)
    }

    #[cfg(test)]
    pub(crate) fn row_count(&self) -> usize {
        self.figures.lock().unwrap().len()
    }

    fn print(&self, row: &str) {
        match self.format {
            Format::Table => println!("{row}"),
            Format::Json => eprintln!("{row}"),
        }
    }
}
