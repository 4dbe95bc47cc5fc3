//! What this process uses of the machine, in V0's shape. What the system does not tell is 0.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::statvfs::statvfs;
use nix::sys::time::TimeValLike as _;
use serde::Serialize;

/// As the kernel counts what goes to disks, whatever their own blocks are.
const BLOCK_BYTES: u64 = 512;

/// Lengths are in bytes, percentages from 0 to 100; that of the processor is of one core.
#[derive(Debug, Default, Serialize)]
pub(super) struct Resources {
    cpu_percent: f64,
    memory: Memory,
    disk: Disk,
    io: Io,
}

#[derive(Debug, Default, Serialize)]
struct Memory {
    rss: u64,
    vms: u64,
    /// Of the machine's memory.
    percent: f64,
}

/// Of the root file system.
#[derive(Debug, Default, Serialize)]
struct Disk {
    total: u64,
    used: u64,
    free: u64,
    percent: f64,
}

#[derive(Debug, Default, Serialize)]
struct Io {
    read_bytes: u64,
    write_bytes: u64,
}

/// Remembers when it was read last: a load is always one over a time.
#[derive(Debug)]
pub(super) struct Meter {
    last: Mutex<(Instant, Duration)>,
}

impl Meter {
    /// The first reading is over the time since this.
    pub(super) fn new() -> Self {
        Self { last: Mutex::new((Instant::now(), processor_time())) }
    }

    /// Blocks for as long as the file system does.
    pub(super) fn read(&self) -> Resources {
        Resources { cpu_percent: self.load(), memory: memory(), disk: disk().unwrap_or_default(), io: io() }
    }

    fn load(&self) -> f64 {
        let now = (Instant::now(), processor_time());
        let last = std::mem::replace(&mut *self.last.lock().unwrap_or_else(PoisonError::into_inner), now);
        let passed = now.0.duration_since(last.0).as_secs_f64();
        let used = now.1.saturating_sub(last.1).as_secs_f64();
        if passed > 0.0 { rounded(used / passed * 100.0) } else { 0.0 }
    }
}

/// Not from `/proc/self`, parts of which are closed to a process whose memory is hidden, also to itself.
fn processor_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let microseconds = (usage.user_time() + usage.system_time()).num_microseconds();
    Duration::from_micros(u64::try_from(microseconds).unwrap_or_default())
}

fn io() -> Io {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Io::default() };
    let bytes = |blocks| u64::try_from(blocks).unwrap_or_default() * BLOCK_BYTES;
    Io { read_bytes: bytes(usage.block_reads()), write_bytes: bytes(usage.block_writes()) }
}

fn memory() -> Memory {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let (rss, vms) = (kibibytes(&status, "VmRSS:"), kibibytes(&status, "VmSize:"));
    Memory { rss, vms, percent: percent(rss, kibibytes(&machine, "MemTotal:")) }
}

/// A line such as `VmRSS:      1234 kB`, in bytes.
fn kibibytes(text: &str, name: &str) -> u64 {
    let value =
        text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
    value.unwrap_or(0_u64) * 1024
}

/// As `df` counts: what only root may use is neither used nor free.
fn disk() -> Option<Disk> {
    let facts = statvfs("/").ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(facts.fragment_size());
    let used = bytes(facts.blocks().saturating_sub(facts.blocks_free()));
    let free = bytes(facts.blocks_available());
    Some(Disk { total: bytes(facts.blocks()), used, free, percent: percent(used, used.saturating_add(free)) })
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { rounded(part as f64 / whole as f64 * 100.0) }
}

fn rounded(percent: f64) -> f64 {
    (percent * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_this_process_s() {
        let meter = Meter::new();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(100) {
            std::hint::spin_loop();
        }
        let Resources { cpu_percent, memory, disk, .. } = meter.read();
        assert!(cpu_percent > 10.0, "{cpu_percent}");
        assert!(memory.rss > 1 << 20 && memory.vms > memory.rss && memory.percent < 100.0, "{memory:?}");
        assert!(disk.total >= disk.used + disk.free && disk.percent <= 100.0 && disk.total > 0, "{disk:?}");
    }

    #[test]
    fn lines_of_proc_are_read() {
        assert_eq!(kibibytes("Name:\tx\nVmRSS:\t    12 kB\n", "VmRSS:"), 12 << 10);
        assert_eq!(kibibytes("VmRSS:\n", "VmRSS:"), 0);
        assert_eq!((percent(1, 3), percent(1, 0)), (33.3, 0.0));
    }
}
