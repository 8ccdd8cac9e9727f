//! Runs the system's `git` for one command of one client.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, Command as Process};
use tokio::sync::mpsc;
use tracing::{error, info, warn};

use super::ending::{InFlight, Pushing};
use super::push::{Head, MAX_HEAD, Update, head, objections};
use super::{GitAccess, Push, Pusher, Refuse};
use crate::hub::git;
use crate::ssh::{Command, Input, Output};

/// Where git is looked for, whatever the hub's own environment says: it is the system's.
pub(super) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// A pack larger than this is refused.
const MAX_PUSH: &str = "104857600";
/// Git's own words to the user, beyond what the protocol carries.
const MAX_WORDS: u64 = 64 << 10;
/// How long a `git` that nobody could wait for may still be finishing a reference.
const SETTLE: Duration = Duration::from_secs(1);

/// The repository that is served.
pub(super) struct Catalog {
    pub(super) repo: PathBuf,
    pub(super) name: String,
    pub(super) branch: String,
    pub(super) ended: mpsc::Sender<Ended>,
    pub(super) pushing: Pushing,
    pub(super) refused: Refuse,
}

/// A push whose `git` has ended, and whose commands are known.
pub(super) struct Ended {
    pub(super) by: Pusher,
    pub(super) updates: Vec<Update>,
    /// Nobody could wait for its git.
    pub(super) cut: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    UploadPack,
    ReceivePack,
}

/// Serves one command; the answer is its exit status.
pub(super) async fn run(catalog: Arc<Catalog>, command: Command<GitAccess>) -> u32 {
    let Command {
        who,
        text,
        git_protocol,
        input,
        output,
        mut errors,
        key,
        peer,
    } = command;
    let service = match wish(&text, &catalog.name) {
        Ok(Service::ReceivePack) if !who.push => {
            warn!(who = %who.who, key = %key.fingerprint(), "push with a read-only key refused");
            let refused = Pusher {
                who: who.who.clone(),
                key,
                peer,
            };
            (catalog.refused)(refused).await;
            Err(format!(
                "the key of {} reads the catalog and cannot push; push with the key of a user with role operator",
                who.who
            ))
        }
        other => other,
    };
    let service = match service {
        Ok(service) => service,
        Err(why) => return say(&mut errors, &[format!("linesman: {why}")]).await,
    };
    let child = match start(&catalog, service, git_protocol.as_deref()) {
        Ok(child) => child,
        Err(e) => {
            error!(error = %e, "start git; the built-in Git host needs it installed beside the hub");
            let why = "linesman: git does not start on the hub; its log says why".to_owned();
            return say(&mut errors, &[why]).await;
        }
    };
    // From here on its git is ended in order, whatever ends this.
    let (mut session, noted) = match service {
        Service::UploadPack => (catalog.pushing.read(child), None),
        Service::ReceivePack => {
            let by = Pusher {
                who: who.who,
                key,
                peer,
            };
            let push = InFlight::new(by, catalog.ended.clone());
            let noted = push.noted();
            (catalog.pushing.begin(child, push), Some(noted))
        }
    };
    let status = match session.git() {
        Some(git) => serve(git, (input, output, &mut errors), noted).await,
        None => 1,
    };
    let updates = session.finish().await;
    say(&mut errors, &objections(&updates, &catalog.branch)).await;
    status
}

/// Whether a key that may do this may go on with a command: all of them read, and a push ends with the right to push.
pub(super) fn covers(access: &GitAccess, text: &str) -> bool {
    access.push || !text.starts_with("git-receive-pack ")
}

/// Reads exactly `git-upload-pack '<repo>'` and `git-receive-pack '<repo>'`.
fn wish(text: &str, name: &str) -> Result<Service, String> {
    let quoted = |rest: &str| {
        let path = rest.strip_prefix('\'')?.strip_suffix('\'')?;
        (!path.contains(['\'', '\\'])).then(|| path.to_owned())
    };
    let service = match text.split_once(' ') {
        Some(("git-upload-pack", rest)) => quoted(rest).map(|p| (Service::UploadPack, p)),
        Some(("git-receive-pack", rest)) => quoted(rest).map(|p| (Service::ReceivePack, p)),
        _ => None,
    };
    let Some((service, path)) = service else {
        return Err("only git fetch and git push are served here".to_owned());
    };
    if path.strip_prefix('/').unwrap_or(&path) != name {
        return Err(format!("there is one repository here, /{name}"));
    }
    Ok(service)
}

