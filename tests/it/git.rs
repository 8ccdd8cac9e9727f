//! The built-in Git host against the real `git` and OpenSSH, and our probe against it.

mod cut;
mod host;
mod limits;
mod probe;

use linesman::hub::git::{self, Author, BRANCH, Change, Files, Others};
use linesman::hub::githost::embedded::{Push, Pusher};

use host::{Host, Who};

/// H13, H26
#[tokio::test(flavor = "multi_thread")]
async fn a_deploy_key_clones_and_cannot_push() {
    let host = Host::start().await;
    let head = git::head(&host.repo(), BRANCH).await.unwrap();
    let clone = host.clone_as(Who::Deploy, "clone").await;
    assert!(clone.join("clusters/eu1/apps.yaml").is_file());
    std::fs::write(clone.join("README.md"), "mine").unwrap();
    host.git(Who::Deploy, &clone, &["commit", "-qam", "mine"])
        .await
        .ok();
    let push = host
        .git(Who::Deploy, &clone, &["push", "origin", "main"])
        .await;
    let words = push.refused();
    assert!(
        words.contains("the key of eu1 reads the catalog and cannot push; push with the key of a user with role operator"),
        "{words}"
    );
    assert_eq!(git::head(&host.repo(), BRANCH).await.unwrap(), head);
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_users_push_lands_and_is_reported_with_its_paths() {
    let mut host = Host::start().await;
    let before = git::head(&host.repo(), BRANCH).await.unwrap();
    let clone = host.clone_as(Who::User, "clone").await;
    std::fs::write(clone.join("base/more.yaml"), "a: 1\n").unwrap();
    std::fs::remove_file(clone.join("base/priority-classes.yaml")).unwrap();
    host.git(Who::User, &clone, &["add", "-A"]).await.ok();
    host.git(Who::User, &clone, &["commit", "-qm", "more"])
        .await
        .ok();
    host.git(Who::User, &clone, &["push", "origin", "main"])
        .await
        .ok();
    let head = git::head(&host.repo(), BRANCH).await.unwrap().unwrap();
    let push = host.pushed().await;
    assert!(push.by.peer.ip().is_loopback(), "{push:?}");
    let expected = Push {
        by: Pusher {
            who: "alice".to_owned(),
            key: Who::User.key().public(),
            peer: push.by.peer,
        },
        branch: "main".to_owned(),
        old: before,
        new: head,
        changed_paths: vec![
            "base/more.yaml".to_owned(),
            "base/priority-classes.yaml".to_owned(),
        ],
        truncated: false,
    };
    assert_eq!(push, expected);
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_key_is_refused() {
    let host = Host::start().await;
    let at = host.folder();
    let words = host
        .git(Who::Stranger, &at, &["clone", &host.url(), "clone"])
        .await
        .refused();
    assert!(words.contains("Permission denied (publickey)"), "{words}");
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rewrites_deletions_and_other_branches_are_refused() {
    let host = Host::start().await;
    let clone = host.clone_as(Who::User, "clone").await;
    let head = git::head(&host.repo(), BRANCH).await.unwrap();
    let amend = ["commit", "-q", "--amend", "-m", "rewritten"];
    host.git(Who::User, &clone, &amend).await.ok();
    let table = [
        (["push", "--force", "origin", "main"], "non-fast-forward"),
        (
            ["push", "--force", "origin", ":main"],
            "branch 'main' is what the clusters follow; it cannot be deleted",
        ),
        (
            ["push", "--force", "origin", "main:feature"],
            "the catalog has one branch, 'main'; refs/heads/feature was refused",
        ),
        (
            ["push", "--force", "origin", "main:refs/tags/v1"],
            "the catalog has one branch, 'main'; refs/tags/v1 was refused",
        ),
    ];
    for (push, reason) in table {
        let words = host.git(Who::User, &clone, &push).await.refused();
        assert!(words.contains(reason), "{push:?}: {words}");
    }
    assert_eq!(git::head(&host.repo(), BRANCH).await.unwrap(), head);
    let refs = host
        .git(Who::User, &clone, &["ls-remote", "origin"])
        .await
        .ok();
    assert_eq!(refs.lines().count(), 2, "HEAD and main alone: {refs}");
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_two_git_commands_run() {
    let host = Host::start().await;
    for command in [
        "id",
        "git-upload-pack '/etc'",
        "git-upload-pack '/catalog.git' --help",
        "git-upload-pack '/catalog.git'; id",
        "git-upload-archive '/catalog.git'",
    ] {
        let words = host.ssh(Who::User, &[command]).await.refused();
        assert!(words.contains("linesman: "), "{command}: {words}");
        assert!(!words.contains("uid="), "{command}: {words}");
    }
    let shell = host.ssh(Who::User, &[]).await.refused();
    assert!(shell.contains("there is no shell here"), "{shell}");
    let subsystem = host.ssh(Who::User, &["-s", "sftp"]).await.refused();
    assert!(
        subsystem.contains("subsystem request failed"),
        "{subsystem}"
    );
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn terminals_and_forwarding_are_refused() {
    let host = Host::start().await;
    let terminal = host.ssh_with(Who::User, &["-tt"], &["id"]).await.refused();
    assert!(
        terminal.contains("PTY allocation request failed"),
        "{terminal}"
    );
    let remote = [
        "-o",
        "ExitOnForwardFailure=yes",
        "-N",
        "-R",
        "0:127.0.0.1:1",
    ];
    let words = host.ssh_with(Who::User, &remote, &[]).await.refused();
    assert!(words.contains("remote port forwarding failed"), "{words}");
    let local = format!("127.0.0.1:{}", host.port());
    let words = host
        .ssh_with(Who::User, &["-W", &local], &[])
        .await
        .refused();
    assert!(words.contains("open failed"), "{words}");
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_the_environment_only_the_git_protocol_arrives() {
    let host = Host::start().await;
    let fetch = "git-upload-pack '/catalog.git'";
    let send = |value: &str| format!("SetEnv={value}");
    let two = send("GIT_PROTOCOL=version=2");
    let answer = host.ssh_with(Who::Deploy, &["-o", &two], &[fetch]).await;
    assert!(answer.out.contains("version 2"), "{answer:?}");
    // A trace file or another protocol word would show that a variable came through.
    let trace = host.folder().join("trace");
    let env = send(&format!("GIT_TRACE={}", trace.display()));
    let answer = host.ssh_with(Who::Deploy, &["-o", &env], &[fetch]).await;
    assert!(answer.out.contains("refs/heads/main"), "{answer:?}");
    assert!(!trace.exists());
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_of_another_uid_is_served() {
    let host = Host::start().await;
    let clone = host.clone_as(Who::User, "clone").await;
    host.give_to(54_321);
    let again = git::ensure(&host.repo(), &Files::new(), Others::Nobody).await;
    again.expect("a hub that starts on such a volume");
    host.git(Who::User, &clone, &["fetch", "origin"]).await.ok();
    let empty = ["commit", "-q", "--allow-empty", "-m", "more"];
    host.git(Who::User, &clone, &empty).await.ok();
    host.git(Who::User, &clone, &["push", "origin", "main"])
        .await
        .ok();
    let change = Change {
        files: Files::from([("a".to_owned(), b"1".to_vec())]),
        only_missing: true,
        gone: std::collections::BTreeSet::new(),
        author: Author::hub(),
        message: "add a".to_owned(),
    };
    let commit = git::commit(&host.repo(), BRANCH, change).await.unwrap();
    assert!(commit.is_some());
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_where_pushes_and_the_hubs_commits_cross() {
    const EACH: usize = 8;
    let mut host = Host::start().await;
    let clone = host.clone_as(Who::User, "clone").await;
    let repo = host.repo();
    // What the user has pulled is no longer all when it is pushed, each time.
    let round = tokio::sync::Barrier::new(2);
    let hub = async {
        for i in 0..EACH {
            round.wait().await;
            let change = Change {
                files: Files::from([(format!("hub/{i}"), b"1".to_vec())]),
                only_missing: true,
                gone: std::collections::BTreeSet::new(),
                author: Author::hub(),
                message: format!("hub {i}"),
            };
            git::commit(&repo, BRANCH, change).await.unwrap();
        }
    };
    let user = async {
        std::fs::create_dir(clone.join("user")).unwrap();
        for i in 0..EACH {
            std::fs::write(clone.join(format!("user/{i}")), "1").unwrap();
            host.git(Who::User, &clone, &["add", "-A"]).await.ok();
            host.git(Who::User, &clone, &["commit", "-qm", "user"])
                .await
                .ok();
            let mut landed = false;
            for attempt in 0..20 {
                let pull = ["pull", "-q", "--rebase", "origin", "main"];
                host.git(Who::User, &clone, &pull).await.ok();
                if attempt == 0 {
                    round.wait().await;
                }
                let push = host
                    .git(Who::User, &clone, &["push", "-q", "origin", "main"])
                    .await;
                landed = push.status == 0;
                if landed {
                    break;
                }
            }
            assert!(landed, "push {i}");
        }
    };
    tokio::join!(hub, user);
    let files = git::files(&host.repo(), BRANCH).await.unwrap();
    for i in 0..EACH {
        assert!(files.contains_key(&format!("hub/{i}")), "hub/{i}");
        assert!(files.contains_key(&format!("user/{i}")), "user/{i}");
        assert_eq!(host.pushed().await.changed_paths, [format!("user/{i}")]);
    }
    host.end().await;
}
