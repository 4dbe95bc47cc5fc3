//! A case that aborts starts at random moments. An aborted start, or a sandbox that is removed
//! immediately, leaves nothing.

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
const MAX_ROUNDS: u32 = 3;

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
    let mut longest = measure_start(backend).await * CONCURRENCY;
    let mut moments = RandomMoments(seed);
    let mut sandboxes = Vec::new();
    // The load can change between the measurement and the starts, so that all or none of them
    // complete in time.
    for round in 1.. {
        let waits: Vec<Duration> = (0..count)
            .map(|_| Duration::from_micros(moments.next(longest.as_micros() as u64)))
            .collect();
        let (started, completed_count) = abort_starts(backend, &waits).await;
        assert_eq!(started.len(), count as usize);
        sandboxes.extend(started);
        println!("{completed_count} of {count} starts completed before they were aborted");
        if (1..count).contains(&completed_count) {
            break;
        }
        assert!(
            round < MAX_ROUNDS,
            "all or none were aborted: {completed_count} of {count} completed"
        );
        longest = if completed_count == 0 {
            longest * 4
        } else {
            longest / 4
        };
    }
    for sandbox in &sandboxes {
        assert_eq!(backend.remains(sandbox).await, Vec::<String>::new());
    }
    let listed = backend.provider().list().await.unwrap();
    assert!(
        listed
            .iter()
            .all(|summary| !sandboxes.contains(&summary.sandbox)),
        "{listed:?}"
    );
}

/// Starts a sandbox per wait, and aborts it after the wait. Returns the ids, and how many starts
/// completed.
async fn abort_starts(backend: &dyn FaultInjection, waits: &[Duration]) -> (Vec<SandboxId>, u32) {
    let (next, completed_count) = (AtomicU32::new(0), AtomicU32::new(0));
    let worker = || async {
        let provider = backend.provider();
        let mut sandboxes = Vec::new();
        while let Some(wait) = waits.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            let spec = spec(backend);
            sandboxes.push(
                format!("glovebox-{}", spec.conversation)
                    .parse::<SandboxId>()
                    .unwrap(),
            );
            if let Ok(started) = timeout(*wait, provider.create(&spec, &|_| {})).await {
                let sandbox = started.unwrap();
                completed_count.fetch_add(1, Ordering::Relaxed);
                provider.destroy(&sandbox.lease().sandbox_id).await.unwrap();
            }
            // A backlog of removals would delay later starts until none completes.
            provider.wait_for_cleanup().await;
        }
        sandboxes
    };
    let sandboxes = tokio::join!(worker(), worker(), worker(), worker());
    (
        [sandboxes.0, sandboxes.1, sandboxes.2, sandboxes.3].concat(),
        completed_count.into_inner(),
    )
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
