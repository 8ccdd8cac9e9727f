//! `linesman catalog clone`: makes a key, lets the hub know it, and clones with the system's git, so that pull and
//! push work in the clone afterwards. Host keys come from the hub: nothing is trusted on first use.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind, IsTerminal as _, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::cli::connect::Connect;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::progress_line;
use crate::cli::session;
use crate::clock;
use crate::keys::{self, KeyPair};
use crate::wire::api::{CatalogView, NewSshKey};

const EXAMPLES: &str = "\
Examples:
  linesman catalog clone catalog
  cd catalog && $EDITOR clusters/eu1/apps.yaml && linesman catalog lint
  git add -A && git commit -m 'Change' && git push

The SSH key and the hub's host keys are kept in $XDG_STATE_HOME/linesman/git (~/.local/state/linesman/git
where that is not set); the clone's core.sshCommand names them, so that plain git works in it. Running it
again on the same directory mends these settings; a repository that is no clone of this hub's catalog is left
alone (exit code 5).";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// Where to put the clone
    #[arg(default_value = "catalog")]
    directory: PathBuf,
    #[command(flatten)]
    connect: Connect,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    let (catalog, me) = (client.catalog().await?, client.whoami().await?);
    let place = place(&client.hub())?;
    let there = args.directory.join(".git").exists();
    if there {
        is_clone(&args.directory, &catalog, &place)?;
    }
    let key = key(&place, &format!("linesman/{}", me.user))?;
    let title = format!("catalog clone of {}", me.user);
    client
        .add_ssh_key(&NewSshKey {
            public_key: key,
            title,
        })
        .await?;
    session::replace(&place.join("known_hosts"), catalog.known_hosts.as_bytes())?;
    let ssh = ssh_command(&place);
    let (url, shown) = (&catalog.url, args.directory.display());
    if there {
        progress_line(&format!("fetching {url} into {shown}"));
        mend(&args.directory, &catalog, &ssh)?;
    } else {
        progress_line(&format!("cloning {url} into {shown}"));
        clone(&args.directory, &catalog, &ssh)?;
    }
    name_author(
        &args.directory,
        &me.user,
        client.base().host_str().unwrap_or("linesman"),
    )?;
    progress_line(&format!(
        "the catalog is in {shown}, on branch {}",
        catalog.branch
    ));
    progress_line(
        "next:  edit, then: linesman catalog lint && git add -A && git commit && git push",
    );
    Ok(())
}

/// Where this hub's SSH files live.
fn place(hub: &str) -> Result<PathBuf> {
    let place = session::directory()?.join("git").join(folder(hub));
    session::make_directory(&place)?;
    // A relative XDG_STATE_HOME is ignored, so this path is absolute and holds in any working directory.
    Ok(place)
}

/// One name for one hub, also where case does not count: `_` and the byte for what is no part of a host's name.
fn folder(hub: &str) -> String {
    let mut name = String::new();
    for byte in hub.trim_start_matches("https://").bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => name.push(byte.into()),
            b'.' if !name.is_empty() => name.push('.'),
            other => {
                name.push('_');
                name.push_str(&keys::hex(&[other]));
            }
        }
    }
    name
}

/// Refuses a repository that neither comes from the catalog's address nor uses our key for this hub: somebody's own, or another
/// hub's, whose next push would go into this catalog.
fn is_clone(directory: &Path, catalog: &CatalogView, place: &Path) -> Result<()> {
    let ours = format!("-i {} ", quoted(&place.join("id_ed25519")));
    let set = |key| setting(directory, &["--local", "--get", key]);
    let from = set("remote.origin.url")?.is_some_and(|url| url == catalog.url);
    if from || set("core.sshCommand")?.is_some_and(|ssh| ssh.contains(&ours)) {
        return Ok(());
    }
    let (shown, url) = (directory.display(), &catalog.url);
    let text = format!("{shown} is a repository of something else; nothing was changed");
    let next = format!(
        "name a new directory, or, if it is the catalog: git -C {shown} remote set-url origin {url}"
    );
    Err(Failure::new(Code::Conflict, text, next).into())
}

/// What git is set to in a repository; none = nothing.
fn setting(directory: &Path, asked: &[&str]) -> Result<Option<String>> {
    let known = Command::new("git")
        .arg("config")
        .args(asked)
        .current_dir(directory)
        .output()
        .context("run git config")?;
    let said = || String::from_utf8_lossy(&known.stdout).trim().to_owned();
    Ok(known.status.success().then(said))
}

