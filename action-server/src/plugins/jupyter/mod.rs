//! V0's `run_ipython`: Python cells that share their variables. One [`Kernel`] runs the cells of
//! the sandbox one after the other. It is started at the first cell, restarted at the next cell
//! after its exit, and ends with the server.
//!
//! The kernel is one process that drives IPython through [`bridge.py`](Kernel) over pipes, instead
//! of V0's gateway and `ipykernel`. It uses no sockets, so that it works in sandboxes that forbid
//! them. A cell has completed when its call returns, so that no output arrives late. No second
//! process can be left behind. An image only needs `python3` with IPython, which ipykernel
//! includes.

mod cell_output;
mod kernel;

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
use cell_output::CellOutput;
use kernel::{CellResult, Interruption, Kernel, KernelReply};

const NEW_KERNEL: &str =
    "\n[The kernel exited before this cell. A new one starts without its variables.]";

/// The kernel of this sandbox. Clones share it.
#[derive(Clone)]
pub(crate) struct Jupyter(Arc<JupyterState>);

struct JupyterState {
    /// Contains only the kernel, which is not listed among the processes of clients.
    processes: Processes,
    /// Locked while a cell runs. A caller that waits holds its own action, so the queue uses no
    /// memory here.
    kernel: Mutex<Option<Kernel>>,
}

/// A cell to run.
pub(crate) struct Cell {
    pub(crate) action: RunIpythonAction,
    /// Variables that only this cell has.
    pub(crate) environment: CommandEnvironment,
    /// The shell's working directory, which the kernel changes to.
    pub(crate) folder: PathBuf,
    pub(crate) timeout: Option<Duration>,
    pub(crate) cancel: CancellationToken,
}

impl Jupyter {
    /// Does not start the kernel.
    pub(crate) fn new(processes: Processes) -> Self {
        Self(Arc::new(JupyterState {
            processes,
            kernel: Mutex::default(),
        }))
    }

    /// Runs a cell. A cancellation or timeout interrupts it, and kills the kernel if the cell does
    /// not end. `output` receives its output as it is written.
    pub(crate) async fn run(&self, cell: Cell, output: OutputSink) -> Observation {
        let mut guard = tokio::select! {
            biased;
            guard = self.0.kernel.lock() => guard,
            () = cell.cancel.cancelled() => return Observation::error("The cell was cancelled before it started.", ""),
        };
        let mut notes = String::new();
        if let Some(ended) = guard.take_if(|kernel| kernel.has_ended()) {
            notes += NEW_KERNEL;
            ended.dispose(&self.0.processes).await;
        }
        let kernel = match guard.take() {
            Some(kernel) => kernel,
            None => match Kernel::start(&self.0.processes) {
                Ok(kernel) => kernel,
                Err(error) => {
                    return Observation::error(format!("A cell needs python3: {error}."), "");
                }
            },
        };
        let kernel = guard.insert(kernel);
        let mut shown = CellOutput::new(output);
        let (outcome, stop) = kernel.run(&cell, &mut shown).await;
        let before_start = if matches!(outcome, CellResult::NotStarted) {
            " before it started"
        } else {
            ""
        };
        match stop {
            Some(Interruption::TimedOut) => {
                let seconds = cell.timeout.unwrap_or_default().as_secs_f64();
                notes += &format!("\n[Execution timed out{before_start} ({seconds:?} seconds).]");
            }
            Some(Interruption::Cancelled) => {
                notes += &format!("\n[The cell was cancelled{before_start}.]");
            }
            None => {}
        }
        let (mut extra, mut image_urls) = (String::new(), None);
        match outcome {
            CellResult::NotStarted => {
                // A kernel that is still loading may never be ready. It has no variables yet.
                if let Some(kernel) = guard.take_if(|kernel| !kernel.is_ready) {
                    kernel.dispose(&self.0.processes).await;
                }
            }
            CellResult::Completed(KernelReply {
                folder,
                python,
                images,
                left_out,
            }) => {
                if left_out > 0 {
                    notes += &format!("\n[{left_out} more images were omitted.]");
                }
                extra = format!(
                    "\n[Jupyter current working directory: {folder}]\n[Jupyter Python interpreter: {python}]"
                );
                image_urls = Some(images).filter(|images| !images.is_empty());
            }
            CellResult::KernelExited(reason) => {
                let is_ready = kernel.is_ready;
                if let Some(kernel) = guard.take() {
                    kernel.dispose(&self.0.processes).await;
                }
                if !is_ready && stop.is_none() {
                    return Observation::error(
                        format!("A cell needs IPython in Python 3: {reason}."),
                        "",
                    );
                }
                notes += &format!(
                    "\n[The kernel exited: {reason}. The next cell starts without its variables.]"
                );
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
        Observation::new(
            content,
            RunIpythonObservation {
                code: cell.action.code,
                image_urls,
            },
        )
    }

    /// Kills the kernel and all its child processes.
    pub(crate) async fn shut_down(&self) {
        self.0.processes.shut_down().await;
    }
}
