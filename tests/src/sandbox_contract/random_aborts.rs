//! A case that aborts starts at random moments. An aborted start, or a sandbox that is removed immediately, leaves nothing.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use protocol::SandboxId;
use tokio::time::timeout;

use super::faults::FaultInjection;
use super::spec;

/// Variable with the number of starts, such as `GLOVEBOX_TEST_ABORTS=1000`.
const COUNT_VARIABLE: &str = "GLOVEBOX_TEST_ABORTS";
/// Variable with the seed. A failure prints its seed, which reproduces the sequence.
const SEED_VARIABLE: &str = "GLOVEBOX_TEST_SEED";

const DEFAULT_COUNT: u32 = 24;
const CONCURRENCY: u32 = 4;

/// A pseudo-random number generator (xorshift64*), deterministic for a seed.
struct RandomMoments(u64);

impl RandomMoments {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % below.max(1)
    }
}

fn number(variable: &str) -> Option<u64> {
    Some(std::env::var(variable).ok()?.parse().unwrap())
}

/// Starts are aborted before, during and after the creation of the sandbox.
pub async fn starts_aborted_at_random_moments_leave_nothing(backend: &dyn FaultInjection) {
    let count = number(COUNT_VARIABLE).map_or(DEFAULT_COUNT, |count| count.try_into().unwrap());
    let seed = number(SEED_VARIABLE).unwrap_or(u64::from(std::process::id()) * 2_654_435_761 + 1);
    println!("{COUNT_VARIABLE}={count} {SEED_VARIABLE}={seed}");
    let longest = measure_start(backend).await * CONCURRENCY;
    let mut moments = RandomMoments(seed);
    let waits: Vec<Duration> =
        (0..count).map(|_| Duration::from_micros(moments.next(longest.as_micros() as u64))).collect();
    let (next, finished) = (AtomicU32::new(0), AtomicU32::new(0));
    let worker = || async {
        let provider = backend.provider();
        let mut placed = Vec::new();
        while let Some(wait) = waits.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            let spec = spec(backend);
            placed.push(format!("glovebox-{}", spec.conversation).parse::<SandboxId>().unwrap());
            if let Ok(started) = timeout(*wait, provider.create(&spec, &|_| {})).await {
                let sandbox = started.unwrap();
                finished.fetch_add(1, Ordering::Relaxed);
                provider.destroy(&sandbox.lease().sandbox_id).await.unwrap();
            }
            // A backlog of removals would delay later starts until none completes.
            provider.wait_for_cleanup().await;
        }
        placed
    };
    let workers = tokio::join!(worker(), worker(), worker(), worker());
    let finished = finished.into_inner();
    println!("{finished} of {count} starts completed before they were aborted");
    assert!(finished > 0 && finished < count, "all or none were aborted: {finished} of {count} completed");
    let sandboxes = [workers.0, workers.1, workers.2, workers.3].concat();
    assert_eq!(sandboxes.len(), count as usize);
    for sandbox in &sandboxes {
        assert_eq!(backend.remains(sandbox).await, Vec::<String>::new());
    }
    let listed = backend.provider().list().await.unwrap();
    assert!(listed.iter().all(|placed| !sandboxes.contains(&placed.sandbox)), "{listed:?}");
}

async fn measure_start(backend: &dyn FaultInjection) -> Duration {
    let mut times = Vec::new();
    for _ in 0..3 {
        let started = Instant::now();
        let sandbox = super::create_sandbox(backend).await;
        times.push(started.elapsed());
        super::remove(backend, sandbox).await;
    }
    times.into_iter().min().unwrap()
}
