//! The built program as people and scripts use it: exit codes, stdout, stderr, the session file, kubectl's plugin.

mod access;
mod adopt;
mod audit;
mod database;
mod githost;
mod heals;
mod hub;
mod import;
mod later;
mod lint;
mod login;
mod logout;
mod misspelt;
mod plugin;
mod settings;
mod silent;
mod try_down;
mod upgrade;

pub(crate) use hub::flux;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::wait::until;

/// A state directory of its own for each test, gone at its end.
pub(crate) struct Home(PathBuf);

impl Home {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(format!(
            "linesman-it-{}",
            linesman::keys::hex(&linesman::clock::random::<8>())
        ));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// The program with nothing of our own environment.
    pub(crate) fn linesman(&self, args: &[&str]) -> Command {
        // A bench names one that was built as it is shipped.
        let given = std::env::var_os("LINESMAN_TEST_BINARY");
        let program = given.unwrap_or_else(|| env!("CARGO_BIN_EXE_linesman").into());
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", &self.0)
            .env("XDG_STATE_HOME", self.0.join("state"));
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.args(args).stdin(Stdio::null()).current_dir(&self.0);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::of(&self.linesman(args).output().unwrap())
    }

    fn session(&self, hub: &str, token: &str, expires_at: Option<&str>) {
        let session = serde_json::json!({
            "current": hub,
            "hubs": { hub: { "token": token, "user": "admin", "expiresAt": expires_at } },
        });
        self.write("state/linesman/sessions.json", &session.to_string());
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Adoption YAML is long: a failed assertion shows the beginning.
impl std::fmt::Debug for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let out: String = self.out.chars().take(600).collect();
        write!(
            f,
            "exit {}, stdout {out:?}, stderr {:?}",
            self.code, self.err
        )
    }
}

impl Ran {
    fn of(output: &Output) -> Self {
        Self {
            code: output.status.code().expect("it ends by itself"),
            out: String::from_utf8(output.stdout.clone()).unwrap(),
            err: String::from_utf8(output.stderr.clone()).unwrap(),
        }
    }

    /// Every failure says what was attempted and what to do next, on stderr alone.
    fn fails(&self, code: i32, says: &str) {
        assert!(
            self.code == code && self.out.is_empty(),
            "not {code}: {self:?}"
        );
        assert!(
            self.err.contains("error: ") && self.err.contains(says),
            "{self:?}"
        );
        assert_eq!(self.err.matches("\nnext:  ").count(), 1, "{self:?}");
    }
}

/// H59
#[test]
fn a_wrong_grammar_ends_with_two() {
    let home = Home::new();
    for args in [
        &["nonsense"][..],
        &["cluster", "add", "Not_A_Name"],
        &["cluster", "add", "a", "--token-ttl", "1s"],
    ] {
        let ran = home.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
    }
    home.run(&["whoami"]).fails(2, "no hub is named");
    home.run(&["whoami", "--hub", "http://hub"])
        .fails(2, "HTTPS only");
    assert_eq!(home.run(&["--help"]).code, 0);
}

#[test]
fn a_log_filter_that_is_none_is_refused_with_those_that_are() {
    let home = Home::new();
    let ran = home.run(&["version", "--log", "debugg"]);
    ran.fails(2, "'debugg' is no log filter");
    let next = "next:  give --log (LINESMAN_LOG) off, error, warn, info, debug or trace";
    assert!(ran.err.contains(next), "{ran:?}");
}

/// H59
/// A script's variable that has no value, and a Compose file's, is set to nothing.
#[test]
fn an_empty_variable_is_one_that_is_not_set() {
    let home = Home::new();
    let names = [
        "LINESMAN_HUB",
        "LINESMAN_TOKEN_FILE",
        "LINESMAN_CA_FILE",
        "LINESMAN_LOG",
        "LINESMAN_LOG_FORMAT",
    ];
    let run = |verb: &str| {
        let mut command = home.linesman(&[verb]);
        command.envs(names.map(|name| (name, "")));
        Ran::of(&command.output().unwrap())
    };
    run("whoami").fails(2, "no hub is named");
    run("login").fails(2, "no hub to log in to is named");
}

