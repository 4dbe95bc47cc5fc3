//! `glovebox sandbox`: sandboxes made by hand, and a way into all that there are. One file a command.

mod cp;
mod create;
mod exec;
mod fork;
mod host;
mod hosts;
mod logs;
mod ls;
mod name;
mod pause;
mod port;
mod prune;
mod rm;
mod shell;
mod snapshot;
mod stats;
mod terminal_mode;

use std::time::Duration;

use crate::compose::{self, StateDir};
use crate::config::{Config, Overrides};
use crate::exit::Exit;
use host::Host;
use hosts::Hosts;
use name::Name;

#[derive(Debug, clap::Args)]
pub(super) struct SandboxArguments {
    #[command(subcommand)]
    command: SandboxCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SandboxCommand {
    /// Place a sandbox that stays until it is removed; prints its name.
    Create(create::CreateArguments),
    /// List the sandboxes that there are, those of conversations too.
    Ls(ls::LsArguments),
    /// Run a program in a sandbox; its input, output and exit code are this command's.
    Exec(exec::ExecArguments),
    /// Open a shell in a sandbox on this terminal.
    Shell(shell::ShellArguments),
    /// Copy files and folders into a sandbox or out of it.
    Cp(cp::CpArguments),
    /// Forward ports of this machine to ports inside, or list those that are listened on inside.
    Port(port::PortArguments),
    /// Print the end of what a sandbox's server wrote.
    Logs(host::OneSandbox),
    /// Show what sandboxes use.
    Stats(stats::StatsArguments),
    /// Freeze what runs in sandboxes.
    Pause(host::SomeSandboxes),
    /// Let frozen sandboxes go on.
    Resume(host::SomeSandboxes),
    /// Make an image of a sandbox's files; prints its name.
    Snapshot(snapshot::SnapshotArguments),
    /// Place a sandbox with the files of another, as they are now; prints its name.
    Fork(fork::ForkArguments),
    /// Remove sandboxes and everything in them.
    Rm(rm::RmArguments),
    /// Remove the sandboxes that conversations have left behind.
    Prune(prune::PruneArguments),
}

/// What those sandboxes are called whose runtimes answer within this time.
pub(super) async fn names(
    config: Config,
    state_dir: StateDir,
    is_runtime_chosen: bool,
    patience: Duration,
) -> anyhow::Result<Vec<String>> {
    let provider = compose::provider(&config, &state_dir)?;
    let host = Host { config, state_dir, provider };
    let hosts = if is_runtime_chosen { Hosts::alone(host) } else { Hosts::with_others(host) };
    let (answered, _) = hosts.ask(patience).await;
    Ok(answered.iter().flat_map(|(_, all)| all.iter().map(Name::of)).collect())
}

pub(super) async fn run(arguments: SandboxArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    match arguments.command {
        SandboxCommand::Create(arguments) => create::run(arguments, overrides).await,
        SandboxCommand::Ls(arguments) => ls::run(arguments, overrides).await,
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
