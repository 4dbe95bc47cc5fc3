//! Resource usage of this process, in V0's format. Values that the system does not provide are 0.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use procfs::Current as _;
use procfs::process::{Process, Stat};
use rustix::fs::statvfs;
use serde::Serialize;

/// Sizes are in bytes, percentages are between 0 and 100. The percentage of the processor is that
/// of one core.
#[derive(Debug, Default, Clone, Serialize)]
pub(crate) struct Resources {
    cpu_percent: f64,
    memory: MemoryUsage,
    disk: DiskUsage,
    io: IoUsage,
}

#[derive(Debug, Default, Clone, Serialize)]
struct MemoryUsage {
    rss: u64,
    vms: u64,
    /// Share of the machine's memory.
    percent: f64,
}

/// Usage of the root file system.
#[derive(Debug, Default, Clone, Serialize)]
struct DiskUsage {
    total: u64,
    used: u64,
    free: u64,
    percent: f64,
}

#[derive(Debug, Default, Clone, Serialize)]
struct IoUsage {
    read_bytes: u64,
    write_bytes: u64,
}

/// Measures the usage of the processor since the last reading.
#[derive(Debug, Clone)]
pub(crate) struct ResourceMeter {
    /// The last reading, and the time of the processor until then.
    last: Arc<Mutex<(Instant, Duration)>>,
}

impl ResourceMeter {
    /// The first reading covers the time since this call.
    pub(crate) fn new() -> Self {
        let used = own_stat()
            .map(|stat| processor_time(&stat))
            .unwrap_or_default();
        Self {
            last: Arc::new(Mutex::new((Instant::now(), used))),
        }
    }

    /// Reads the usage. Blocks on the file system.
    pub(crate) fn read(&self) -> Resources {
        let Some(stat) = own_stat() else {
            return Resources::default();
        };
        Resources {
            cpu_percent: self.cpu_percent(processor_time(&stat)),
            memory: memory(&stat),
            disk: disk().unwrap_or_default(),
            io: io().unwrap_or_default(),
        }
    }

    fn cpu_percent(&self, used: Duration) -> f64 {
        let now = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (last_time, last_used) = std::mem::replace(&mut *last, (now, used));
        percent(
            used.saturating_sub(last_used).as_secs_f64(),
            now.duration_since(last_time).as_secs_f64(),
        )
    }
}

fn own_stat() -> Option<Stat> {
    Process::myself().and_then(|process| process.stat()).ok()
}

fn processor_time(stat: &Stat) -> Duration {
    let ticks = stat.utime.saturating_add(stat.stime);
    Duration::from_millis(ticks.saturating_mul(1000) / procfs::ticks_per_second().max(1))
}

fn memory(stat: &Stat) -> MemoryUsage {
    let machine = procfs::Meminfo::current()
        .map(|machine| machine.mem_total)
        .unwrap_or_default();
    let rss = stat.rss.saturating_mul(procfs::page_size());
    MemoryUsage {
        rss,
        vms: stat.vsize,
        percent: percent(rss as f64, machine as f64),
    }
}

fn io() -> Option<IoUsage> {
    let usage = Process::myself().and_then(|process| process.io()).ok()?;
    Some(IoUsage {
        read_bytes: usage.read_bytes,
        write_bytes: usage.write_bytes,
    })
}

/// Counts like `df`: blocks that are reserved for root are neither used nor free.
fn disk() -> Option<DiskUsage> {
    let stats = statvfs("/").ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(stats.f_frsize);
    let used = bytes(stats.f_blocks.saturating_sub(stats.f_bfree));
    let free = bytes(stats.f_bavail);
    let percent = percent(used as f64, used.saturating_add(free) as f64);
    Some(DiskUsage {
        total: bytes(stats.f_blocks),
        used,
        free,
        percent,
    })
}

/// Returns a percentage with one decimal. 0 of nothing.
fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        (part / whole * 1000.0).round() / 10.0
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_this_process_is_measured() {
        let meter = ResourceMeter::new();
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(200) {
            std::hint::spin_loop();
        }
        let Resources {
            cpu_percent,
            memory,
            disk,
            ..
        } = meter.read();
        assert!(cpu_percent > 10.0, "{cpu_percent}");
        assert!(
            memory.rss > 1 << 20 && memory.vms > memory.rss && memory.percent < 100.0,
            "{memory:?}"
        );
        assert!(
            disk.total >= disk.used + disk.free && disk.percent <= 100.0 && disk.total > 0,
            "{disk:?}"
        );
        assert_eq!((percent(1.0, 3.0), percent(1.0, 0.0)), (33.3, 0.0));
    }
}
