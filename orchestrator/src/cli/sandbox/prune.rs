//! `glovebox sandbox prune`: removes orphaned sandboxes and snapshots.
//!
//! A sandbox is in use if a process holds the lock of its conversation. The locks of unused
//! sandboxes are held until they are removed, so that no process resumes a conversation whose
//! sandbox is being removed.

use std::sync::{Mutex, PoisonError};

use conversations::{ConversationLock, Workspaces as _};
use engine::sandbox::{SandboxSummary, sweep, sweep_snapshots};
use protocol::ConversationId;

use super::arguments::RuntimeChoice;
use super::name::display_name;
use super::runtime::SandboxRuntime;
use super::runtimes::SandboxRuntimes;
use crate::cli::print;
use crate::compose::{self, Stores};
use crate::config::Overrides;
use crate::exit::Exit;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Removes the sandboxes of conversations that no process runs now, which a crash or a kill has left, those whose --ttl is \
over, and the snapshots of interrupted forks. Keeps the conversations, their workspaces, and the other sandboxes of `sandbox create`. A conversation gets a \
new sandbox when it is resumed. Prints the names of what it removed.")]
pub(super) struct PruneArguments {
    /// Only print what would be removed.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    runtime: RuntimeChoice,
}

pub(super) async fn run(arguments: PruneArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let runtimes = SandboxRuntimes::open(&arguments.runtime, overrides).await?;
    let (lists, mut exit) = runtimes.list_by_runtime().await?;
    for (runtime, _) in lists {
        if !prune(runtime, arguments.dry_run).await? {
            exit = Exit::Failed;
        }
    }
    Ok(exit)
}

/// Prunes one runtime. Returns whether all unused sandboxes were removed.
async fn prune(runtime: &SandboxRuntime, dry_run: bool) -> anyhow::Result<bool> {
    let stores = Stores::open(&runtime.config, &runtime.state_dir).await?;
    let is_done = prune_in(&stores, runtime, dry_run).await;
    stores.close().await;
    is_done
}

async fn prune_in(
    stores: &Stores,
    runtime: &SandboxRuntime,
    dry_run: bool,
) -> anyhow::Result<bool> {
    let locks = stores.locks();
    let locks = locks.as_ref();
    let held: Mutex<Vec<ConversationLock>> = Mutex::default();
    let unused: Mutex<Vec<SandboxSummary>> = Mutex::default();
    let (held, found) = (&held, &unused);
    let is_used = |summary: SandboxSummary| async move {
        let Some(conversation) = &summary.conversation else {
            return compose::is_warm_in_use(&summary);
        };
        let Ok(Some(lock)) = locks.lock(conversation).await else {
            return true;
        };
        held.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(lock);
        found
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(summary);
        dry_run
    };
    let removed = sweep(runtime.provider.as_ref(), is_used).await?;
    let unused = unused.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut is_done = true;
    for summary in unused {
        if dry_run || removed.contains(&summary.sandbox) {
            if let Some(conversation) = summary.conversation.as_ref().filter(|_| !dry_run) {
                // The lock of the conversation is still held.
                runtime.state_dir.remove_if_empty(conversation);
            }
            print::line(&display_name(&summary))?;
        } else {
            print::error(&format!(
                "cannot remove the sandbox {}; --log-level warn shows the cause",
                display_name(&summary)
            ));
            is_done = false;
        }
    }
    if !dry_run {
        let is_used = |conversation: ConversationId| async move {
            locks
                .locked(&[conversation])
                .await
                .map_or(true, |locked| !locked.is_empty())
        };
        for image in sweep_snapshots(runtime.provider.as_ref(), is_used).await? {
            print::line(&image)?;
        }
    }
    Ok(is_done)
}
