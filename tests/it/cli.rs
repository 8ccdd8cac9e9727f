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
mod login;
mod misspelt;
mod settings;
mod silent;
mod upgrade;

pub(crate) use hub::flux;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

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
    // A port that was just free: nobody listens on it.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    home.session(&format!("https://127.0.0.1:{port}"), "lmt1.a.b", None);
    home.run(&["cluster", "list"])
        .fails(7, "no connection to the hub");
    home.run(&["cluster", "wait", "eu1"])
        .fails(7, "no connection to the hub");
    // What an export of before wrote is there until another one is whole.
    let kept = home.write("audit.jsonl", "{\"seq\":1}\n");
    home.run(&["audit", "export", "--file", "audit.jsonl"])
        .fails(7, "no connection to the hub");
    assert_eq!(fs::read_to_string(kept).unwrap(), "{\"seq\":1}\n");
}

#[test]
fn the_plugin_prints_the_sessions_token_and_asks_nobody() {
    let home = Home::new();
    home.session(
        "https://hub.invalid",
        "lmt1.id.secret",
        Some("2999-01-01T00:00:00.000Z"),
    );
    let ran = home.run(&["credential", "--hub", "https://hub.invalid/"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let credential: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(credential["apiVersion"], "client.authentication.k8s.io/v1");
    assert_eq!(credential["status"]["token"], "lmt1.id.secret");
    assert_eq!(
        credential["status"]["expirationTimestamp"],
        "2998-12-31T23:59:30Z"
    );
    assert_eq!(ran.err, "");
}

/// H31: kubectl runs the plugin before each command. Its bar, 15 ms, is for the release; this asserts that it does nothing
/// that takes its time, in any build and beside other tests.
#[test]
fn the_plugin_is_there_and_gone_while_its_session_is_good() {
    const MOST: Duration = Duration::from_secs(2);
    let home = Home::new();
    let hub = "https://hub.invalid";
    home.session(hub, "lmt1.id.secret", Some("2999-01-01T00:00:00.000Z"));
    let run = || {
        let begun = Instant::now();
        let ran = home.run(&["credential", "--hub", hub]);
        assert_eq!(ran.code, 0, "{ran:?}");
        begun.elapsed()
    };
    let mut times: Vec<Duration> = (0..50).map(|_| run()).collect();
    times.sort_unstable();
    let median = times[25];
    println!("figure | H31 | credential of a good session, median of 50 | ≤ 15 ms | {median:.1?}");
    assert!(median < MOST, "{median:?}");
}

#[test]
fn the_plugin_without_a_good_session_says_what_to_run() {
    let home = Home::new();
    home.run(&["credential", "--hub", "https://hub.invalid"])
        .fails(1, "no session for https://hub.invalid");
    home.session(
        "https://hub.invalid",
        "lmt1.id.secret",
        Some("2020-01-01T00:00:00Z"),
    );
    let ran = home.run(&["credential", "--hub", "https://hub.invalid"]);
    ran.fails(1, "has expired");
    assert!(
        ran.err.contains("linesman login https://hub.invalid"),
        "{ran:?}"
    );
}

/// kubectl asks for the hub of each kubeconfig, in one environment.
#[test]
fn the_environments_token_is_shown_to_the_environments_hub_alone() {
    const OWN: &str = "lmt1.of.b";
    let home = Home::new();
    let file = home.write("b.token", OWN);
    let file = file.to_str().unwrap();
    home.session("https://a.invalid", "lmt1.of.a", None);
    let run = |hub: &str, environments: &str, flags: &[&str]| {
        let ask = ["credential", "--hub", hub];
        let mut command = home.linesman(&[&ask[..], flags].concat());
        command.env("LINESMAN_TOKEN_FILE", file);
        if !environments.is_empty() {
            command.env("LINESMAN_HUB", environments);
        }
        Ran::of(&command.output().unwrap())
    };
    let rows: [(&str, &str, &[&str], &str); 6] = [
        // By whatever name the same hub goes.
        ("https://b.invalid", "https://b.invalid", &[], OWN),
        ("b.invalid/", "https://B.invalid:443/", &[], OWN),
        // It has been said of no hub that it is the token's.
        ("https://a.invalid", "", &[], OWN),
        ("https://a.invalid", "https://b.invalid", &[], "lmt1.of.a"),
        ("https://a.invalid", "no hub at all", &[], "lmt1.of.a"),
        // A flag is for the hub of its command.
        (
            "https://a.invalid",
            "https://b.invalid",
            &["--token-file", file],
            OWN,
        ),
    ];
    for (hub, environments, flags, token) in rows {
        let ran = run(hub, environments, flags);
        let row = format!("{hub} {environments} {flags:?}: {ran:?}");
        assert_eq!(ran.code, 0, "{row}");
        let credential: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(credential["status"]["token"], token, "{row}");
    }
    let ran = run("https://c.invalid", "https://b.invalid", &[]);
    ran.fails(1, "no session for https://c.invalid, and LINESMAN_TOKEN_FILE is for the hub that LINESMAN_HUB names");
    assert!(!ran.err.contains(OWN), "{ran:?}");
    let mut command = home.linesman(&["cluster", "list", "--hub", "https://c.invalid"]);
    command
        .env("LINESMAN_TOKEN_FILE", file)
        .env("LINESMAN_HUB", "https://b.invalid");
    Ran::of(&command.output().unwrap()).fails(4, "run: linesman login https://c.invalid");
}

#[test]
fn a_token_file_that_holds_no_token_is_refused_unseen() {
    let home = Home::new();
    let file = home.write("token", "two words of hunter2\n");
    let ran = home.run(&[
        "credential",
        "--hub",
        "hub.invalid",
        "--token-file",
        file.to_str().unwrap(),
    ]);
    ran.fails(2, "holds no token");
    assert!(!ran.err.contains("hunter2"), "{ran:?}");
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

#[test]
fn a_broken_catalog_ends_with_one_and_names_the_file() {
    let home = Home::new();
    home.write("catalog/clusters/eu1/apps.yaml", "a: [\n");
    let ran = home.run(&["catalog", "lint", "catalog"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("clusters/eu1/apps.yaml"), "{ran:?}");
    let json = home.run(&["catalog", "lint", "catalog", "-o", "json"]);
    assert_eq!(
        serde_json::from_str::<Value>(&json.out).unwrap()[0]["file"],
        "clusters/eu1/apps.yaml"
    );
    home.run(&["catalog", "lint", "state"])
        .fails(3, "is no catalog");
    let sound = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\n";
    home.write("catalog/clusters/eu1/apps.yaml", sound);
    let ran = home.run(&["catalog", "lint", "catalog"]);
    let told = (ran.code, ran.out.as_str(), ran.err.as_str());
    assert_eq!(told, (0, "", "1 file, nothing to mend\n"));
}

/// What is not checked is said: one byte more than is read of a file.
#[test]
fn a_file_that_is_too_long_to_check_is_a_finding() {
    const LIMIT: usize = 4 << 20;
    let home = Home::new();
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\n";
    let long = |size: usize| format!("{map}#{}", "x".repeat(size - map.len() - 1));
    let name = "catalog/clusters/eu1/apps.yaml";
    home.write(name, &long(LIMIT));
    let lint = || home.run(&["catalog", "lint", "catalog", "-o", "json"]);
    assert_eq!(lint().code, 0);
    home.write(name, &long(LIMIT + 1));
    let ran = lint();
    assert_eq!(ran.code, 1, "{ran:?}");
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(found.as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!(found[0]["file"], "clusters/eu1/apps.yaml");
    assert_eq!(
        found[0]["message"],
        "has 4194305 bytes and was not checked: no more than 4194304 of a file are read"
    );
}

/// Flux leaves links out, and Argo CD follows some: whoever pushes one is told.
#[test]
fn a_symbolic_link_is_a_finding_where_a_cluster_would_miss_it() {
    let home = Home::new();
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\n";
    home.write("catalog/clusters/eu1/map.yaml", map);
    home.write("catalog/base/other.yaml", map);
    home.write("catalog/README.md", "");
    home.write("outside.yaml", map);
    let lint = || home.run(&["catalog", "lint", "catalog", "-o", "json"]);
    let linked = |target: &str, name: &str| {
        let path = home.0.join("catalog").join(name);
        std::os::unix::fs::symlink(target, path).unwrap();
    };
    // No cluster misses it.
    linked("README.md", "INTRO.md");
    assert_eq!(lint().code, 0);
    linked("../../base/other.yaml", "clusters/eu1/linked.yaml");
    linked("../base", "clusters/eu2");
    linked("../outside.yaml", "outside.md");
    let absolute = home.0.join("catalog/README.md");
    linked(absolute.to_str().unwrap(), "absolute.md");
    linked("nowhere", "nowhere");
    let ran = lint();
    assert_eq!(ran.code, 1, "{ran:?}");
    let found: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
    let found: Vec<(&str, &str)> = found
        .iter()
        .map(|f| (f["file"].as_str().unwrap(), f["message"].as_str().unwrap()))
        .collect();
    let left_out = "is a symbolic link and was not checked: Flux leaves it out";
    let refused = "is a symbolic link that is absolute or leaves the catalog: Flux leaves it out, and Argo CD takes nothing from \
                   such a repository";
    let wanted = [
        ("absolute.md", refused),
        ("clusters/eu1/linked.yaml", left_out),
        ("clusters/eu2", left_out),
        ("nowhere", "is a symbolic link to what is not there"),
        ("outside.md", refused),
    ];
    assert_eq!(found, wanted);
}

#[test]
fn logging_out_forgets_the_token() {
    let home = Home::new();
    home.session("https://hub.invalid", "lmt1.id.secret", None);
    let ran = home.run(&["logout"]);
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (0, "logged out of https://hub.invalid\n")
    );
    let kept = fs::read_to_string(home.0.join("state/linesman/sessions.json")).unwrap();
    assert!(!kept.contains("secret"), "{kept}");
    assert_eq!(mode(&home.0.join("state/linesman/sessions.json")), 0o600);
    home.run(&["whoami"]).fails(2, "no session is kept");
    let of = |hub: &str| serde_json::json!({ "token": format!("lmt1.of.{hub}"), "user": "ada" });
    let two = serde_json::json!({
        "current": "https://a.invalid",
        "hubs": { "https://a.invalid": of("a"), "https://b.invalid": of("b") },
    });
    home.write("state/linesman/sessions.json", &two.to_string());
    assert_eq!(home.run(&["logout"]).code, 0);
    let other = home.run(&["whoami"]);
    other.fails(2, "sessions are kept for https://b.invalid");
    assert!(
        other
            .err
            .ends_with("next:  name the hub: --hub https://b.invalid\n"),
        "{other:?}"
    );
}

/// It stopped every verb, those that need no session and the one that ends them among these.
#[test]
fn a_damaged_file_of_sessions_is_in_nobodys_way() {
    let home = Home::new();
    home.write("state/linesman/sessions.json", "{damaged");
    home.write("token", "lmt1.id.secret");
    let given = [
        "credential",
        "--hub",
        "https://hub.invalid",
        "--token-file",
        "token",
    ];
    let ran = home.run(&given);
    assert!(
        ran.code == 0 && ran.out.contains("lmt1.id.secret"),
        "{ran:?}"
    );
    for verb in ["whoami", "logout"] {
        let ran = home.run(&[verb]);
        ran.fails(1, "sessions.json does not hold sessions");
        assert!(ran.err.contains("linesman logout --all"), "{ran:?}");
    }
    let all = home.run(&["logout", "--all"]);
    let told = "what was kept could not be read and is forgotten; at the hubs it ends by itself\n";
    assert_eq!((all.code, all.err.as_str()), (0, told));
    home.run(&["whoami"]).fails(2, "no session is kept");
    let mut homeless = home.linesman(&["whoami"]);
    homeless.env_remove("HOME").env_remove("XDG_STATE_HOME");
    let ran = Ran::of(&homeless.output().unwrap());
    ran.fails(1, "sessions have no place");
    assert!(ran.err.contains("LINESMAN_TOKEN_FILE"), "{ran:?}");
}

/// As with every other verb, the hub is that of the environment where the command line names none.
#[test]
fn logging_out_is_of_the_hub_that_is_meant() {
    let home = Home::new();
    let of = |hub: &str| serde_json::json!({ "token": format!("lmt1.of.{hub}"), "user": "ada" });
    let hubs = ["a", "b", "c"].map(|hub| (format!("https://{hub}.invalid"), of(hub)));
    let hubs: serde_json::Map<String, Value> = hubs.into_iter().collect();
    let kept = serde_json::json!({ "current": "https://a.invalid", "hubs": hubs });
    home.write("state/linesman/sessions.json", &kept.to_string());
    let mut command = home.linesman(&["logout"]);
    let by_variable = command.env("LINESMAN_HUB", "b.invalid").output().unwrap();
    assert_eq!(
        Ran::of(&by_variable).err,
        "logged out of https://b.invalid\n"
    );
    let by_flag = home.run(&["logout", "--hub", "c.invalid"]);
    assert_eq!(by_flag.err, "logged out of https://c.invalid\n");
    assert_eq!(
        home.run(&["logout"]).err,
        "logged out of https://a.invalid\n"
    );
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
