//! Deterministic simulation of whole conversations with models behind the wires of strict
//! providers, a fake sandbox and a paused clock. Users send messages, pause, stop and confirm at
//! any moment, models answer oddly, providers fail, histories are condensed, sandboxes are lost or
//! cannot be created, and the process is killed before or after any append; the next one continues
//! with another model. The seed determines the run.
//!
//! `GLOVEBOX_SIM_SEEDS` sets the number of seeds (200). `GLOVEBOX_SIM_SEED` runs a single seed and
//! prints its events.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr
)] // a test that cannot continue panics

mod model;
mod provider;
mod servers;
mod store;
mod world;

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use world::{RunResult, Simulation};

const SEEDS: u64 = 200;

#[test]
fn every_seed_satisfies_the_invariants() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().expect(name))
    };
    if let Some(seed) = number("GLOVEBOX_SIM_SEED") {
        return drop(run(seed, true));
    }
    let seeds = number("GLOVEBOX_SIM_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let returned: Mutex<BTreeMap<&str, usize>> = Mutex::default();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    let ran = catch_unwind(|| run(seed, false));
                    let Ok(ran) = ran else {
                        panic!(
                            "seed {seed} violates an invariant; run with GLOVEBOX_SIM_SEED={seed} for details"
                        );
                    };
                    let mut returned = returned.lock().unwrap();
                    ran.returned_reasoning
                        .into_iter()
                        .for_each(|(model, count)| *returned.entry(model).or_default() += count);
                }
            });
        }
    });
    let returned = returned.into_inner().unwrap();
    for model in [
        "anthropic/claude-fable-5-2",
        "openai/responses/gpt-6-luna",
        "deepseek/deepseek-v4",
        "gemini/gemini-3.1-pro",
    ] {
        assert!(
            seeds < SEEDS || returned[model] > 0,
            "no reasoning goes back to {model}: {returned:?}"
        );
    }
}

#[test]
fn same_seed_is_the_same_run() {
    for seed in 0..20 {
        assert_eq!(run(seed, false), run(seed, false), "seed {seed}");
    }
}

fn run(seed: u64, is_verbose: bool) -> RunResult {
    fastrand::seed(seed); // the jitter of retries
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(Simulation::new(seed, is_verbose).run())
}
