//! Creation of a sandbox in a container up to its first result, compared with the engine's command line.
//!
//! Both are measured in turns, so that other load affects them equally. Skipped without an engine.

use std::time::{Duration, Instant};

use engine::sandbox::{ResourceLimits, Sandbox, SandboxProvider, SandboxSpec, SandboxState};
use sandbox::{DockerConfig, DockerProvider, Pool};
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
    let Some(backend) = DockerBackend::busybox() else {
        return report.skip("placement", "no container engine");
    };
    let mounting = backend.provider();
    let far = DockerBackend::busybox().map(DockerBackend::behind_tcp);
    let uploading = match far {
        Some(far) => far.await.provider(),
        None => return report.skip("placement", "no container engine"),
    };
    // Warms up what is queried only once, such as the engine's version.
    for provider in [&mounting, &uploading] {
        place(&**provider, &backend).await;
    }
    let (mut floor, mut mounted, mut uploaded) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..report.repetitions(ROUNDS) {
        floor.push(docker_run(&backend).await);
        mounted.push(place(&*mounting, &backend).await);
        uploaded.push(place(&*uploading, &backend).await);
    }
    let floor = quantile_ms(&mut floor, 0.5);
    let mut adopted = adopt(&backend, report.repetitions(POOL_ROUNDS)).await;
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
            quantile_ms(&mut adopted.0, 0.5),
            "ms",
            30.0,
        ),
        Figure::plain(
            "docker, warm pool: create to first result, p50",
            quantile_ms(&mut adopted.1, 0.5),
            "ms",
        ),
        Figure::below("HTTP round trip over exec stdio, p50", quantile_ms(&mut trips, 0.5), "ms", 1.0),
    ]);
}

async fn docker_run(backend: &DockerBackend) -> Duration {
    let image = backend.image().unwrap_or_default();
    let started = Instant::now();
    let status =
        Command::new("docker").args(["run", "--rm", "--network", "none", &image, "true"]).status().await;
    assert!(status.unwrap().success());
    started.elapsed()
}

async fn place(provider: &dyn SandboxProvider, backend: &DockerBackend) -> Duration {
    let started = Instant::now();
    let sandbox = provider.create(&spec(backend), &|_| {}).await.unwrap();
    assert_eq!(run(&*sandbox, 1, "true").await.exit_code, 0);
    let took = started.elapsed();
    remove(provider, sandbox).await;
    took
}

async fn remove(provider: &dyn SandboxProvider, sandbox: Box<dyn Sandbox>) {
    let name = sandbox.lease().sandbox_id.clone();
    drop(sandbox);
    provider.destroy(&name).await.unwrap();
}

/// Until there is a sandbox, and until its first command has ended.
async fn adopt(backend: &DockerBackend, rounds: usize) -> (Vec<Duration>, Vec<Duration>) {
    let provider = DockerProvider::new(DockerConfig {
        owner: format!("bench-{}", std::process::id()),
        pool: Some(Pool { size: POOL_SIZE, image: None }),
        ..backend.config()
    });
    let (mut placed, mut answered) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        wait_until_full(&provider).await;
        for _ in 0..POOL_SIZE {
            let spec = SandboxSpec { resources: ResourceLimits::default(), ..spec(backend) };
            let started = Instant::now();
            let sandbox = provider.create(&spec, &|_| {}).await.unwrap();
            let took = started.elapsed();
            assert_eq!(run(&*sandbox, 1, "true").await.exit_code, 0);
            let ended = started.elapsed();
            if backend.is_from_pool(&sandbox.lease().sandbox_id).await {
                placed.push(took);
                answered.push(ended);
            }
            remove(&provider, sandbox).await;
        }
    }
    provider.wait_for_cleanup().await;
    (placed, answered)
}

async fn wait_until_full(provider: &DockerProvider) {
    let is_full = async || {
        let placed = provider.list().await.unwrap();
        placed.iter().filter(|spare| spare.condition == SandboxState::Running).count() == POOL_SIZE
    };
    while !is_full().await {
        sleep(Duration::from_millis(50)).await;
    }
    // The last one runs and may not be connected yet; one that is not is not counted.
    sleep(Duration::from_millis(300)).await;
}

/// Cancels of what was never asked for: an answer of a few bytes.
async fn round_trips(provider: &dyn SandboxProvider, backend: &DockerBackend, count: usize) -> Vec<Duration> {
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
