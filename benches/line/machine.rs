//! What this process has used, and what the machine is.

use std::fs::read_to_string;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Used {
    /// User and system time.
    pub(crate) cpu_ns: f64,
    pub(crate) rss_kib: f64,
    pub(crate) peak_kib: f64,
}

/// Of this process.
pub(crate) fn used() -> Used {
    used_by(std::process::id())
}

/// Of a process, from `/proc` (Linux, 100 ticks a second).
pub(crate) fn used_by(pid: u32) -> Used {
    let stat = read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything: fields 3 and on; utime is 14, stime 15.
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |at: usize| {
        fields
            .get(at - 3)
            .and_then(|field| field.parse::<f64>().ok())
            .unwrap_or_default()
    };
    let status = read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
            .unwrap_or_default()
    };
    Used {
        cpu_ns: (ticks(14) + ticks(15)) * 1e7,
        rss_kib: kib("VmRSS:"),
        peak_kib: kib("VmHWM:"),
    }
}

/// Cores, memory, kernel, congestion control: what the figures stand on.
pub(crate) fn shape() -> Vec<(&'static str, String)> {
    let read = |path: &str| read_to_string(path).unwrap_or_default();
    let value = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split(':').nth(1))
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let memory: u64 = value(&read("/proc/meminfo"), "MemTotal")
        .split_whitespace()
        .next()
        .and_then(|kib| kib.parse().ok())
        .unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    vec![
        ("cpu", value(&read("/proc/cpuinfo"), "model name")),
        ("cores", cores.to_string()),
        ("memory", format!("{} GB", (memory + (1 << 19)) >> 20)),
        (
            "kernel",
            read("/proc/sys/kernel/osrelease").trim().to_owned(),
        ),
        (
            "congestion control",
            read("/proc/sys/net/ipv4/tcp_congestion_control")
                .trim()
                .to_owned(),
        ),
    ]
}
