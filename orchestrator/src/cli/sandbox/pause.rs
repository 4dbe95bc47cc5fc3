//! `glovebox sandbox pause` and `glovebox sandbox resume`.

use super::host::SomeSandboxes;
use super::hosts::Hosts;
use super::name::Name;
use crate::cli::print;
use crate::config::Overrides;
use crate::exit::Exit;

pub(super) async fn pause(arguments: SomeSandboxes, overrides: &Overrides) -> anyhow::Result<Exit> {
    change(arguments, overrides, true).await
}

pub(super) async fn resume(arguments: SomeSandboxes, overrides: &Overrides) -> anyhow::Result<Exit> {
    change(arguments, overrides, false).await
}

/// Pauses or resumes all sandboxes, also if one of them fails.
async fn change(arguments: SomeSandboxes, overrides: &Overrides, pauses: bool) -> anyhow::Result<Exit> {
    let hosts = Hosts::open(&arguments.at, overrides).await?;
    let (existing, mut exit) = hosts.existing_of(&arguments.names).await?;
    for (host, placed) in existing {
        let changed = async {
            match pauses {
                true => host.provider.pausing()?.pause(&placed.sandbox).await,
                false => host.provider.pausing()?.resume(&placed.sandbox).await,
            }
        };
        if let Err(error) = changed.await {
            print::problem(&format!("{}: {error:#}", Name::of(&placed)));
            exit = Exit::Failed;
        }
    }
    Ok(exit)
}
