//! The clone of the catalog that people work in.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Hub, json_of};
use crate::cli::{Home, mode};

#[test]
fn a_clone_of_the_catalog_can_push() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    let cloned = home.run(&["catalog", "clone", "catalog"]);
    assert_eq!(cloned.code, 0, "{cloned:?}");
    // No word of git's own where nobody sits at a terminal.
    let said: Vec<&str> = cloned.err.lines().collect();
    assert!(
        said.len() == 3
            && said[0].starts_with("cloning ssh://git@127.0.0.1:")
            && said[0].ends_with("/catalog.git into catalog"),
        "{cloned:?}"
    );
    let linted = home.run(&["catalog", "lint", "catalog"]);
    assert_eq!(linted.code, 0, "{linted:?}");
    let git = |args: &[&str]| {
        let output = Command::new("git")
            .args(args)
            .current_dir(home.0.join("catalog"))
            .env_clear()
            .env("HOME", &home.0)
            .env("PATH", std::env::var_os("PATH").unwrap())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    fs::File::options()
        .append(true)
        .open(home.0.join("catalog/README.md"))
        .unwrap()
        .write_all(b"\nOne line more.\n")
        .unwrap();
    git(&["commit", "--quiet", "--all", "--message", "Add a line"]);
    git(&["push", "--quiet"]);
    assert_eq!(
        git(&["rev-parse", "HEAD"]),
        git(&["rev-parse", "origin/main"])
    );
    // Again on the same directory: mended, nothing lost.
    assert_eq!(home.run(&["catalog", "clone", "catalog"]).code, 0);
    assert_eq!(mode(&key(&home.0.join("state/linesman/git"))), 0o600);
}

/// A key has no end but the one that somebody gives it; whoever has its private half and may gives it again.
#[test]
fn a_key_is_listed_taken_away_and_given_again() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    let key = |rest: &[&str]| home.run(&[&["catalog", "key"][..], rest].concat());
    let none = key(&["list"]);
    assert!(none.err.contains("no SSH keys"), "{none:?}");
    let clone = || home.run(&["catalog", "clone", "catalog"]).code;
    let fetches = || {
        let mut git = Command::new("git");
        git.args(["fetch", "--quiet"])
            .current_dir(home.0.join("catalog"));
        git.env_clear().env("HOME", &home.0);
        git.env("PATH", std::env::var_os("PATH").unwrap());
        git.output().unwrap().status.success()
    };
    assert!(clone() == 0 && fetches());
    let print = key(&["list", "-o", "name"]).out.trim().to_owned();
    assert!(print.starts_with("SHA256:"), "{print}");
    let listed = key(&["list", "--all", "-o", "json"]);
    let (listed, title) = (json_of(&listed), "catalog clone of admin");
    let told = [&listed[0]["fingerprint"], &listed[0]["title"]];
    assert_eq!(told, [&json!(print), &json!(title)]);
    key(&["remove", "SHA256:other"]).fails(3, "there is no SSH key SHA256:other of you");
    // Where it is another's, or may be, it is asked first.
    key(&["remove", &print, "--user", "admin"]).fails(2, "needs a yes");
    assert!(fetches());
    let removed = key(&["remove", &print, "-o", "name"]);
    assert_eq!((removed.code, removed.out.trim()), (0, &*print));
    assert!(!fetches());
    assert!(clone() == 0 && fetches());
    let removed = key(&["remove", &print, "--user", "admin", "--yes"]);
    assert!(removed.code == 0 && !fetches(), "{removed:?}");
}

/// A firewall that drops packets, or a port that is somebody else's: ssh waits for its first word without an end by itself.
#[test]
fn a_clone_from_a_port_that_says_nothing_ends_and_names_it() {
    let home = Home::new();
    // The system takes connections for it; nobody ever reads them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    let hub = Hub::with_git_at(&home, at);
    hub.log_in(&home);
    let begun = Instant::now();
    let cloned = home.run(&["catalog", "clone", "catalog"]);
    let url = format!("ssh://git@{at}/catalog.git");
    cloned.fails(1, &format!("clone the catalog from {url}: git: "));
    assert_eq!(
        cloned.err.lines().next().unwrap(),
        format!("cloning {url} into catalog")
    );
    assert!(
        cloned.err.ends_with("linesman doctor\n") && begun.elapsed() < Duration::from_secs(40),
        "{:?}: {cloned:?}",
        begun.elapsed()
    );
}

/// `catalog` may be the name of somebody's own repository: its next push must not go elsewhere.
#[test]
fn a_repository_that_is_no_clone_of_the_catalog_is_left_as_it_is() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        git.args(args).current_dir(&home.0).env_clear();
        git.env("PATH", std::env::var_os("PATH").unwrap());
        assert!(git.status().unwrap().success());
    };
    git(&["init", "--quiet", "catalog"]);
    let theirs = "https://git.example.org/theirs.git";
    git(&["-C", "catalog", "remote", "add", "origin", theirs]);
    let config = || fs::read_to_string(home.0.join("catalog/.git/config")).unwrap();
    let before = config();
    home.run(&["catalog", "clone", "catalog"])
        .fails(5, "catalog is a repository of something else");
    assert_eq!(config(), before);
    // Said to be the catalog's, it becomes a clone as any other.
    let catalog = home.run(&["catalog", "clone", "other"]);
    assert_eq!(catalog.code, 0, "{catalog:?}");
    let url = Command::new("git")
        .args(["-C", "other", "remote", "get-url", "origin"])
        .current_dir(&home.0)
        .output()
        .unwrap();
    let url = String::from_utf8(url.stdout).unwrap();
    git(&["-C", "catalog", "remote", "set-url", "origin", url.trim()]);
    assert_eq!(home.run(&["catalog", "clone", "catalog"]).code, 0);
    assert!(config().contains("id_ed25519"), "{}", config());
    // And one of an earlier address of the hub is still known by its key.
    git(&["-C", "catalog", "remote", "set-url", "origin", theirs]);
    assert_eq!(home.run(&["catalog", "clone", "catalog"]).code, 0);
    assert!(config().contains(url.trim()), "{}", config());
}

fn key(git: &Path) -> PathBuf {
    let hub = fs::read_dir(git).unwrap().next().unwrap().unwrap();
    hub.path().join("id_ed25519")
}
