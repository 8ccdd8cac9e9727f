//! k9s, unchanged, on a terminal, as a user who may look. Its screen is tmux's, which knows what a terminal shows after all that
//! a program wrote to it.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use super::super::{NAMESPACE, POD, Protocol, fed, ready, user};
use crate::support::place::{lab, output, run, var};
use crate::support::world::{self, World};
use crate::support::{eventually, figure, seconds, shown, until};

const USER: &str = "onlooker";
/// So wide that no column that is looked at is cut.
const SIZE: [&str; 4] = ["-x", "180", "-y", "50"];
/// It would ask a host in the internet for its newest version.
const CONFIG: &str = "k9s: {skipLatestRevCheck: true, ui: {splashless: true}}\n";

fn program() -> String {
    match var("LINESMAN_TEST_KUBECONFIG") {
        Some(_) => "k9s".to_owned(),
        None => run(lab().args(["path", "k9s"])).trim().to_owned(),
    }
}

/// A terminal with one program in it, which stays to be looked at when that has ended.
struct Screen {
    /// The name of its tmux.
    name: String,
}

impl Screen {
    fn start(program: &Command) -> Self {
        let screen = Self {
            name: format!("linesman-{}", std::process::id()),
        };
        let mut tmux = screen.tmux(&["-f", "/dev/null", "start-server", ";"]);
        tmux.args(["set-option", "-g", "remain-on-exit", "on", ";"]);
        tmux.args(["new-session", "-d"]).args(SIZE);
        for (key, value) in program.get_envs() {
            tmux.env(key, value.unwrap());
        }
        tmux.args(["--", "env", "TERM=xterm-256color"]);
        run(tmux.arg(program.get_program()).args(program.get_args()));
        screen
    }

    fn tmux(&self, args: &[&str]) -> Command {
        let mut tmux = Command::new("tmux");
        tmux.args(["-u", "-L", &self.name]).args(args);
        tmux
    }

    fn types(&self, keys: &[&str]) {
        run(self.tmux(&["send-keys"]).args(keys));
    }

    fn text(&self) -> String {
        run(&mut self.tmux(&["capture-pane", "-p"]))
    }

    /// A line that has all of it is on the screen.
    fn shows(&self, what: &str, wanted: &[&str]) {
        eventually(what, seconds(60), || {
            let text = self.text();
            let has = |line: &str| wanted.iter().all(|word| line.contains(word));
            if text.lines().any(has) {
                Ok(())
            } else {
                Err(text)
            }
        });
    }

    /// The code with which the program ended.
    fn ended(&self) -> Option<i32> {
        let code = run(&mut self.tmux(&["display-message", "-p", "#{pane_dead_status}"]));
        code.trim().parse().ok()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        output(&mut self.tmux(&["kill-server"]));
    }
}

/// What the hub has on record of this user: what was done, by which path, and how it was answered.
fn recorded(world: &World) -> BTreeSet<(String, String, u64)> {
    let rows = world
        .hub
        .json(&["audit", "list", "--user", USER, "--limit", "500"]);
    let rows = rows.as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    rows.filter(|row| row["stage"] == "close")
        .map(|row| {
            let target = text(&row["target"]);
            let path = target.split('?').next().unwrap_or_default().to_owned();
            (
                text(&row["action"]),
                path,
                row["code"].as_u64().unwrap_or_default(),
            )
        })
        .collect()
}

fn says(world: &World, word: &str) {
    let attach = ["attach", "-q", "-i", POD];
    fed(
        &mut Protocol::WebSocket.kubectl(world, &attach),
        format!("{word}\n").as_bytes(),
    );
}

/// L1, L2, L48: k9s lists the Pods, describes one, follows its log and ends as it likes, and the hub has each of its requests on record.
#[test]
#[ignore = "needs k9s, whose build is long: make long"]
fn k9s_works_unchanged() {
    let world = world::adopted();
    ready(&world);
    let kubeconfig = user(&world, USER, &["--group", "view"]);
    let home = world.directory.join("k9s");
    fs::create_dir_all(&home).unwrap();
    fs::write(home.join("config.yaml"), CONFIG).unwrap();
    says(&world, "before");

    let mut k9s = Command::new(program());
    k9s.arg("--kubeconfig").arg(&kubeconfig);
    k9s.args(["-n", NAMESPACE, "--readonly", "--command", "pods"]);
    world.hub.environment(&mut k9s);
    k9s.env("NO_PROXY", "*")
        .env("K9S_CONFIG_DIR", &home)
        .env("K9S_LOGS_DIR", &home);
    let began = Instant::now();
    let screen = Screen::start(&k9s);
    screen.shows("the Pod is listed", &[POD, "1/1", "Running"]);
    figure(
        "L1",
        "k9s started → its list of Pods",
        "",
        shown(began.elapsed()),
    );

    screen.types(&["d"]);
    screen.shows("the Pod is described", &["Image:", "lab.invalid/busybox:1"]);
    screen.types(&["Escape"]);
    screen.shows("the list is back", &[POD, "1/1", "Running"]);
    screen.types(&["l"]);
    screen.shows("its log is shown", &["got before"]);
    says(&world, "meanwhile");
    screen.shows("and followed", &["got meanwhile"]);
    screen.types(&["Escape"]);
    screen.shows("the list is back", &[POD, "1/1", "Running"]);
    screen.types(&[":q", "Enter"]);
    until("it ends", seconds(30), || screen.ended().is_some());
    assert_eq!(screen.ended(), Some(0), "{}", screen.text());

    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let wanted = [
        ("kube.list", pods.clone()),
        ("kube.get", format!("{pods}/{POD}")),
        ("kube.get", format!("{pods}/{POD}/log")),
        ("kube.watch", pods),
    ]
    .map(|(action, path)| (action.to_owned(), path, 200));
    let (found, _) = eventually("its requests are on record", seconds(30), || {
        let found = recorded(&world);
        if wanted.iter().all(|wanted| found.contains(wanted)) {
            Ok(found)
        } else {
            Err(format!("{found:#?}"))
        }
    });
    let mut refused = found.iter().filter(|(.., code)| *code >= 300);
    assert_eq!(
        refused.next(),
        None,
        "all that it asked was its user's to ask"
    );
}