/// What the environment gives is not named as if it had to be typed, too.
#[test]
fn the_usage_of_a_wrong_grammar_is_that_of_what_was_typed() {
    let home = Home::new();
    let show = home.run(&["heal", "show"]);
    let usage = "Usage: linesman heal show <ID>\n";
    assert!(show.err.contains(usage), "{show:?}");
    for args in [
        &["heal", "show"][..],
        &["cluster", "engine", "--replace"],
        &["audit", "tail", "--last", "1", "--after", "2"],
    ] {
        let bare = home.run(args);
        assert_eq!(bare.code, 2, "{bare:?}");
        let mut command = home.linesman(args);
        command
            .env("LINESMAN_HUB", "https://hub.invalid")
            .env("LINESMAN_TOKEN_FILE", "token")
            .env("LINESMAN_CA_FILE", "ca.crt")
            .env("LINESMAN_LOG", "info");
        let ran = Ran::of(&command.output().unwrap());
        assert_eq!((ran.code, ran.err), (2, bare.err), "{args:?}");
    }
    let none = home.run(&["heal", "list", "--limit", "0"]);
    let told = "invalid value '0' for '--limit <N>': give a number, 1 or more\n";
    assert!(none.code == 2 && none.err.contains(told), "{none:?}");
}

#[test]
fn no_session_ends_with_four() {
    let home = Home::new();
    home.run(&["cluster", "list", "--hub", "hub.example.org"])
        .fails(4, "no session for https://hub.example.org");
}

/// H59
#[test]
fn a_hub_that_is_not_there_ends_with_seven() {
    let home = Home::new();
    // A port that is taken, so that no other test gets it, and on which nobody listens.
    let taken = tokio::net::TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let hub = format!("https://{}", taken.local_addr().unwrap());
    home.session(&hub, "lmt1.a.b", None);
    home.run(&["cluster", "list"])
        .fails(7, "no connection to the hub");
    // It may be about to come.
    let waited = home.run(&["cluster", "wait", "eu1", "--timeout", "1s"]);
    waited.fails(
        6,
        "1s passed and the hub did not answer: show cluster eu1: no connection to the hub",
    );
    assert!(waited.err.contains("; asking again"), "{waited:?}");
    // What an export of before wrote is there until another one is whole.
    let kept = home.write("audit.jsonl", "{\"seq\":1}\n");
    home.run(&["audit", "export", "--file", "audit.jsonl"])
        .fails(7, "no connection to the hub");
    assert_eq!(fs::read_to_string(kept).unwrap(), "{\"seq\":1}\n");
}

#[test]
fn ctrl_c_ends_a_wait_with_130() {
    let home = Home::new();
    // A hub that takes the connection and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    home.session(
        &format!("https://{}", silent.local_addr().unwrap()),
        "lmt1.a.b",
        None,
    );
    let child = home
        .linesman(&["cluster", "wait", "eu1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (_stream, _) = silent.accept().unwrap();
    let killed = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    let ran = Ran::of(&child.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{ran:?}");
}

/// Whether a process has a handler for the signal of this number.
fn catches(pid: &str, signal: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
    caught
        .is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 1 << (signal - 1) != 0)
}

/// H59: a prompt, a token from stdin, another program: what stands in a call of the system is ended, too.
#[tokio::test]
async fn ctrl_c_ends_a_verb_that_waits_for_its_input_with_130() {
    let home = Home::new();
    let mut child = home
        .linesman(&[
            "catalog",
            "signer",
            "add",
            "-",
            "--hub",
            "https://hub.invalid",
        ])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    until("it catches SIGINT", Duration::from_secs(10), async || {
        catches(&pid, 2)
    })
    .await;
    let killed = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(killed.success());
    until("it ends", Duration::from_secs(10), async || {
        child.try_wait().unwrap().is_some()
    })
    .await;
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert_eq!(output.stderr, b"error: interrupted\n");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn completion_scripts_know_the_verbs() {
    let home = Home::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = home.run(&["completion", shell]);
        assert!(ran.code == 0 && ran.out.contains("kubeconfig"), "{shell}");
    }
}
