//! What a client may use up.

use std::process::Stdio;
use std::time::{Duration, Instant};

use linesman::hub::githost::embedded::Limits;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::host::{Host, Standing, Who, cluster_key};
use crate::wait::until;

/// Long enough for a busy machine; no test waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(30);

/// A fetch that has begun and waits for its client, which says nothing.
async fn held(host: &Host, key: &str) -> Child {
    held_by(host, key, "git-upload-pack '/catalog.git'").await
}

/// The same of any command.
async fn held_by(host: &Host, key: &str, command: &str) -> Child {
    let mut child = Command::new("ssh")
        .args(host.options_with(key))
        .args(["-p", &host.port().to_string(), "git@127.0.0.1"])
        .arg(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut first = [0; 4];
    let read = child.stdout.as_mut().unwrap().read_exact(&mut first);
    timeout(PATIENCE, read).await.unwrap().unwrap();
    child
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_has_four_sessions_and_all_keys_have_sixty_four() {
    let host = Host::start().await;
    let mut children = Vec::new();
    for n in 0..16_u8 {
        let file = host.key_file(&cluster_key(n), &format!("cluster{n}"));
        for _ in 0..4 {
            children.push(held(&host, &file).await);
        }
        if n == 0 {
            let fifth = host.fetch_with(&file).await.refused();
            assert!(
                fifth.contains("too many Git sessions at once with this key"),
                "{fifth}"
            );
        }
    }
    let words = host
        .ssh(Who::User, &["git-upload-pack '/catalog.git'"])
        .await
        .refused();
    assert!(
        words.contains("too many Git sessions at once; try again"),
        "{words}"
    );
    // A place is free again as soon as one has ended.
    for child in &mut children[..4] {
        child.kill().await.unwrap();
    }
    let mut free = false;
    for _ in 0..100 {
        let answer = host
            .ssh(Who::User, &["git-upload-pack '/catalog.git'"])
            .await;
        free = answer.out.contains("refs/heads/main");
        if free {
            break;
        }
    }
    assert!(free);
    drop(children);
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_say_who_it_is_is_cut() {
    const LIMIT: Duration = Duration::from_millis(300);
    let limits = Limits {
        auth: LIMIT,
        ..Limits::default()
    };
    let host = Host::with(limits).await;
    let began = Instant::now();
    let mut socket = TcpStream::connect(("127.0.0.1", host.port()))
        .await
        .unwrap();
    let mut all = Vec::new();
    let read = timeout(PATIENCE, socket.read_to_end(&mut all)).await;
    read.expect("it is cut").unwrap();
    assert!(began.elapsed() >= LIMIT, "{:?}", began.elapsed());
    assert!(all.starts_with(b"SSH-2.0-"));
    host.end().await;
}

/// Not before the time of the one limit; that of any other is longer than anybody waits here.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_session_and_one_that_lives_too_long_are_cut() {
    /// Long enough for a client to come as far as its command.
    const LIMIT: Duration = Duration::from_secs(5);
    let cut = async |limits: Limits| {
        let host = Host::with(limits).await;
        let file = host.key_file(&cluster_key(0), "cluster");
        let began = Instant::now();
        let mut child = held(&host, &file).await;
        // To wait for a child closes its input, with which the fetch ends by itself.
        let _open = child.stdin.take();
        let status = timeout(PATIENCE, child.wait()).await.unwrap().unwrap();
        assert!(!status.success());
        assert!(began.elapsed() >= LIMIT, "{:?}", began.elapsed());
        host.end().await;
    };
    let idle = Limits {
        idle: LIMIT,
        ..Limits::default()
    };
    let old = Limits {
        life: LIMIT,
        ..Limits::default()
    };
    tokio::join!(cut(idle), cut(old));
}

/// H17: what is revoked ends what runs by it, with a word on why. Records that cannot be read end nothing, let nothing begin, and
/// refuse no key.
#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_ends_with_the_right_of_its_key() {
    let limits = Limits {
        again: Duration::from_millis(50),
        ..Limits::default()
    };
    let host = Host::with(limits).await;
    let file = host.key_file(&cluster_key(0), "cluster");
    let mut child = held(&host, &file).await;
    host.stand(Standing::Away);
    // It was asked meanwhile, and more than once.
    let asked = host.asked();
    let again = async || host.asked() >= asked + 3;
    until("the key is asked for again", PATIENCE, again).await;
    assert_eq!(child.try_wait().unwrap(), None, "the fetch was cut");
    let cut = host.fetch_with(&file).await.refused();
    assert!(
        cut.contains("Connection closed") && !cut.contains("Permission denied"),
        "{cut}"
    );
    // Its client keeps the session open.
    let _open = child.stdin.take();
    host.stand(Standing::Revoked);
    let ended = timeout(PATIENCE, child.wait_with_output()).await.unwrap();
    let ended = ended.unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let words = String::from_utf8_lossy(&ended.stderr);
    assert!(
        words.contains("the key may not do this any more"),
        "{words}"
    );
    let refused = host.fetch_with(&file).await.refused();
    assert!(refused.contains("Permission denied"), "{refused}");
    host.stand(Standing::Good);
    let again = host
        .ssh(Who::User, &["git-upload-pack '/catalog.git'"])
        .await;
    assert!(again.out.contains("refs/heads/main"), "{}", again.err);
    host.end().await;
}

/// H17: who only reads from now on (another role, groups that do not count any more) brings no push to its end that was begun
/// before. What they fetch goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_ends_with_the_right_to_push() {
    let limits = Limits {
        again: Duration::from_millis(50),
        ..Limits::default()
    };
    let host = Host::with(limits).await;
    let file = host.key_file(&Who::User.key(), "alice");
    let mut push = held_by(&host, &file, "git-receive-pack '/catalog.git'").await;
    let mut fetch = held(&host, &file).await;
    // Their clients keep the sessions open.
    let (_push, _fetch) = (push.stdin.take(), fetch.stdin.take());
    host.stand(Standing::Reading);
    let ended = timeout(PATIENCE, push.wait_with_output()).await.unwrap();
    let ended = ended.unwrap();
    let words = String::from_utf8_lossy(&ended.stderr);
    let told = words.contains("the key may not do this any more");
    assert_eq!((ended.status.code(), told), (Some(1), true), "{words}");
    let asked = host.asked();
    let again = async || host.asked() >= asked + 3;
    until("the key is asked for again", PATIENCE, again).await;
    assert_eq!(fetch.try_wait().unwrap(), None, "the fetch was cut");
    drop(fetch);
    host.end().await;
}

