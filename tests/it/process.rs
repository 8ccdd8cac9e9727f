//! What the system says of a process.

/// Its resident memory, in KiB.
pub(crate) fn resident_kib(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse().unwrap()
}

/// Its open files.
pub(crate) fn files(id: u32) -> u64 {
    let open = std::fs::read_dir(format!("/proc/{id}/fd")).unwrap();
    open.count().try_into().unwrap()
}
