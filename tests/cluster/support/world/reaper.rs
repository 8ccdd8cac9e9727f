//! What ends hub and lab however this process ends, and the processes that it is told of.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::place::{root, var};

/// However this process ends, hub and lab end too.
#[allow(
    clippy::zombie_processes,
    reason = "the reaper outlives this process; that is its purpose"
)]
pub(super) fn start_reaper(directory: &Path, lab: &str) {
    if var("LINESMAN_TEST_KEEP").is_some() {
        return;
    }
    let mut command = Command::new(root().join("tests/cluster/reaper"));
    command
        .arg(std::process::id().to_string())
        .arg(start_time(std::process::id()))
        .arg(directory);
    if var("LINESMAN_TEST_KUBECONFIG").is_none() {
        command.arg(lab);
    }
    // A group of its own: ^C in the terminal reaches the tests, not the reaper.
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap();
}

/// Remembers a process for the reaper.
pub(crate) fn record(directory: &Path, pid: u32) {
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(directory.join("pids"))
        .unwrap();
    writeln!(file, "{pid} {}", start_time(pid)).unwrap();
}

fn start_time(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    after.split(' ').nth(19).unwrap_or("gone").to_owned()
}
