//! How much memory the process may have.

use std::fs::read_to_string;
use std::iter::successors;

use super::super::budget::Budget;

/// Of the memory that the process may have, so much may be unread input of lines.
const PART: usize = 4;
/// Where the kernel and every runtime mount the cgroups.
const MOUNT: &str = "/sys/fs/cgroup";
/// For no limit cgroup v1 writes the most pages that it can count, which is less than 2^63 bytes by one page.
const UNLIMITED: u64 = 1 << 62;

/// The budget of all lines of this process: a quarter of the memory that it may have.
pub fn memory() -> Budget {
    let limit = limit(|path| read_to_string(path).ok());
    limit.map_or_else(Budget::unlimited, |limit| Budget::new(limit / PART))
}

/// Bytes: the smallest limit of the process's cgroup, of those that it is within, and of the machine. `read` gives a file's text.
fn limit(read: impl Fn(&str) -> Option<String>) -> Option<usize> {
    // What does not say where it is may still be the root of what it sees.
    let own = read("/proc/self/cgroup").unwrap_or_else(|| "0::/".to_owned());
    let groups = own.lines().flat_map(files);
    let limits = groups.filter_map(|file| group(&read(&file)?));
    let machine = read("/proc/meminfo").and_then(|text| machine(&text));
    limits.chain(machine).min()
}

/// The files with the limits of a line's cgroup and of all above it (cgroups(7), `/proc/[pid]/cgroup`): `0::/path` of version 2,
/// `7:memory:/path` of version 1. A container may be told the path that its host sees, and be shown its own cgroup as the root.
fn files(line: &str) -> Vec<String> {
    let mut fields = line.splitn(3, ':');
    let (Some(id), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
    else {
        return Vec::new();
    };
    let (mount, file) = if controllers.split(',').any(|name| name == "memory") {
        (format!("{MOUNT}/memory"), "memory.limit_in_bytes")
    } else if (id, controllers) == ("0", "") {
        (MOUNT.to_owned(), "memory.max")
    } else {
        return Vec::new();
    };
    // Outside of what the process sees (cgroup_namespaces(7)).
    let is_outside = path.split('/').any(|part| part == "..");
    let path = if is_outside { "" } else { path };
    let path = path.trim_end_matches('/');
    successors(Some(path), |path| Some(path.rsplit_once('/')?.0))
        .map(|path| format!("{mount}{path}/{file}"))
        .collect()
}

/// Bytes; none where there is no limit, which version 2 calls `max`.
fn group(text: &str) -> Option<usize> {
    let limit: u64 = text.trim().parse().ok()?;
    let limit = Some(limit).filter(|limit| (1..UNLIMITED).contains(limit))?;
    Some(usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Bytes, by `/proc/meminfo`.
fn machine(text: &str) -> Option<usize> {
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = total.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4 GiB.
    const MEMINFO: (&str, &str) = (
        "/proc/meminfo",
        "MemTotal:        4194304 kB\nMemFree: 1 kB\n",
    );
    const OWN: &str = "/proc/self/cgroup";
    const MIB: usize = 1 << 20;

    fn found(files: &[(&str, &str)]) -> Option<usize> {
        let of = |path: &str| files.iter().find(|(name, _)| *name == path);
        limit(|path| of(path).map(|(_, text)| (*text).to_owned()))
    }

    /// A unit with `MemoryMax=` had a budget of a quarter of the machine.
    #[test]
    fn the_own_groups_limit_counts_and_so_do_those_above_it() {
        let unit = (OWN, "0::/system.slice/linesman.service\n");
        let max = "/sys/fs/cgroup/system.slice/linesman.service/memory.max";
        let slice = "/sys/fs/cgroup/system.slice/memory.max";
        for (limits, expected) in [
            ([(max, "536870912\n"), (slice, "max\n")], 512 * MIB),
            ([(max, "max\n"), (slice, "268435456\n")], 256 * MIB),
            ([(max, "536870912\n"), (slice, "268435456\n")], 256 * MIB),
            ([(max, "268435456\n"), (slice, "536870912\n")], 256 * MIB),
            // More than the machine has.
            ([(max, "8589934592\n"), (slice, "max\n")], 4096 * MIB),
            ([(max, "max\n"), (slice, "max\n")], 4096 * MIB),
        ] {
            let files = [&[unit, MEMINFO][..], &limits].concat();
            assert_eq!(found(&files), Some(expected), "{limits:?}");
        }
    }

    /// Whether it has a namespace of its own or is told the host's path, the root that it is shown is its own.
    #[test]
    fn a_container_is_limited_by_the_root_of_what_it_sees() {
        let root = ("/sys/fs/cgroup/memory.max", "134217728\n");
        for own in [
            "0::/\n",
            "0::/kubepods.slice/pod1.slice/cri-1.scope\n",
            "0::/../other\n",
            "0::/../..\n",
        ] {
            let files = [(OWN, own), root, MEMINFO];
            assert_eq!(found(&files), Some(128 * MIB), "{own}");
        }
        assert_eq!(found(&[root, MEMINFO]), Some(128 * MIB));
        // Another group's limit is none of ours.
        let other = ("/sys/fs/cgroup/other/memory.max", "1048576\n");
        let files = [(OWN, "0::/../other\n"), other, MEMINFO];
        assert_eq!(found(&files), Some(4096 * MIB));
    }

    #[test]
    fn version_1_has_a_tree_for_memory_alone() {
        let own = (
            OWN,
            "9:cpu,cpuacct:/fast\n7:hugetlb,memory:/docker/1\n1:name=systemd:/docker/1\n0::/docker/1\n",
        );
        let none = "9223372036854771712\n";
        let (inner, outer, root) = (
            "/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        );
        let fast = ("/sys/fs/cgroup/memory/fast/memory.limit_in_bytes", "4096\n");
        for (limits, expected) in [
            ([(inner, "536870912\n"), (root, none)], Some(512 * MIB)),
            ([(outer, "536870912\n"), (root, none)], Some(512 * MIB)),
            ([(inner, none), (root, "536870912\n")], Some(512 * MIB)),
            ([(inner, none), (root, none)], None),
        ] {
            let files = [&[own, fast][..], &limits].concat();
            assert_eq!(found(&files), expected, "{limits:?}");
            let machine = found(&[&files[..], &[MEMINFO]].concat());
            assert_eq!(machine, Some(expected.unwrap_or(4096 * MIB)));
        }
    }

    #[test]
    fn what_says_no_number_limits_nothing() {
        let max = "/sys/fs/cgroup/memory.max";
        for text in [
            "",
            "max",
            "0",
            "-1",
            "12 MiB",
            "18446744073709551616",
            "\u{0}",
        ] {
            let files = [(OWN, "0::/\n"), (max, text), MEMINFO];
            assert_eq!(found(&files), Some(4096 * MIB), "{text:?}");
        }
        for own in [
            "", "\n", "0", "0:", "0::", ":::", "nonsense", "5:memory", "::/",
        ] {
            assert_eq!(found(&[(OWN, own), MEMINFO]), Some(4096 * MIB), "{own:?}");
        }
        for meminfo in ["", "MemTotal:", "MemTotal: many kB", "MemTotal: 12 MB"] {
            assert_eq!(found(&[("/proc/meminfo", meminfo)]), None, "{meminfo:?}");
        }
        assert_eq!(found(&[]), None);
    }
}
