//! `glovebox sandbox`: creates sandboxes without conversations, and works in all sandboxes. One
//! file per command.

mod arguments;
mod cp;
mod create;
mod exec;
mod fork;
mod inspect;
mod logs;
mod ls;
mod name;
mod pause;
mod port;
mod prune;
mod rm;
mod runtime;
mod runtimes;
mod shell;
mod snapshot;
mod stats;
mod terminal_mode;

use std::time::Duration;

use crate::compose::{self, StateDir};
use crate::config::{Config, Overrides};
use crate::exit::Exit;
use arguments::{SandboxChoice, SandboxesChoice};
use name::display_name;
use runtime::SandboxRuntime;
use runtimes::SandboxRuntimes;

#[derive(Debug, clap::Args)]
pub(super) struct SandboxArguments {
    #[command(subcommand)]
    command: SandboxCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SandboxCommand {
    /// Create a sandbox that exists until you remove it or its time is over, and print its name.
    Create(create::CreateArguments),
    /// List all sandboxes, including those of conversations.
    Ls(ls::LsArguments),
    /// Show what is known about a sandbox: its state, settings, limits and ports.
    Inspect(inspect::InspectArguments),
    /// Run a program in a sandbox, with the standard streams and the exit code of this command.
    Exec(exec::ExecArguments),
    /// Open a shell in a sandbox on this terminal.
    Shell(shell::ShellArguments),
    /// Copy files and folders to or from a sandbox.
    Cp(cp::CpArguments),
    /// Forward ports of this machine to ports in a sandbox, or list ports with a listener.
    Port(port::PortArguments),
    /// Print the last log lines of a sandbox's server.
    Logs(SandboxChoice),
    /// Show the CPU, memory and process usage of sandboxes.
    Stats(stats::StatsArguments),
    /// Pause all processes of sandboxes.
    Pause(SandboxesChoice),
    /// Resume paused sandboxes.
    Resume(SandboxesChoice),
    /// Create an image from a sandbox's files, and print its name.
    Snapshot(snapshot::SnapshotArguments),
    /// Create a sandbox with a copy of the files of another one, and print its name.
    Fork(fork::ForkArguments),
    /// Remove sandboxes with their files.
    Rm(rm::RmArguments),
    /// Remove the sandboxes of conversations that no process runs.
    Prune(prune::PruneArguments),
}

/// Names of the sandboxes of all runtimes that respond within this time.
pub(super) async fn names(
    config: Config,
    state_dir: StateDir,
    is_runtime_chosen: bool,
    list_timeout: Duration,
) -> anyhow::Result<Vec<String>> {
    let provider = compose::provider(&config, &state_dir)?;
    let runtime = SandboxRuntime {
        config,
        state_dir,
        provider,
    };
    let runtimes = SandboxRuntimes::new(runtime, is_runtime_chosen);
    let (lists, _) = runtimes.list_within(list_timeout).await;
    Ok(lists
        .iter()
        .flat_map(|(_, sandboxes)| sandboxes.iter().map(display_name))
        .collect())
}

pub(super) async fn run(
    arguments: SandboxArguments,
    overrides: &Overrides,
) -> anyhow::Result<Exit> {
    match arguments.command {
        SandboxCommand::Create(arguments) => create::run(arguments, overrides).await,
        SandboxCommand::Ls(arguments) => ls::run(arguments, overrides).await,
        SandboxCommand::Inspect(arguments) => inspect::run(arguments, overrides).await,
        SandboxCommand::Exec(arguments) => exec::run(arguments, overrides).await,
        SandboxCommand::Shell(arguments) => shell::run(arguments, overrides).await,
        SandboxCommand::Cp(arguments) => cp::run(arguments, overrides).await,
        SandboxCommand::Port(arguments) => port::run(arguments, overrides).await,
        SandboxCommand::Logs(arguments) => logs::run(arguments, overrides).await,
        SandboxCommand::Stats(arguments) => stats::run(arguments, overrides).await,
        SandboxCommand::Pause(arguments) => pause::pause(arguments, overrides).await,
        SandboxCommand::Resume(arguments) => pause::resume(arguments, overrides).await,
        SandboxCommand::Snapshot(arguments) => snapshot::run(arguments, overrides).await,
        SandboxCommand::Fork(arguments) => fork::run(arguments, overrides).await,
        SandboxCommand::Rm(arguments) => rm::run(arguments, overrides).await,
        SandboxCommand::Prune(arguments) => prune::run(arguments, overrides).await,
    }
}
