//! `glovebox store`: migrates, backs up, restores and exports the store of conversations and users.

mod backup;
mod copy;
mod export;
mod migrate;
mod progress;
mod report;
mod restore;
mod stop;

use super::{StoreUse, load_config_to_read, open_state_of_server};
use crate::compose::StateDir;
use crate::config::{Config, Overrides};
use crate::exit::Exit;
use stop::StopSignal;

#[derive(Debug, clap::Subcommand)]
pub(super) enum StoreCommand {
    /// Migrate the tables to this version, or copy everything to another store.
    Migrate(migrate::MigrateArguments),
    /// Write a backup of the whole store to a file.
    Backup(backup::BackupArguments),
    /// Restore a backup into the store.
    Restore(restore::RestoreArguments),
    /// Write conversations as OpenHands V0 stores them.
    Export(export::ExportArguments),
}

pub(super) async fn run(command: StoreCommand, overrides: &Overrides) -> anyhow::Result<Exit> {
    let mut config = load_config_to_read(overrides)?;
    let state_dir = open_state_of_server(&mut config, overrides, StoreUse::ChangeOrCopy)?;
    let stop = StopSignal::listen()?;
    match run_in(command, &config, &state_dir, &stop).await {
        Err(_) if stop.is_stopped() => Ok(Exit::Interrupted),
        exit => exit,
    }
}

async fn run_in(
    command: StoreCommand,
    config: &Config,
    state_dir: &StateDir,
    stop: &StopSignal,
) -> anyhow::Result<Exit> {
    match command {
        StoreCommand::Migrate(arguments) => migrate::run(arguments, config, state_dir, stop).await,
        StoreCommand::Backup(arguments) => backup::run(arguments, config, state_dir, stop).await,
        StoreCommand::Restore(arguments) => restore::run(arguments, config, state_dir, stop).await,
        StoreCommand::Export(arguments) => export::run(arguments, config, state_dir, stop).await,
    }
}
