//! Resource usage of this process, in V0's format. Values that the system does not provide are 0.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::statvfs::statvfs;
use nix::sys::time::TimeValLike as _;
use serde::Serialize;

/// The kernel's unit for disk I/O.
const BLOCK_BYTES: u64 = 512;

/// Sizes are in bytes, percentages are between 0 and 100. The CPU percentage is relative to one
/// core.
#[derive(Debug, Default, Serialize)]
pub(super) struct Resources {
    cpu_percent: f64,
    memory: MemoryUsage,
    disk: DiskUsage,
    io: IoUsage,
}

#[derive(Debug, Default, Serialize)]
struct MemoryUsage {
    rss: u64,
    vms: u64,
    /// Share of the machine's memory.
    percent: f64,
}

/// Usage of the root file system.
#[derive(Debug, Default, Serialize)]
struct DiskUsage {
    total: u64,
    used: u64,
    free: u64,
    percent: f64,
}

#[derive(Debug, Default, Serialize)]
struct IoUsage {
    read_bytes: u64,
    write_bytes: u64,
}

/// Measures the CPU usage since the last reading.
#[derive(Debug)]
pub(super) struct ResourceMeter {
    last: Mutex<(Instant, Duration)>,
}

impl ResourceMeter {
    /// The first reading covers the time since this call.
    pub(super) fn new() -> Self {
        Self {
            last: Mutex::new((Instant::now(), processor_time())),
        }
    }

    /// Blocks on the file system.
    pub(super) fn read(&self) -> Resources {
        Resources {
            cpu_percent: self.load(),
            memory: memory(),
            disk: disk().unwrap_or_default(),
            io: io(),
        }
    }

    fn load(&self) -> f64 {
        let now = (Instant::now(), processor_time());
        let last = std::mem::replace(
            &mut *self.last.lock().unwrap_or_else(PoisonError::into_inner),
            now,
        );
        let passed = now.0.duration_since(last.0).as_secs_f64();
        let used = now.1.saturating_sub(last.1).as_secs_f64();
        if passed > 0.0 {
            rounded(used / passed * 100.0)
        } else {
            0.0
        }
    }
}

/// Does not use `/proc/self`, parts of which are not readable for a process that is not dumpable.
fn processor_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return Duration::ZERO;
    };
    let microseconds = (usage.user_time() + usage.system_time()).num_microseconds();
    Duration::from_micros(u64::try_from(microseconds).unwrap_or_default())
}

fn io() -> IoUsage {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return IoUsage::default();
    };
    let bytes = |blocks| u64::try_from(blocks).unwrap_or_default() * BLOCK_BYTES;
    IoUsage {
        read_bytes: bytes(usage.block_reads()),
        write_bytes: bytes(usage.block_writes()),
    }
}

fn memory() -> MemoryUsage {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let (rss, vms) = (kibibytes(&status, "VmRSS:"), kibibytes(&status, "VmSize:"));
    MemoryUsage {
        rss,
        vms,
        percent: percent(rss, kibibytes(&machine, "MemTotal:")),
    }
}

/// Parses a line like `VmRSS:      1234 kB`, and returns bytes.
fn kibibytes(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| {
        line.strip_prefix(name)?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    });
    value.unwrap_or(0_u64) * 1024
}

/// Counts like `df`: blocks reserved for root are neither used nor free.
fn disk() -> Option<DiskUsage> {
    let stats = statvfs("/").ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(stats.fragment_size());
    let used = bytes(stats.blocks().saturating_sub(stats.blocks_free()));
    let free = bytes(stats.blocks_available());
    Some(DiskUsage {
        total: bytes(stats.blocks()),
        used,
        free,
        percent: percent(used, used.saturating_add(free)),
    })
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        rounded(part as f64 / whole as f64 * 100.0)
    }
}

fn rounded(percent: f64) -> f64 {
    (percent * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_this_process_is_measured() {
        let meter = ResourceMeter::new();
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(100) {
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
    }

    #[test]
    fn proc_lines_are_parsed() {
        assert_eq!(
            kibibytes("Name:\tx\nVmRSS:\t    12 kB\n", "VmRSS:"),
            12 << 10
        );
        assert_eq!(kibibytes("VmRSS:\n", "VmRSS:"), 0);
        assert_eq!((percent(1, 3), percent(1, 0)), (33.3, 0.0));
    }
}