/// A connection may be older than the trouble: what it asks for then is not refused for its key.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_told_that_its_key_cannot_be_looked_up() {
    let host = Host::start().await;
    let file = host.key_file(&cluster_key(0), "cluster");
    let shared = host.folder().join("shared");
    let mut connection = Command::new("ssh")
        .args(host.options_with(&file))
        .args(["-p", &host.port().to_string()])
        .args(["-N", "-o", "ControlMaster=yes", "-S"])
        .arg(&shared)
        .arg("git@127.0.0.1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    // It is there when the key was accepted.
    let open = async || shared.exists();
    until("the connection is open", PATIENCE, open).await;
    let over = format!("ControlPath={}", shared.display());
    let told = async || {
        let command = ["git-upload-pack '/catalog.git'"];
        let ended = host.ssh_with(Who::Deploy, &["-o", &over], &command).await;
        ended.refused()
    };
    for (standing, words) in [
        (Standing::Away, "the key cannot be looked up at this moment"),
        (Standing::Revoked, "the key may not do this any more"),
    ] {
        host.stand(standing);
        let told = told().await;
        assert!(told.contains(words), "{standing:?}: {told}");
    }
    connection.kill().await.unwrap();
    host.end().await;
}

/// Whoever says nothing makes way for the next one, and an engine still gets its catalog.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_keep_nobody_out() {
    let limits = Limits {
        strangers: 8,
        auth: Duration::from_mins(10),
        idle: Duration::from_mins(10),
        ..Limits::default()
    };
    let host = Host::with(limits).await;
    let mut silent = Vec::new();
    for _ in 0..24 {
        let mut socket = TcpStream::connect(("127.0.0.1", host.port()))
            .await
            .unwrap();
        let mut first = [0; 8];
        timeout(PATIENCE, socket.read_exact(&mut first))
            .await
            .unwrap()
            .unwrap();
        silent.push(socket);
    }
    let file = host.key_file(&cluster_key(0), "cluster");
    let session = held(&host, &file).await;
    // The oldest are gone, and who has shown a key stays.
    for socket in &mut silent[..16] {
        let mut rest = Vec::new();
        let read = timeout(PATIENCE, socket.read_to_end(&mut rest));
        read.await.unwrap().ok();
    }
    for _ in 0..16 {
        let mut socket = TcpStream::connect(("127.0.0.1", host.port()))
            .await
            .unwrap();
        let mut first = [0; 8];
        timeout(PATIENCE, socket.read_exact(&mut first))
            .await
            .unwrap()
            .unwrap();
        silent.push(socket);
    }
    let fetched = host.fetch_with(&file).await;
    assert!(fetched.out.contains("refs/heads/main"), "{}", fetched.err);
    drop((session, silent));
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn known_connections_beyond_the_limit_are_ended() {
    let limits = Limits {
        connections: 1,
        ..Limits::default()
    };
    let host = Host::with(limits).await;
    let first = host.key_file(&cluster_key(0), "first");
    let second = host.key_file(&cluster_key(1), "second");
    let session = held(&host, &first).await;
    host.fetch_with(&second).await.refused();
    drop(session);
    host.end().await;
}

/// One key's connections, as many as it likes, keep no other out.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_with_all_connections_keeps_no_other_out() {
    let limits = Limits {
        connections: 3,
        ..Limits::default()
    };
    let host = Host::with(limits).await;
    let greedy = host.key_file(&cluster_key(0), "greedy");
    let other = host.key_file(&cluster_key(1), "other");
    let sessions = [
        held(&host, &greedy).await,
        held(&host, &greedy).await,
        held(&host, &greedy).await,
    ];
    let fetched = host.fetch_with(&other).await;
    assert!(fetched.out.contains("refs/heads/main"), "{}", fetched.err);
    drop(sessions);
    host.end().await;
}
