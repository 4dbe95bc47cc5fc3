//! `glovebox sandbox prune`: removes what conversations and forks have left behind.
//!
//! A sandbox is in use if a process holds the lock of its conversation. The locks of unused sandboxes are held until they are
//! removed, so that no process resumes a conversation whose sandbox is being removed.

use std::sync::{Mutex, PoisonError};

use engine::sandbox::{SandboxSummary, sweep, sweep_snapshots};
use protocol::ConversationId;

use super::host::{At, Host};
use super::hosts::Hosts;
use super::name::Name;
use crate::cli::print;
use crate::compose::{self, Lock};
use crate::config::Overrides;
use crate::exit::Exit;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Removes the sandbox of every conversation that no process works on now: what a crash or a kill has left. The
conversation itself and its workspace stay; resumed, it gets a fresh sandbox. Those that were made by hand stay: `rm`
removes them. Images that forks have left which were killed half way go too. Prints the names of what it removed.")]
pub(super) struct PruneArguments {
    /// Print what would be removed, and remove nothing.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    at: At,
}

pub(super) async fn run(arguments: PruneArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let hosts = Hosts::open(&arguments.at, overrides).await?;
    let mut exit = Exit::Finished;
    for (host, _) in hosts.answering().await? {
        if !prune(host, arguments.dry_run).await? {
            exit = Exit::Failed;
        }
    }
    Ok(exit)
}

/// Prunes one runtime. Returns whether all unused sandboxes were removed.
async fn prune(host: &Host, dry_run: bool) -> anyhow::Result<bool> {
    let locks: Mutex<Vec<Lock>> = Mutex::default();
    let unused: Mutex<Vec<SandboxSummary>> = Mutex::default();
    let is_used = |placed: &SandboxSummary| {
        let Some(conversation) = &placed.conversation else { return compose::is_warm_in_use(placed) };
        let Ok(lock) = host.state_dir.lock(conversation) else { return true };
        locks.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
        unused.lock().unwrap_or_else(PoisonError::into_inner).push(placed.clone());
        dry_run
    };
    let removed = sweep(host.provider.as_ref(), &is_used).await?;
    let unused = unused.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut is_done = true;
    for placed in unused {
        if dry_run || removed.contains(&placed.sandbox) {
            if let Some(conversation) = placed.conversation.as_ref().filter(|_| !dry_run) {
                // The lock of the conversation is still held.
                host.state_dir.remove_empty_workspace(conversation);
            }
            print::line(&Name::of(&placed))?;
        } else {
            print::problem(&format!("{} could not be removed; --log-level warn says why", Name::of(&placed)));
            is_done = false;
        }
    }
    if !dry_run {
        let is_used = |conversation: &ConversationId| host.state_dir.is_locked(conversation);
        for image in sweep_snapshots(host.provider.as_ref(), &is_used).await? {
            print::line(&image)?;
        }
    }
    Ok(is_done)
}
