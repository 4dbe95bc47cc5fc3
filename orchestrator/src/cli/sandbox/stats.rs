//! `glovebox sandbox stats`.

use clap_complete::engine::ArgValueCompleter;
use engine::sandbox::{ResourceUsage, SandboxState, SandboxSummary};
use indicatif::BinaryBytes;
use serde_json::json;

use super::host::{At, Host};
use super::hosts::Hosts;
use super::name::Name;
use crate::cli::{candidates, print, table};
use crate::config::Overrides;
use crate::exit::Exit;

#[derive(Debug, clap::Args)]
pub(super) struct StatsArguments {
    /// The sandboxes; without one, all that run.
    #[arg(value_name = "NAME")]
    #[arg(add = ArgValueCompleter::new(candidates::sandboxes))]
    names: Vec<Name>,

    /// Print one JSON array.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: At,
}

pub(super) async fn run(arguments: StatsArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let hosts = Hosts::open(&arguments.at, overrides).await?;
    let mut used: Vec<(String, ResourceUsage)> = Vec::new();
    let (chosen, mut exit) = choose(&hosts, &arguments.names).await?;
    for (host, placed) in chosen {
        let measured = async { host.provider.monitoring()?.usage(&placed.sandbox).await };
        match measured.await {
            Ok(usage) => used.push((Name::of(&placed), usage)),
            // It was not asked for by its name.
            Err(error) if arguments.names.is_empty() => {
                print::warning(&format!("{} is left out: {error}", Name::of(&placed)));
            }
            Err(error) => {
                print::problem(&format!("{}: {error}", Name::of(&placed)));
                exit = Exit::Failed;
            }
        }
    }
    if arguments.json {
        let used: Vec<_> = used
            .iter()
            .map(|(name, usage)| {
                json!({
                    "name": name,
                    "cpus": usage.cpus,
                    "memory_bytes": usage.memory_bytes,
                    "memory_limit_bytes": usage.memory_limit_bytes,
                    "pids": usage.pids,
                })
            })
            .collect();
        print::line(&serde_json::to_string(&used)?)?;
    } else {
        let rows: Vec<_> = used.into_iter().map(row).collect();
        table::print(["NAME", "CPUS", "MEMORY", "LIMIT", "PIDS"], &rows)?;
    }
    Ok(exit)
}

async fn choose<'a>(
    hosts: &'a Hosts,
    names: &[Name],
) -> anyhow::Result<(Vec<(&'a Host, SandboxSummary)>, Exit)> {
    if names.is_empty() {
        let mut all = hosts.list().await?;
        all.retain(|(_, placed)| placed.condition != SandboxState::Ended);
        return Ok((all, Exit::Finished));
    }
    hosts.existing_of(names).await
}

fn row((name, usage): (String, ResourceUsage)) -> [String; 5] {
    let unknown = || "-".to_owned();
    [
        name,
        format!("{:.2}", usage.cpus),
        BinaryBytes(usage.memory_bytes).to_string(),
        usage.memory_limit_bytes.map_or_else(unknown, |bytes| BinaryBytes(bytes).to_string()),
        usage.pids.map_or_else(unknown, |pids| pids.to_string()),
    ]
}
