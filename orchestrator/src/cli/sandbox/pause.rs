//! `glovebox sandbox pause` and `glovebox sandbox resume`.

use super::host::{Host, SomeSandboxes};
use crate::config::Overrides;
use crate::exit::Exit;

pub(super) async fn pause(arguments: SomeSandboxes, overrides: &Overrides) -> anyhow::Result<Exit> {
    let host = Host::open(&arguments.at, overrides).await?;
    for name in &arguments.names {
        host.provider.pause(&host.existing(name).await?.sandbox).await?;
    }
    Ok(Exit::Finished)
}

pub(super) async fn resume(arguments: SomeSandboxes, overrides: &Overrides) -> anyhow::Result<Exit> {
    let host = Host::open(&arguments.at, overrides).await?;
    for name in &arguments.names {
        host.provider.resume(&host.existing(name).await?.sandbox).await?;
    }
    Ok(Exit::Finished)
}
