//! The two keys of a cluster at the built-in Git server: one reads the catalog, and the other is none for Git.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use linesman::hub::git;
use linesman::keys::KeyPair;
use linesman::ssh::Step;
use linesman::wire::api::Assignment;
use tokio::process::Command;
use tokio::time::timeout;

use super::rotate::world::{PATIENCE, read_catalog};
use super::support::{Agent, TestHub};

fn write(path: &Path, text: &str) {
    std::fs::write(path, format!("{}\n", text.trim_end())).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// What is said to OpenSSH where it asks to push, with the key and the known hosts in this directory.
async fn refused(at: &Path, url: &str) -> String {
    let place = url.strip_prefix("ssh://git@localhost:").unwrap();
    let (port, repo) = place.split_once('/').unwrap();
    let mut ssh = Command::new("ssh");
    ssh.current_dir(at)
        .args(["-F", "none", "-i", "key", "-p", port])
        .args(["-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none"])
        .args(["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"])
        .args(["-o", "GlobalKnownHostsFile=/dev/null"])
        .args(["-o", "UserKnownHostsFile=known_hosts"])
        .arg("git@localhost")
        .arg(format!("git-receive-pack '/{repo}'"))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let ended = timeout(PATIENCE, ssh.output()).await;
    let ended = ended.expect("it is answered").unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && ended.stdout.is_empty(), "{said}");
    said
}

/// H26: with neither of them anybody writes to the catalog, and who tries it with the one that is known is on record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_clusters_keys_one_reads_the_catalog_and_none_writes_to_it() {
    let hub = TestHub::start("cluster-keys").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    let (code, joined) = agent.join(&hub, "eu1", &token).await;
    assert_eq!(code, 200, "{joined}");
    let joined: Assignment = serde_json::from_value(joined).unwrap();
    let (catalog, deploy) = (joined.catalog, KeyPair::from_seed(&[101; 32]));
    let own = &hub.hub.catalog;
    let head = git::head(&own.repo, &own.branch).await.unwrap().unwrap();
    let fetched = async |key: &KeyPair| {
        let found = timeout(PATIENCE, read_catalog(&catalog, key)).await;
        let found = found.expect("it is answered");
        found.map(|at| at.commit).map_err(|error| error.step())
    };
    assert_eq!(fetched(&deploy).await, Ok(head.clone()));
    assert_eq!(fetched(&agent.identity).await, Err(Step::Auth));

    let at = hub.data().with_extension("ssh");
    std::fs::create_dir_all(&at).unwrap();
    write(&at.join("known_hosts"), &catalog.known_hosts);
    for (key, words) in [
        (
            &deploy,
            "the key of cluster eu1 reads the catalog and cannot push",
        ),
        (&agent.identity, "Permission denied (publickey)"),
    ] {
        write(&at.join("key"), key.openssh("").unwrap().expose());
        let said = refused(&at, &catalog.url).await;
        assert!(said.contains(words), "{said}");
    }
    let rows = hub.hub.store.audit_tail(Some("eu1"), 100).await.unwrap();
    let pushes = rows.iter().filter(|row| row.action == "catalog.push");
    let pushes = pushes.map(|row| [&*row.actor, &*row.verdict, &*row.target]);
    let print = deploy.public().fingerprint();
    let tried = ["agent:eu1", "deny", print.as_str()];
    assert_eq!(pushes.collect::<Vec<_>>(), [tried]);
    let now = git::head(&own.repo, &own.branch).await.unwrap();
    assert_eq!(now, Some(head));
    std::fs::remove_dir_all(at).unwrap();
    hub.stop().await;
}
