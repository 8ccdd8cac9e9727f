//! What goes on while a hub ends.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use linesman::keys::KeyPair;
use serde_json::json;
use tokio::process::Command;

use super::support::TestHub;
use crate::wait::until;

const PATIENCE: Duration = Duration::from_secs(30);
/// `git push` runs it when the hub has answered and before it sends anything: it waits for the test, half a minute at most.
const WAIT: &str = "#!/bin/sh
: > waits
n=0
while [ ! -e go ] && [ $n -lt 600 ]; do n=$((n + 1)); sleep 0.05; done
";

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn git(at: &Path, args: &[&str]) -> Command {
    let ssh = "ssh -F none -i ../key -o IdentitiesOnly=yes -o BatchMode=yes -o UserKnownHostsFile=../known_hosts";
    let mut git = Command::new("git");
    git.args(args)
        .current_dir(at)
        .env("GIT_SSH_COMMAND", ssh)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "ada")
        .env("GIT_AUTHOR_EMAIL", "ada@example.com")
        .env("GIT_COMMITTER_NAME", "ada")
        .env("GIT_COMMITTER_EMAIL", "ada@example.com")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    git
}

fn said(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// H37: the Git server serves for some seconds after a hub was told to end; what lands then is on record as any other push.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_lands_while_the_hub_ends_is_on_record() {
    let hub = TestHub::start("drained-push").await;
    let scratch = hub.data().with_extension("clone");
    drop(std::fs::remove_dir_all(&scratch));
    let clone = scratch.join("catalog");
    std::fs::create_dir_all(&clone).unwrap();
    let key = KeyPair::from_seed(&[7; 32]);
    let public = key.public().openssh("ada").unwrap();
    let body = json!({ "publicKey": public });
    let (code, answer) = hub.post("/v1/catalog/ssh-keys", &body).await;
    assert_eq!(code, 201, "{answer}");
    let (_, catalog) = hub.get("/v1/catalog").await;
    let (url, hosts) = (&catalog["url"], &catalog["knownHosts"]);
    let (url, hosts) = (url.as_str().unwrap(), hosts.as_str().unwrap());
    let private = key.openssh("ada").unwrap();
    write(&scratch.join("key"), private.expose(), 0o600);
    write(&scratch.join("known_hosts"), &format!("{hosts}\n"), 0o600);
    let run = async |args: &[&str]| said(git(&clone, args).output().await.unwrap());
    run(&["clone", "--quiet", url, "."]).await;
    write(&clone.join("README.md"), "mine\n", 0o644);
    run(&["commit", "--quiet", "--all", "--message", "mine"]).await;
    let commit = run(&["rev-parse", "HEAD"]).await;
    write(&clone.join(".git/hooks/pre-push"), WAIT, 0o755);

    let push = git(&clone, &["push", "--quiet", "origin", "HEAD"])
        .spawn()
        .unwrap();
    let waits = async || clone.join("waits").exists();
    until("the push is under way", PATIENCE, waits).await;
    hub.hub.stop.cancel();
    write(&clone.join("go"), "", 0o644);
    said(push.wait_with_output().await.unwrap());

    let hub = hub.restart().await;
    let rows = hub.hub.store.audit_tail(None, 100).await.unwrap();
    let pushes = rows.into_iter().filter(|row| row.action == "catalog.push");
    // By which key and from where, for its holder may have others.
    let told = pushes.map(|row| {
        let from: SocketAddr = row.remote.parse().unwrap();
        [
            row.actor,
            row.target,
            row.reason.unwrap(),
            from.ip().to_string(),
        ]
    });
    let print = key.public().fingerprint();
    let expected = [
        "user:admin".to_owned(),
        format!("main {commit}"),
        format!("with the key {print}"),
        "127.0.0.1".to_owned(),
    ];
    assert_eq!(told.collect::<Vec<_>>(), [expected]);
    hub.stop().await;
    std::fs::remove_dir_all(scratch).unwrap();
}
