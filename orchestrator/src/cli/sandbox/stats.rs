//! `glovebox sandbox stats`.

use clap_complete::engine::ArgValueCompleter;
use engine::sandbox::{ResourceUsage, SandboxState};
use futures_util::{StreamExt as _, stream};
use indicatif::BinaryBytes;
use serde_json::json;

use super::arguments::RuntimeChoice;
use super::name::{SandboxName, display_name};
use super::runtimes::SandboxRuntimes;
use crate::cli::{candidates, print, table};
use crate::config::Overrides;
use crate::exit::Exit;

/// Maximum number of sandboxes that are measured at a time. Engines take a second for each.
const MAX_CONCURRENT: usize = 16;

#[derive(Debug, clap::Args)]
pub(super) struct StatsArguments {
    /// Names of the sandboxes. By default, all running ones.
    #[arg(value_name = "NAME")]
    #[arg(add = ArgValueCompleter::new(candidates::sandboxes))]
    names: Vec<SandboxName>,

    /// Print one JSON array.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    runtime: RuntimeChoice,
}

pub(super) async fn run(arguments: StatsArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let runtimes = SandboxRuntimes::open(&arguments.runtime, overrides).await?;
    let mut used: Vec<(String, ResourceUsage)> = Vec::new();
    let (sandboxes, mut exit) = match arguments.names.is_empty() {
        true => {
            runtimes
                .list(|summary| summary.condition != SandboxState::Ended)
                .await?
        }
        false => runtimes.find_all(&arguments.names).await?,
    };
    let measuring = stream::iter(sandboxes).map(|(runtime, summary)| async move {
        let usage = async { runtime.provider.monitoring()?.usage(&summary.sandbox).await };
        (usage.await, summary)
    });
    let measuring = measuring.buffered(MAX_CONCURRENT).collect::<Vec<_>>();
    let measured = print::with_notice("the usage of the sandboxes", measuring).await;
    for (usage, summary) in measured {
        match usage {
            Ok(usage) => used.push((display_name(&summary), usage)),
            Err(error) if arguments.names.is_empty() => {
                print::warning(&format!("{} is left out: {error}", display_name(&summary)));
            }
            Err(error) => {
                print::error(&format!("{}: {error}", display_name(&summary)));
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

fn row((name, usage): (String, ResourceUsage)) -> [String; 5] {
    let unknown = || "-".to_owned();
    [
        name,
        format!("{:.2}", usage.cpus),
        BinaryBytes(usage.memory_bytes).to_string(),
        usage
            .memory_limit_bytes
            .map_or_else(unknown, |bytes| BinaryBytes(bytes).to_string()),
        usage.pids.map_or_else(unknown, |pids| pids.to_string()),
    ]
}
