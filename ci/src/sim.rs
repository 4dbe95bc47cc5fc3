//! Step `sim`: whole conversations by chance, each decided by its seed; the same seeds every time.
//!
//! `orchestrator/engine/tests/simulation` says what happens in one and which laws hold.

use anyhow::Result;

use crate::command;
use crate::step::Notes;
use crate::workspace::Workspace;

/// As many as take about two minutes.
const SEEDS: u64 = 3000;

const VARIABLE: &str = "GLOVEBOX_SIM_SEEDS";

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    // More of them, where more are wanted.
    let seeds = std::env::var(VARIABLE).unwrap_or_else(|_| SEEDS.to_string());
    let mut cargo = workspace.cargo();
    cargo.args(["test", "--quiet", "--locked", "--package", "engine", "--test", "simulation"]);
    cargo.env(VARIABLE, &seeds);
    command::capture(&mut cargo, "simulating conversations")?;
    Ok(vec![format!("seeds: {seeds}")])
}
