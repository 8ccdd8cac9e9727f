//! Pushes that are cut in the middle of writing the branch.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use linesman::hub::githost::embedded::Limits;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::host::{Host, Standing, Who};
use crate::wait::until;

const PATIENCE: Duration = Duration::from_secs(30);

/// The hub's `git` stands still with the branch locked: it writes to a log of the branch that is a pipe nobody reads.
async fn hold(host: &Host) -> PathBuf {
    let log = host.repo().join("logs/refs/heads/main");
    std::fs::create_dir_all(log.parent().unwrap()).unwrap();
    let made = Command::new("mkfifo").arg(&log).status().await.unwrap();
    assert!(made.success());
    log
}

/// Ready once the branch is locked.
async fn push(host: &Host, clone: &Path) -> Child {
    std::fs::write(clone.join("README.md"), "mine\n").unwrap();
    host.git(Who::User, clone, &["commit", "-qam", "mine"])
        .await
        .ok();
    let push = host
        .git_command(Who::User, clone, &["push", "-q", "origin", "main"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let locked = async || lock(host).exists();
    until("the branch is locked", PATIENCE, locked).await;
    push
}

fn lock(host: &Host) -> PathBuf {
    host.repo().join("refs/heads/main.lock")
}

/// The branch is as it was, and takes the next push.
async fn goes_on(host: Host, clone: &Path, log: &Path) {
    let free = async || !lock(&host).exists();
    until("the branch is free", PATIENCE, free).await;
    std::fs::remove_file(log).unwrap();
    let again = ["push", "-q", "origin", "main"];
    host.git(Who::User, clone, &again).await.ok();
    host.end().await;
}

/// H29: a push whose client goes away while the branch is being written keeps nobody from pushing.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_client_goes_away_leaves_no_lock_behind() {
    let host = Host::start().await;
    let clone = host.clone_as(Who::User, "clone").await;
    let log = hold(&host).await;
    let push = push(&host, &clone).await;
    // With the ssh that it started.
    let group = format!("-{}", push.id().unwrap());
    let ended = Command::new("kill").args(["-9", "--", &group]).status();
    assert!(ended.await.unwrap().success());
    goes_on(host, &clone, &log).await;
}

/// H29: the same where the hub cuts it, since its key was revoked or its time is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_the_hub_cuts_leaves_no_lock_behind() {
    let again = Duration::from_millis(50);
    let revoked = Limits {
        again,
        ..Limits::default()
    };
    let short = Limits {
        life: Duration::from_secs(5),
        ..Limits::default()
    };
    for (limits, revoke) in [(revoked, true), (short, false)] {
        let host = Host::with(limits).await;
        let clone = host.clone_as(Who::User, "clone").await;
        let log = hold(&host).await;
        let push = push(&host, &clone).await;
        if revoke {
            host.stand(Standing::Revoked);
        }
        let ended = timeout(PATIENCE, push.wait_with_output()).await.unwrap();
        assert!(!ended.unwrap().status.success());
        host.stand(Standing::Good);
        goes_on(host, &clone, &log).await;
    }
}
