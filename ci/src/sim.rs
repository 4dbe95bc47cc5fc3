//! Step `sim`: simulates whole conversations, each determined by its seed, with the same seeds
//! every time.
//!
//! `orchestrator/llm/tests/simulation` describes the simulation and its laws.

use anyhow::Result;

use crate::command;
use crate::step::Notes;
use crate::workspace::Workspace;

/// Number of seeds. They take about three minutes.
const DEFAULT_SEED_COUNT: u64 = 3000;

const VARIABLE: &str = "GLOVEBOX_SIM_SEEDS";

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    let seeds = std::env::var(VARIABLE).unwrap_or_else(|_| DEFAULT_SEED_COUNT.to_string());
    let mut cargo = workspace.cargo();
    workspace.build()?;
    cargo.args([
        "test",
        "--quiet",
        "--locked",
        "--workspace",
        "--test",
        "simulation",
    ]);
    cargo.env(VARIABLE, &seeds);
    command::capture(&mut cargo, "simulating conversations")?;
    Ok(vec![format!("seeds: {seeds}")])
}
