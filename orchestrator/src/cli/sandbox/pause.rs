//! `glovebox sandbox pause` and `glovebox sandbox resume`.

use super::host::SomeSandboxes;
use super::hosts::Hosts;
use crate::config::Overrides;
use crate::exit::Exit;

pub(super) async fn pause(arguments: SomeSandboxes, overrides: &Overrides) -> anyhow::Result<Exit> {
    let hosts = Hosts::open(&arguments.at, overrides).await?;
    for name in &arguments.names {
        let (host, placed) = hosts.existing(name).await?;
        host.provider.pause(&placed.sandbox).await?;
    }
    Ok(Exit::Finished)
}

pub(super) async fn resume(arguments: SomeSandboxes, overrides: &Overrides) -> anyhow::Result<Exit> {
    let hosts = Hosts::open(&arguments.at, overrides).await?;
    for name in &arguments.names {
        let (host, placed) = hosts.existing(name).await?;
        host.provider.resume(&placed.sandbox).await?;
    }
    Ok(Exit::Finished)
}