/// The public half of the key in `place`, which is made where there is none.
fn key(place: &Path, comment: &str) -> Result<String> {
    let path = place.join("id_ed25519");
    let pair = match fs::read_to_string(&path) {
        Ok(text) => KeyPair::from_openssh(&text)
            .with_context(|| format!("read {} (delete it to make a new key)", path.display()))?,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let pair = KeyPair::from_seed(&clock::random());
            session::replace(&path, pair.openssh(comment)?.expose().as_bytes())?;
            pair
        }
        Err(e) => return Err(e).with_context(|| format!("read {}", path.display())),
    };
    Ok(pair.public().openssh(comment)?)
}

/// ssh with this key and these host keys, and no others; it ends by itself where nothing answers.
fn ssh_command(place: &Path) -> String {
    let quote = |name: &str| quoted(&place.join(name));
    format!(
        "ssh -i {} -o IdentitiesOnly=yes -o IdentityAgent=none -o UserKnownHostsFile={} \
         -o GlobalKnownHostsFile=/dev/null -o StrictHostKeyChecking=yes -o UpdateHostKeys=no \
         -o ConnectTimeout=10 -o ServerAliveInterval=15 -o ServerAliveCountMax=3",
        quote("id_ed25519"),
        quote("known_hosts")
    )
}

/// For a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

fn clone(directory: &Path, catalog: &CatalogView, ssh: &str) -> Result<()> {
    git(None, &cloning(directory, catalog, ssh), Some(ssh))
        .with_context(|| format!("clone the catalog from {}", catalog.url))
}

/// The URL is the hub's word: with `--` before it, it is no option, of which one names a program to run here.
fn cloning(directory: &Path, catalog: &CatalogView, ssh: &str) -> Vec<OsString> {
    let mut args = ["clone", how_told(), "--branch", &catalog.branch, "--config"]
        .map(OsString::from)
        .to_vec();
    let ssh = format!("core.sshCommand={ssh}");
    args.extend([ssh.as_str(), "--", &catalog.url].map(OsString::from));
    args.push(directory.into());
    args
}

/// git shows how far it is to whoever sits at the terminal.
fn how_told() -> &'static str {
    if io::stderr().is_terminal() {
        "--progress"
    } else {
        "--quiet"
    }
}

/// An existing clone of this catalog gets today's key, host keys and address.
fn mend(directory: &Path, catalog: &CatalogView, ssh: &str) -> Result<()> {
    let set = |args: [&str; 3]| git(Some(directory), &args.map(OsString::from), None);
    set(["config", "core.sshCommand", ssh]).context("set core.sshCommand of the clone")?;
    let origin = ["remote", "set-url", "origin", catalog.url.as_str()].map(OsString::from);
    git(Some(directory), &origin, None).context("set the clone's origin")?;
    set(["fetch", how_told(), "origin"])
        .with_context(|| format!("fetch the catalog from {}", catalog.url))
}

/// git refuses to commit for nobody; a name that the user chose is left alone.
fn name_author(directory: &Path, user: &str, host: &str) -> Result<()> {
    for (key, value) in [
        ("user.name", user.to_owned()),
        ("user.email", format!("{user}@{host}")),
    ] {
        if setting(directory, &["--get", key])?.is_none() {
            git(
                Some(directory),
                &["config", key, &value].map(OsString::from),
                None,
            )?;
        }
    }
    Ok(())
}

fn git(directory: Option<&Path>, args: &[OsString], ssh: Option<&str>) -> Result<()> {
    let mut command = Command::new("git");
    command.args(args);
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    match ssh {
        Some(ssh) => command.env("GIT_SSH_COMMAND", ssh),
        None => command.env_remove("GIT_SSH_COMMAND"),
    };
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut running = command.stderr(Stdio::piped()).spawn().map_err(|e| {
        let next = "install git and an SSH client (Debian: apt-get install git openssh-client)";
        Failure::new(Code::Failed, format!("run git: {e}"), next)
    })?;
    let said = running.stderr.take().map(heard).transpose();
    let ended = running.wait().context("wait for git")?;
    let said = said.context("read what git says")?.unwrap_or_default();
    if ended.success() {
        return Ok(());
    }
    Err(failed(&said).into())
}

/// As much of what git says as is kept for the error.
const KEPT: usize = 16 << 10;

