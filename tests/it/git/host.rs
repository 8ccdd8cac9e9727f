//! A built-in Git host on port 0 with three keys: alice's, a cluster's, and one that nobody knows.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linesman::hub::catalog;
use linesman::hub::git::{self, BRANCH, Others};
use linesman::hub::githost::embedded::{self, GitAccess, GitServer, Limits, Push, Right};
use linesman::keys::{KeyPair, Public};
use linesman::ssh::known_hosts::known_hosts_line;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Longest that a command or a report may take.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy)]
pub(crate) enum Who {
    User,
    Deploy,
    Stranger,
}

impl Who {
    pub(crate) fn key(self) -> KeyPair {
        let seed = match self {
            Self::User => 1,
            Self::Deploy => 2,
            Self::Stranger => 3,
        };
        KeyPair::from_seed(&[seed; 32])
    }

    fn file(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Deploy => "deploy",
            Self::Stranger => "stranger",
        }
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// Its standard output, where it went well.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.status, 0, "{}", self.err);
        self.out
    }

    /// Its words, where it did not.
    pub(crate) fn refused(self) -> String {
        assert_ne!(self.status, 0, "{}", self.out);
        self.err
    }
}

pub(crate) struct Host {
    folder: PathBuf,
    port: u16,
    pushed: mpsc::Receiver<Push>,
    asked: Arc<AtomicUsize>,
    standing: Arc<Mutex<Standing>>,
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

pub(crate) fn host_key() -> KeyPair {
    KeyPair::from_seed(&[9; 32])
}

/// Cluster `n`'s key, of as many clusters as a test wants.
pub(crate) fn cluster_key(n: u8) -> KeyPair {
    KeyPair::from_seed(&[100 + n; 32])
}

fn access(key: Public) -> Option<GitAccess> {
    let push = key == Who::User.key().public();
    let cluster = (0..32).any(|n| key == cluster_key(n).public());
    let known = push || cluster || key == Who::Deploy.key().public();
    let who = if push { "alice" } else { "eu1" };
    known.then(|| GitAccess {
        who: who.to_owned(),
        push,
    })
}

/// What the host's records say of all keys.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Standing {
    Good,
    /// Whoever pushed only reads now.
    Reading,
    Revoked,
    /// They cannot be read.
    Away,
}

impl Host {
    pub(crate) fn stand(&self, standing: Standing) {
        *self.standing.lock().unwrap() = standing;
    }

    pub(crate) async fn start() -> Self {
        Self::with(Limits::default()).await
    }

