//! What goes on while keys are replaced: people work through the line, and the engine looks at the catalog.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

use crate::support::world::{ARGOCD, FLUX, World};

/// One session all the time, one request after the other, and one look at the catalog after the other.
pub(super) struct Load {
    watch: Child,
    requests: Loop,
    looks: Loop,
}

/// Fewer would not say much.
pub(super) const LEAST: u32 = 4;

/// A command, again and again, [`LEAST`] times at the least.
pub(crate) struct Loop {
    over: Arc<AtomicBool>,
    ends: JoinHandle<(u32, Vec<String>)>,
}

impl Load {
    pub(super) fn start(world: &World) -> Self {
        let mut watch = world.through_line();
        watch.args(["get", "namespaces", "--watch", "-o", "name"]);
        let watch = watch.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut get = world.through_line();
        get.args(["get", "namespaces", "-o", "name"]);
        let mut ask = world.place.kubectl();
        ask.args(["annotate", "--overwrite", "-n", world.namespace()]);
        if world.engine == ARGOCD {
            ask.args(["application/linesman", "argocd.argoproj.io/refresh=normal"]);
        } else {
            ask.arg("gitrepository/flux-system");
        }
        let flux = world.engine != ARGOCD;
        Self {
            watch: watch.unwrap(),
            requests: Loop::start(get),
            looks: Loop::run(ask, flux),
        }
    }

    /// How many requests and how many looks went well; nothing may have failed.
    pub(super) fn stop(mut self) -> (u32, u32) {
        let ended = [self.requests, self.looks].map(Loop::stop);
        for (good, bad) in &ended {
            assert!(
                *good >= LEAST && bad.is_empty(),
                "{good} went well, these not: {bad:?}"
            );
        }
        let cut = self.watch.try_wait().unwrap();
        assert!(cut.is_none(), "the watch was cut");
        self.watch.kill().unwrap();
        self.watch.wait().unwrap();
        (ended[0].0, ended[1].0)
    }
}

impl Loop {
    pub(crate) fn start(command: Command) -> Self {
        Self::run(command, false)
    }

    /// How often it went well, and what it said where it did not.
    pub(crate) fn stop(self) -> (u32, Vec<String>) {
        self.over.store(true, Ordering::SeqCst);
        self.ends.join().unwrap()
    }

    /// What asks Flux names another moment each time.
    fn run(mut command: Command, flux: bool) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let ends = thread::spawn(move || {
            let (mut good, mut bad) = (0_u32, Vec::new());
            let mut more = 0..LEAST;
            // On a busy machine there may have been few: some more, then.
            while !ends.load(Ordering::SeqCst) || good < LEAST && more.next().is_some() {
                let output = if flux {
                    // As the flux command asks.
                    let now = linesman::clock::rfc3339(linesman::clock::now());
                    let stamp = format!("reconcile.fluxcd.io/requestedAt={now}");
                    let mut asks = Command::new(command.get_program());
                    asks.args(command.get_args()).arg(stamp).output()
                } else {
                    command.output()
                };
                let output = output.unwrap();
                if output.status.success() {
                    good += 1;
                } else {
                    bad.push(String::from_utf8_lossy(&output.stderr).into_owned());
                }
            }
            (good, bad)
        });
        Self { over, ends }
    }
}

/// How often the engine told of a look at the catalog that failed.
pub(crate) fn failed_fetches(world: &World) -> u64 {
    if world.engine == ARGOCD {
        return counted(world, "_fail_total");
    }
    let events = world.api.get(&format!("/api/v1/namespaces/{FLUX}/events"));
    let events = events.unwrap()["items"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let failed = events.iter().filter(|e| {
        let kind = &e["involvedObject"]["kind"];
        let reason = e["reason"].as_str().unwrap_or_default();
        *kind == json!("GitRepository")
            && ["GitOperationFailed", "AuthenticationFailed"].contains(&reason)
    });
    let counted = |e: &Value| e["count"].as_u64().unwrap_or(1);
    let said = failed.inspect(|e| println!("{} times: {}", counted(e), e["message"]));
    said.map(counted).sum()
}

/// The sum of the repo-server's counters of Git whose name ends so.
fn counted(world: &World, end: &str) -> u64 {
    let metrics = "/api/v1/namespaces/argocd/services/argocd-repo-server:8084/proxy/metrics";
    let text = world.api.text(metrics).unwrap();
    let all = text.lines().filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        let (name, _) = name.split_once('{').unwrap_or((name, ""));
        let value: f64 = value.parse().ok()?;
        (name.starts_with("argocd_git_") && name.ends_with(end)).then_some(value)
    });
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count"
    )]
    let sum = all.sum::<f64>() as u64;
    sum
}
