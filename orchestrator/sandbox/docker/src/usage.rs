//! Resource usage of a container, computed from two samples.

use std::time::Duration;

use bollard::models::ContainerStatsResponse;
use bollard::query_parameters::StatsOptionsBuilder;
use engine::sandbox::{ResourceUsage, SandboxError};
use futures_util::StreamExt;
use tokio::time::{Instant, sleep};

use super::engine::Engine;
use super::lifecycle::refused;

/// Time between the samples. Shorter ones would make the CPU usage inaccurate.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(200);

impl Engine {
    /// Measures the current usage of a container. [`SandboxError::Lost`] if it has stopped or does
    /// not exist.
    pub(super) async fn usage(&self, container: &str) -> Result<ResourceUsage, SandboxError> {
        let (first, started) = (self.stats(container).await?, Instant::now());
        sleep(SAMPLE_INTERVAL).await;
        let (last, took) = (self.stats(container).await?, started.elapsed());
        usage(&first, &last, took).ok_or_else(|| SandboxError::Lost {
            detail: format!("nothing runs in the container {container}"),
        })
    }

    async fn stats(&self, container: &str) -> Result<ContainerStatsResponse, SandboxError> {
        let options = StatsOptionsBuilder::default()
            .stream(false)
            .one_shot(true)
            .build();
        let mut answers = Box::pin(self.docker.stats(container, Some(options)));
        match answers.next().await {
            Some(Ok(stats)) => Ok(stats),
            Some(Err(error)) => Err(refused("measure", container, &error)),
            None => Err(SandboxError::Lost {
                detail: format!("nothing is known of the container {container}"),
            }),
        }
    }
}

/// Computes the usage. `None` if no memory is in use, which means that the container has stopped.
fn usage(
    first: &ContainerStatsResponse,
    last: &ContainerStatsResponse,
    took: Duration,
) -> Option<ResourceUsage> {
    let memory = last.memory_stats.as_ref()?;
    let used = memory.usage?;
    // Reclaimable page cache, in the names of cgroup v2 and v1.
    let of_files = memory.stats.as_ref().and_then(|stats| {
        stats
            .get("inactive_file")
            .filter(|_| !stats.contains_key("total_inactive_file"))
            .or(stats.get("total_inactive_file"))
    });
    let busy = busy_nanoseconds(last)?.saturating_sub(busy_nanoseconds(first)?);
    Some(ResourceUsage {
        cpus: Duration::from_nanos(busy).as_secs_f64() / took.as_secs_f64(),
        memory_bytes: used.saturating_sub(of_files.copied().unwrap_or_default()),
        memory_limit_bytes: memory.limit,
        pids: last.pids_stats.as_ref().and_then(|pids| pids.current),
    })
}

fn busy_nanoseconds(stats: &ContainerStatsResponse) -> Option<u64> {
    stats.cpu_stats.as_ref()?.cpu_usage.as_ref()?.total_usage
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::usage;

    #[test]
    fn usage_is_the_difference_of_two_samples() {
        let look = |busy: u64| {
            serde_json::from_value(serde_json::json!({
                "cpu_stats": {"cpu_usage": {"total_usage": busy}},
                "memory_stats": {"usage": 1000, "limit": 5000, "stats": {"total_inactive_file": 300, "inactive_file": 1}},
                "pids_stats": {"current": 7},
            }))
            .unwrap()
        };
        let usage = usage(
            &look(1_000_000_000),
            &look(1_300_000_000),
            Duration::from_millis(200),
        )
        .unwrap();
        assert!((usage.cpus - 1.5).abs() < 1e-9, "{}", usage.cpus);
        assert_eq!(
            (usage.memory_bytes, usage.memory_limit_bytes, usage.pids),
            (700, Some(5000), Some(7))
        );
    }

    #[test]
    fn usage_is_none_when_the_container_has_stopped() {
        let ended = serde_json::from_str(
            r#"{"cpu_stats":{"cpu_usage":{"total_usage":0}},"memory_stats":{}}"#,
        )
        .unwrap();
        assert_eq!(usage(&ended, &ended, Duration::from_millis(200)), None);
    }
}
