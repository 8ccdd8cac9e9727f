//! How much memory the process may have.

use std::fs::read_to_string;

use super::super::budget::Budget;

/// Of the memory that the process may have, so much may be unread input of lines.
const PART: usize = 4;

/// The budget of all lines of this process: a quarter of its cgroup's limit, or of the machine's memory.
pub fn memory() -> Budget {
    let cgroup = read_to_string("/sys/fs/cgroup/memory.max").ok();
    let machine = read_to_string("/proc/meminfo").ok();
    let limit = limit(cgroup.as_deref(), machine.as_deref());
    limit.map_or_else(Budget::unlimited, |limit| Budget::new(limit / PART))
}

/// Bytes; the smaller of both. A cgroup without a limit says `max`.
fn limit(cgroup: Option<&str>, machine: Option<&str>) -> Option<usize> {
    let cgroup = cgroup.and_then(|text| text.trim().parse::<usize>().ok());
    let machine = machine
        .and_then(|text| text.lines().find_map(|line| line.strip_prefix("MemTotal:")))
        .and_then(|rest| {
            rest.trim()
                .strip_suffix(" kB")?
                .trim()
                .parse::<usize>()
                .ok()
        })
        .map(|kib| kib.saturating_mul(1024));
    match (cgroup, machine) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_limit_counts() {
        let machine = Some("MemTotal:       2048 kB\nMemFree: 1 kB\n");
        assert_eq!(limit(Some("1048576\n"), machine), Some(1 << 20));
        assert_eq!(limit(Some("max\n"), machine), Some(2 << 20));
        assert_eq!(limit(None, machine), Some(2 << 20));
        assert_eq!(limit(Some("4096"), None), Some(4096));
        assert_eq!(limit(None, None), None);
    }
}
