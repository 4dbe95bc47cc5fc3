//! V0's `run_ipython`: cells of Python whose variables stay. One [`Kernel`] serves the sandbox, one cell after the other. It
//! is begun at the first cell, again at the cell after its death, and ends with the server.
//!
//! The kernel is one process, IPython driven by [`bridge.py`](Kernel) over pipes, and not V0's chain of a gateway and an
//! `ipykernel`: nothing listens and nothing is connected to, so that it works where a sandbox may not even do that; a cell
//! is over when its call has returned, so no output comes too late; and no second process can be left behind. All it
//! needs of an image is `python3` with IPython, which ipykernel brings.

mod kernel;
mod shown;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use protocol::Observation;
use protocol::action::RunIpythonAction;
use protocol::observation::RunIpythonObservation;
use protocol::sandbox_api::CommandEnvironment;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::process::Processes;
use crate::shell::OutputSink;
use kernel::{Kernel, Outcome, Reply, Stop};
use shown::Shown;

const NEW_KERNEL: &str =
    "\n[The kernel had ended before this cell, and a new one begins without its variables.]";

/// The kernel of this sandbox. Cloning shares it.
#[derive(Clone)]
pub(crate) struct Jupyter(Arc<Shared>);

struct Shared {
    /// The kernel's alone: it is in no list.
    processes: Processes,
    /// Locked while a cell runs. Whoever waits holds their own action, so the queue costs nothing.
    kernel: Mutex<Option<Kernel>>,
}

/// A cell to run.
pub(crate) struct Cell {
    pub(crate) action: RunIpythonAction,
    /// What it has in its environment beside the kernel's own, and it alone.
    pub(crate) environment: CommandEnvironment,
    /// Where the shell is: the kernel follows it.
    pub(crate) folder: PathBuf,
    pub(crate) timeout: Option<Duration>,
    pub(crate) cancel: CancellationToken,
}

impl Jupyter {
    /// Starts nothing yet.
    pub(crate) fn new(processes: Processes) -> Self {
        Self(Arc::new(Shared { processes, kernel: Mutex::default() }))
    }

    /// Runs a cell to its end. Its cancel and its timeout interrupt it, and end the kernel if it does not let go. `output`
    /// gets what it writes as it comes.
    pub(crate) async fn run(&self, cell: Cell, output: OutputSink) -> Observation {
        let mut slot = tokio::select! {
            biased;
            slot = self.0.kernel.lock() => slot,
            () = cell.cancel.cancelled() => return Observation::error("The cell was cancelled before it began.", ""),
        };
        let mut notes = String::new();
        if let Some(ended) = slot.take_if(|kernel| kernel.has_ended()) {
            notes += NEW_KERNEL;
            ended.bury(&self.0.processes).await;
        }
        let kernel = match slot.take() {
            Some(kernel) => kernel,
            None => match Kernel::start(&self.0.processes) {
                Ok(kernel) => kernel,
                Err(error) => return Observation::error(format!("A cell needs python3: {error}."), ""),
            },
        };
        let kernel = slot.insert(kernel);
        let mut shown = Shown::new(output);
        let (outcome, stop) = kernel.run(&cell, &mut shown).await;
        let begun = if matches!(outcome, Outcome::NotBegun) { " before it began" } else { "" };
        match stop {
            Some(Stop::TimedOut) => {
                let seconds = cell.timeout.unwrap_or_default().as_secs_f64();
                notes += &format!("\n[Execution timed out{begun} ({seconds:?} seconds).]");
            }
            Some(Stop::Cancelled) => notes += &format!("\n[The cell was cancelled{begun}.]"),
            None => {}
        }
        let (mut extra, mut image_urls) = (String::new(), None);
        match outcome {
            Outcome::NotBegun => {
                // One that is still loading may never be done. It has no variables yet.
                if let Some(kernel) = slot.take_if(|kernel| !kernel.is_ready) {
                    kernel.bury(&self.0.processes).await;
                }
            }
            Outcome::Done(Reply { folder, python, images, left_out }) => {
                if left_out > 0 {
                    notes += &format!("\n[{left_out} more images were left out.]");
                }
                extra = format!(
                    "\n[Jupyter current working directory: {folder}]\n[Jupyter Python interpreter: {python}]"
                );
                image_urls = Some(images).filter(|images| !images.is_empty());
            }
            Outcome::Ended(why) => {
                let is_ready = kernel.is_ready;
                if let Some(kernel) = slot.take() {
                    kernel.bury(&self.0.processes).await;
                }
                if !is_ready && stop.is_none() {
                    return Observation::error(format!("A cell needs IPython in Python 3: {why}."), "");
                }
                notes +=
                    &format!("\n[The kernel has ended: {why}. The next cell begins without its variables.]");
            }
        }
        let mut content = shown.text() + &notes;
        content.drain(..content.len() - content.trim_start_matches('\n').len());
        if content.is_empty() {
            content.push_str("[Code executed successfully with no output]");
        }
        if cell.action.include_extra {
            content += &extra;
        }
        Observation::new(content, RunIpythonObservation { code: cell.action.code, image_urls })
    }

    /// Ends the kernel and all that came of it.
    pub(crate) async fn shut_down(&self) {
        self.0.processes.shut_down().await;
    }
}