    pub(crate) async fn with(limits: Limits) -> Self {
        let name = linesman::keys::hex(&linesman::clock::random::<8>());
        let folder = std::env::temp_dir().join(format!("linesman-it-git-{name}"));
        std::fs::create_dir_all(&folder).unwrap();
        let repo = folder.join("catalog.git");
        git::ensure(&repo, &catalog::template(), Others::Nobody)
            .await
            .unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, pushed) = mpsc::channel(64);
        let stop = CancellationToken::new();
        let server = GitServer {
            refused: Arc::new(|_| Box::pin(async {})),
            repo,
            repo_name: "catalog.git".to_owned(),
            branch: BRANCH.to_owned(),
            host_key: watch::Sender::new((&host_key()).into()).subscribe(),
            limits,
        };
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let standing = Arc::new(Mutex::new(Standing::Good));
        let now = Arc::clone(&standing);
        let authorize = move |key| {
            count.fetch_add(1, Ordering::Relaxed);
            let right = match *now.lock().unwrap() {
                Standing::Good => access(key).map_or(Right::None, Right::Held),
                Standing::Reading => access(key).map_or(Right::None, |access| {
                    Right::Held(GitAccess {
                        push: false,
                        ..access
                    })
                }),
                Standing::Revoked => Right::None,
                Standing::Away => Right::Unknown,
            };
            Box::pin(async move { right }) as _
        };
        let serve = embedded::serve(listener, server, authorize, sender, stop.clone());
        #[expect(clippy::disallowed_methods, reason = "the host owns and joins it")]
        let task = tokio::spawn(serve);
        let host = Self {
            folder,
            port,
            pushed,
            asked,
            standing,
            stop,
            task,
        };
        host.write("known_hosts", &host.known_hosts());
        for who in [Who::User, Who::Deploy, Who::Stranger] {
            let key = who.key().openssh("test").unwrap();
            host.write(who.file(), key.expose());
        }
        host
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        std::fs::write(&path, format!("{}\n", text.trim_end())).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.clone()
    }

    pub(crate) fn repo(&self) -> PathBuf {
        self.folder.join("catalog.git")
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("ssh://git@127.0.0.1:{}/catalog.git", self.port)
    }

    pub(crate) fn known_hosts(&self) -> String {
        known_hosts_line("127.0.0.1", self.port, host_key().public())
    }

    /// How often a key was offered.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// Writes a private key for `ssh -i`.
    pub(crate) fn key_file(&self, key: &KeyPair, name: &str) -> String {
        self.write(name, key.openssh("test").unwrap().expose());
        name.to_owned()
    }

    pub(crate) async fn fetch_with(&self, key: &str) -> Ended {
        let mut ssh = Command::new("ssh");
        ssh.args(self.options_with(key))
            .args(["-p", &self.port.to_string(), "git@127.0.0.1"])
            .arg("git-upload-pack '/catalog.git'");
        run(ssh).await
    }

    /// Gives every file of the repository to another uid.
    pub(crate) fn give_to(&self, uid: u32) {
        let mut paths = vec![self.repo()];
        while let Some(path) = paths.pop() {
            std::os::unix::fs::lchown(&path, Some(uid), None)
                .expect("the tests run as root, for this one has to change an owner");
            for entry in std::fs::read_dir(&path).into_iter().flatten() {
                paths.push(entry.unwrap().path());
            }
        }
    }

    /// What the next push left.
    pub(crate) async fn pushed(&mut self) -> Push {
        let push = timeout(PATIENCE, self.pushed.recv()).await;
        push.expect("a push is reported").unwrap()
    }

    pub(crate) async fn clone_as(&self, who: Who, into: &str) -> PathBuf {
        self.git(who, &self.folder, &["clone", "-q", &self.url(), into])
            .await
            .ok();
        self.folder.join(into)
    }

    pub(crate) async fn git(&self, who: Who, at: &Path, args: &[&str]) -> Ended {
        run(self.git_command(who, at, args)).await
    }

    pub(crate) fn git_command(&self, who: Who, at: &Path, args: &[&str]) -> Command {
        let ssh = format!("ssh {}", self.options(who).join(" "));
        let mut git = Command::new("git");
        git.args(args)
            .current_dir(at)
            .env("GIT_SSH_COMMAND", ssh)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", "alice")
            .env("GIT_AUTHOR_EMAIL", "alice@example.com")
            .env("GIT_COMMITTER_NAME", "alice")
            .env("GIT_COMMITTER_EMAIL", "alice@example.com");
        git
    }

    pub(crate) async fn ssh(&self, who: Who, command: &[&str]) -> Ended {
        self.ssh_with(who, &[], command).await
    }

    pub(crate) async fn ssh_with(&self, who: Who, options: &[&str], command: &[&str]) -> Ended {
        let mut ssh = Command::new("ssh");
        ssh.args(self.options(who))
            .args(["-p", &self.port.to_string()])
            .args(options)
            .arg("git@127.0.0.1")
            .args(command);
        run(ssh).await
    }

    fn options(&self, who: Who) -> Vec<String> {
        self.options_with(who.file())
    }

    pub(crate) fn options_with(&self, key: &str) -> Vec<String> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let mut options = vec!["-F".to_owned(), "/dev/null".to_owned()];
        options.extend(["-i".to_owned(), file(key)]);
        for option in [
            "IdentitiesOnly=yes".to_owned(),
            "IdentityAgent=none".to_owned(),
            "BatchMode=yes".to_owned(),
            "StrictHostKeyChecking=yes".to_owned(),
            "GlobalKnownHostsFile=/dev/null".to_owned(),
            format!("UserKnownHostsFile={}", file("known_hosts")),
        ] {
            options.extend(["-o".to_owned(), option]);
        }
        options
    }

    /// Stops the server and sees that it ended well.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        let ended = timeout(PATIENCE, self.task).await;
        ended.expect("the server stops").unwrap().unwrap();
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

async fn run(mut command: Command) -> Ended {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(PATIENCE, command.output()).await;
    let output = output.expect("the command ends").unwrap();
    Ended {
        status: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
