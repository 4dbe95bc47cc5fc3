//! `glovebox sandbox logs`.

use super::arguments::SandboxChoice;
use crate::cli::print;
use crate::compose;
use crate::config::Overrides;
use crate::exit::Exit;

pub(super) async fn run(sandbox: SandboxChoice, overrides: &Overrides) -> anyhow::Result<Exit> {
    let (runtime, summary) = sandbox.find(overrides).await?;
    let logs = runtime
        .provider
        .monitoring()?
        .logs(&summary.sandbox)
        .await?;
    print::command_output(compose::redactor(&runtime.config)?.text(&logs).as_bytes())?;
    Ok(Exit::Finished)
}
