//! Sandboxes in containers: creation up to the first result, compared with `docker run`, the warm
//! pool, and a round trip.
//!
//! Creation and `docker run` are measured in turns, so that other load affects them equally.
//! Skipped without an engine.

use std::time::{Duration, Instant};

use engine::sandbox::{ResourceLimits, Sandbox, SandboxProvider, SandboxSpec, SandboxState};
use sandbox_docker::{DockerConfig, DockerProvider, Pool};
use tests::sandbox_contract::docker::DockerBackend;
use tests::sandbox_contract::{Backend, id, run, spec};
use tokio::process::Command;
use tokio::time::sleep;

use super::figure::{Figure, quantile_ms};
use super::report::BenchmarkReport;

const ROUNDS: usize = 15;
const ROUND_TRIPS: usize = 500;
const POOL_SIZE: usize = 4;
/// How often the pool is emptied and refilled.
const POOL_ROUNDS: usize = 3;

pub(crate) async fn measure(report: BenchmarkReport) {
    let (Some(backend), Some(remote)) = (DockerBackend::busybox(), DockerBackend::busybox()) else {
        return report.skip("docker", "no container engine");
    };
    let mounting = backend.provider();
    let uploading = remote.behind_tcp().await.provider();
    // Warms up what is queried only once, such as the engine's version.
    for provider in [&mounting, &uploading] {
        first_result(&**provider, &backend).await;
    }
    let (mut floor, mut mounted, mut uploaded) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..report.repetitions(ROUNDS) {
        floor.push(docker_run(&backend).await);
        mounted.push(first_result(&*mounting, &backend).await);
        uploaded.push(first_result(&*uploading, &backend).await);
    }
    let floor = quantile_ms(&mut floor, 0.5);
    let (mut created, mut answered) = warm_pool(&backend, report.repetitions(POOL_ROUNDS)).await;
    let mut trips = round_trips(&*mounting, &backend, report.repetitions(ROUND_TRIPS)).await;
    report.add_all([
        Figure::within(
            "docker, bind mount: create to first result (floor: docker run)",
            quantile_ms(&mut mounted, 0.5),
            "ms",
            floor,
            1.1,
        ),
        Figure::within(
            "docker, upload: create to first result (floor: docker run)",
            quantile_ms(&mut uploaded, 0.5),
            "ms",
            floor,
            1.1,
        ),
        Figure::below(
            "docker, warm pool: create to sandbox, p50",
            quantile_ms(&mut created, 0.5),
            "ms",
            30.0,
        ),
        Figure::plain(
            "docker, warm pool: create to first result, p50",
            quantile_ms(&mut answered, 0.5),
            "ms",
        ),
        Figure::below(
            "HTTP round trip over exec stdio, p50",
            quantile_ms(&mut trips, 0.5),
            "ms",
            1.0,
        ),
    ]);
}

async fn docker_run(backend: &DockerBackend) -> Duration {
    let image = backend.image().unwrap_or_default();
    let started = Instant::now();
    let status = Command::new("docker")
        .args(["run", "--rm", "--network", "none", &image, "true"])
        .status()
        .await;
    assert!(status.unwrap().success());
    started.elapsed()
}

/// Measures the time until a new sandbox has run its first command.
async fn first_result(provider: &dyn SandboxProvider, backend: &DockerBackend) -> Duration {
    let started = Instant::now();
    let sandbox = provider.create(&spec(backend), &|_| {}).await.unwrap();
    assert_eq!(run(&*sandbox, 1, "true").await.exit_code, 0);
    let took = started.elapsed();
    remove(provider, sandbox).await;
    took
}

async fn remove(provider: &dyn SandboxProvider, sandbox: Box<dyn Sandbox>) {
    let id = sandbox.lease().sandbox_id.clone();
    drop(sandbox);
    provider.destroy(&id).await.unwrap();
}

/// Measures sandboxes from the warm pool: the times until they are created, and until they have run
/// their first command.
async fn warm_pool(backend: &DockerBackend, rounds: usize) -> (Vec<Duration>, Vec<Duration>) {
    let provider = DockerProvider::new(DockerConfig {
        owner: format!("bench-{}", std::process::id()),
        pool: Some(Pool {
            size: POOL_SIZE,
            image: None,
            resources: ResourceLimits::default(),
        }),
        ..backend.config()
    });
    let (mut created, mut answered) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        wait_until_full(&provider).await;
        for _ in 0..POOL_SIZE {
            let spec = SandboxSpec {
                resources: ResourceLimits::default(),
                ..spec(backend)
            };
            let started = Instant::now();
            let sandbox = provider.create(&spec, &|_| {}).await.unwrap();
            let creation_time = started.elapsed();
            assert_eq!(run(&*sandbox, 1, "true").await.exit_code, 0);
            let answer_time = started.elapsed();
            if backend.is_from_pool(&sandbox.lease().sandbox_id).await {
                created.push(creation_time);
                answered.push(answer_time);
            }
            remove(&provider, sandbox).await;
        }
    }
    provider.shut_down().await;
    (created, answered)
}

async fn wait_until_full(provider: &DockerProvider) {
    let is_full = async || {
        let entries = provider.list().await.unwrap();
        entries
            .iter()
            .filter(|entry| entry.condition == SandboxState::Running)
            .count()
            == POOL_SIZE
    };
    while !is_full().await {
        sleep(Duration::from_millis(50)).await;
    }
    // The last entry runs but may not be connected yet. A sandbox that is created meanwhile does
    // not come from the pool.
    sleep(Duration::from_millis(300)).await;
}

/// Measures requests that do nothing: cancels of an unknown action.
async fn round_trips(
    provider: &dyn SandboxProvider,
    backend: &DockerBackend,
    count: usize,
) -> Vec<Duration> {
    let sandbox = provider.create(&spec(backend), &|_| {}).await.unwrap();
    let mut trips = Vec::new();
    for _ in 0..count {
        let started = Instant::now();
        sandbox.cancel(&id(1042)).await.unwrap();
        trips.push(started.elapsed());
    }
    remove(provider, sandbox).await;
    trips
}