/// A git without anything of the hub's environment, looked for in `path`.
fn bare(path: &str) -> Process {
    let mut git = Process::new("git");
    git.env_clear().env("PATH", path);
    git
}

/// Whether there is a git in `path`, and it starts.
pub(super) async fn starts(path: &str) -> bool {
    let version = bare(path).arg("--version").output().await;
    version.is_ok_and(|version| version.status.success())
}

fn start(catalog: &Catalog, service: Service, protocol: Option<&str>) -> std::io::Result<Child> {
    let mut git = bare(PATH);
    git.env("HOME", "/nonexistent")
        .env("LC_ALL", "C")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0");
    let settings = settings(&catalog.repo, &catalog.branch);
    git.env("GIT_CONFIG_COUNT", settings.len().to_string());
    for (i, (key, value)) in settings.iter().enumerate() {
        git.env(format!("GIT_CONFIG_KEY_{i}"), key);
        git.env(format!("GIT_CONFIG_VALUE_{i}"), value);
    }
    if let Some(protocol) = protocol {
        git.env("GIT_PROTOCOL", protocol);
    }
    match service {
        Service::UploadPack => git.args(["upload-pack", "--strict"]),
        Service::ReceivePack => git.arg("receive-pack"),
    };
    git.arg(&catalog.repo)
        // In a group of its own: what it has started is told to end with it.
        .process_group(0)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

/// Settings of the environment win over the repository's own file.
fn settings(repo: &Path, branch: &str) -> Vec<(&'static str, String)> {
    let text = |s: &str| s.to_owned();
    vec![
        // Without it git serves no repository that belongs to another uid.
        ("safe.directory", repo.to_string_lossy().into_owned()),
        ("core.hooksPath", text("/dev/null")),
        ("core.fsync", text("committed,loose-object,reference")),
        ("receive.denyNonFastForwards", text("true")),
        ("receive.denyDeletes", text("true")),
        ("receive.fsckObjects", text("true")),
        ("receive.maxInputSize", text(MAX_PUSH)),
        // A hidden reference cannot be written: one branch takes pushes.
        ("receive.hideRefs", text("refs")),
        ("receive.hideRefs", format!("!refs/heads/{branch}")),
        // Housekeeping ends with its session instead of staying behind the hub.
        ("gc.autoDetach", text("false")),
    ]
}

async fn serve(
    child: &mut Child,
    (input, mut output, errors): (Input, Output, &mut Output),
    noted: Option<Arc<Mutex<Vec<Update>>>>,
) -> u32 {
    let (Some(stdin), Some(mut stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return 1;
    };
    let feed = feed(input, stdin, noted);
    let work = async {
        let out = async {
            // A failed copy means that the client is gone; git ends by itself on its closed pipe.
            tokio::io::copy(&mut stdout, &mut output).await.ok();
            output.flush().await.ok();
            drop(stdout);
        };
        tokio::join!(out, words(stderr, errors));
        child.wait().await
    };
    tokio::pin!(feed, work);
    let ended = tokio::select! {
        ended = &mut work => ended,
        () = &mut feed => work.await,
    };
    let code = ended.ok().and_then(|status| status.code());
    code.and_then(|code| u32::try_from(code).ok()).unwrap_or(1)
}

/// The client's bytes to git; the commands of a push are noted as they pass.
async fn feed(mut input: Input, mut stdin: ChildStdin, updates: Option<Arc<Mutex<Vec<Update>>>>) {
    let mut ahead = Vec::new();
    let mut reading = updates.is_some();
    while let Some(piece) = input.read().await {
        if reading {
            ahead.extend_from_slice(&piece);
            match head(&ahead) {
                Head::Incomplete if ahead.len() <= MAX_HEAD => continue,
                Head::Complete(found) => {
                    if let Some(updates) = &updates {
                        *updates.lock().unwrap_or_else(PoisonError::into_inner) = found;
                    }
                }
                Head::Incomplete | Head::Unreadable => {}
            }
            reading = false;
            let bytes = std::mem::take(&mut ahead);
            if stdin.write_all(&bytes).await.is_err() {
                return;
            }
        } else if stdin.write_all(&piece).await.is_err() {
            return;
        }
    }
    // What came before the end without being complete is git's to judge.
    stdin.write_all(&ahead).await.ok();
}

async fn words(stderr: ChildStderr, errors: &mut Output) {
    let mut limited = stderr.take(MAX_WORDS);
    tokio::io::copy(&mut limited, errors).await.ok();
    errors.flush().await.ok();
    // Git must not stall on words that nobody wants.
    let mut rest = limited.into_inner();
    tokio::io::copy(&mut rest, &mut tokio::io::sink())
        .await
        .ok();
}

async fn say(errors: &mut Output, lines: &[String]) -> u32 {
    for line in lines {
        errors.write_all(format!("{line}\n").as_bytes()).await.ok();
    }
    errors.flush().await.ok();
    1
}

/// Looks at what each push left on the branch and tells the hub.
pub(super) async fn report(
    repo: PathBuf,
    branch: String,
    mut ended: mpsc::Receiver<Ended>,
    pushed: mpsc::Sender<Push>,
) {
    let name = format!("refs/heads/{branch}");
    while let Some(Ended { by, updates, cut }) = ended.recv().await {
        if cut {
            tokio::time::sleep(SETTLE).await;
        }
        for update in updates.into_iter().filter(|u| u.name == name) {
            let Some(new) = update.new.filter(|new| update.old.as_ref() != Some(new)) else {
                continue;
            };
            match landed(&repo, &branch, &by, update.old, new).await {
                Ok(Some(push)) => {
                    info!(who = %by.who, commit = %push.new, paths = push.changed_paths.len(), "catalog push");
                    if pushed.send(push).await.is_err() {
                        return;
                    }
                }
                Ok(None) => {}
                Err(e) => warn!(error = format!("{e:#}"), "look at a catalog push"),
            }
        }
    }
}

async fn landed(
    repo: &Path,
    branch: &str,
    by: &Pusher,
    old: Option<String>,
    new: String,
) -> anyhow::Result<Option<Push>> {
    if !git::contains(repo, branch, &new).await? {
        return Ok(None);
    }
    let changed = git::changed(repo, old.as_deref(), &new).await?;
    Ok(Some(Push {
        by: by.clone(),
        branch: branch.to_owned(),
        old,
        new,
        changed_paths: changed.paths,
        truncated: changed.truncated,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the PATH of this very process has.
    #[tokio::test]
    async fn a_git_is_looked_for_where_it_is_started_from() {
        assert!(starts(PATH).await);
        assert!(!starts("/nonexistent").await);
    }

    #[test]
    fn exactly_two_commands_are_understood() {
        for path in ["catalog.git", "/catalog.git"] {
            let upload = format!("git-upload-pack '{path}'");
            assert_eq!(wish(&upload, "catalog.git"), Ok(Service::UploadPack));
            let receive = format!("git-receive-pack '{path}'");
            assert_eq!(wish(&receive, "catalog.git"), Ok(Service::ReceivePack));
        }
        for text in [
            "",
            "ls",
            "git-upload-pack catalog.git",
            "git-upload-pack  'catalog.git'",
            "git-upload-pack 'catalog.git' ",
            "git-upload-pack 'catalog.git'; id",
            "git-upload-pack 'catalog.git' 'x'",
            "git-upload-pack '../catalog.git'",
            "git-upload-pack '//catalog.git'",
            "git-upload-pack '/etc'",
            "git-upload-pack --help",
            "git-upload-archive 'catalog.git'",
            "git-shell",
            "git upload-pack 'catalog.git'",
        ] {
            assert!(wish(text, "catalog.git").is_err(), "{text}");
        }
    }
}