/// What git says, to the end of it; shown as it comes where somebody sits at the terminal.
fn heard(mut from: impl Read) -> io::Result<Vec<u8>> {
    let seen = io::stderr().is_terminal();
    let (mut said, mut next) = (Vec::new(), [0; 4 << 10]);
    loop {
        let read = match from.read(&mut next) {
            Ok(0) => return Ok(said),
            Ok(read) => next.get(..read).unwrap_or_default(),
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if seen {
            // A terminal that is gone does not end the work.
            let _shown = io::stderr().write_all(read);
        }
        said.extend_from_slice(read);
        said.drain(..said.len().saturating_sub(KEPT));
    }
}

/// The last of what git said, and what to do about it.
fn failed(said: &[u8]) -> Failure {
    let said = String::from_utf8_lossy(said);
    // Each step of its progress stands behind a carriage return.
    let lines = said.split(['\n', '\r']).map(str::trim_end);
    let said: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    let next = if said
        .iter()
        .any(|l| l.contains("cannot run ssh") || l.contains("ssh: not found"))
    {
        "install an SSH client (Debian: apt-get install openssh-client)"
    } else if said
        .iter()
        .any(|l| l.contains("Host key verification failed"))
    {
        "another server answers at the catalog's address; compare with: linesman doctor"
    } else if said
        .iter()
        .any(|l| l.contains("already exists and is not an empty directory"))
    {
        "name a new directory"
    } else if said
        .iter()
        .any(|l| l.contains("No space left on device") || l.contains("Disk quota exceeded"))
    {
        "make room there, or name a directory on another disk"
    } else {
        "check that this machine reaches the hub's Git port: linesman doctor"
    };
    let last = said.get(said.len().saturating_sub(4)..).unwrap_or_default();
    Failure::new(Code::Failed, format!("git: {}", last.join("; ")), next)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hubs in one folder had one key, and one's host keys written over the other's.
    #[test]
    fn hubs_do_not_share_a_folder() {
        let hubs = [
            "hub.a.b",
            "hub-a.b",
            "hub.a-b",
            "hub_a.b",
            "hub.a:443",
            "hub.a/443",
            "hub.a.443",
            "hub.a/x/y",
            "hub.a/x-y",
            "hub.a/X/y",
            "hub.a/_2f",
            "[fd00::1]",
            "..",
            ".",
        ];
        let folders = hubs.map(|hub| folder(&format!("https://{hub}")));
        for name in &folders {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
            assert!(name.chars().all(plain) && !name.starts_with('.'), "{name}");
        }
        let different: std::collections::BTreeSet<_> = folders.iter().collect();
        assert_eq!(different.len(), hubs.len(), "{folders:?}");
        assert_eq!(
            folder("https://hub.example.org:8443"),
            "hub.example.org_3a8443"
        );
    }

    #[test]
    fn ssh_uses_our_key_and_host_keys_only() {
        let command = ssh_command(Path::new("/home/o'neil/x"));
        assert!(
            command.starts_with(r"ssh -i '/home/o'\''neil/x/id_ed25519' -o IdentitiesOnly=yes"),
            "{command}"
        );
        assert!(command.contains("StrictHostKeyChecking=yes"));
        // Nobody else ends one that waits for a peer which says nothing.
        assert!(
            command
                .ends_with("ConnectTimeout=10 -o ServerAliveInterval=15 -o ServerAliveCountMax=3")
        );
    }

    /// git takes options behind the URL's place, too: the directory was then the repository.
    #[test]
    fn what_the_hub_calls_its_catalog_is_no_option_of_gits() {
        let catalog = CatalogView {
            url: "--upload-pack=touch here".to_owned(),
            branch: "main".to_owned(),
            head: None,
            known_hosts: String::new(),
        };
        let args = cloning(Path::new("catalog"), &catalog, "ssh -i key");
        let end = [
            "core.sshCommand=ssh -i key",
            "--",
            "--upload-pack=touch here",
            "catalog",
        ];
        assert_eq!(args[5..], end.map(OsString::from));
    }

    /// What the error names is git's last words, also behind the steps of its progress.
    #[test]
    fn the_last_words_are_kept_of_much_that_git_says() {
        let steps: Vec<String> = (0..9_000)
            .map(|n| format!("Receiving objects: {n}\r"))
            .collect();
        let said = steps.concat() + "done.\n\nHost key verification failed.\r\nfatal: no more\n";
        let kept = heard(said.as_bytes()).unwrap();
        assert_eq!(kept.len(), KEPT);
        let failure = failed(&kept);
        assert_eq!(
            failure.message,
            "git: Receiving objects: 8999; done.; Host key verification failed.; fatal: no more"
        );
        assert!(
            failure.next.contains("another server answers"),
            "{failure:?}"
        );
    }

    #[test]
    fn a_full_disk_is_not_the_hubs_git_port() {
        let said = "fatal: cannot copy '/usr/share/git-core/templates/info/exclude' to 'c/.git/info/exclude': No space left on device\n";
        let next = "make room there, or name a directory on another disk";
        assert_eq!(failed(said.as_bytes()).next, next);
        let over = "fatal: write error: Disk quota exceeded\nfatal: fetch-pack: invalid index-pack output\n";
        assert_eq!(failed(over.as_bytes()).next, next);
    }
}
