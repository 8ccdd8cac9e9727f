//! Who may no longer reach a cluster is cut off from what runs there, too.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use super::{NAMESPACE, POD, Protocol, Running, ask, body, line, long_requests, ready, user};
use crate::support::audit::Mark;
use crate::support::place::{kubectl, output, run};
use crate::support::world::{self, World};
use crate::support::{at_first_sight, figure, seconds, shown, until};

/// How kubectl says which port it forwards.
const FORWARDS: &str = "Forwarding from 127.0.0.1:";
/// The bar is 5 s, which a busy machine may miss; this it may not.
const LATEST: Duration = Duration::from_secs(15);

/// A command as the owner of this kubeconfig.
pub(super) fn by(world: &World, kubeconfig: &Path, protocol: Protocol, args: &[&str]) -> Command {
    let mut command = kubectl();
    command.arg("--kubeconfig").arg(kubeconfig);
    command.args(["-n", NAMESPACE]).args(args);
    world.hub.environment(&mut command);
    protocol.choose(&mut command);
    command
}

/// What a user runs until somebody ends it.
struct Session {
    what: String,
    running: Running,
    lines: Receiver<String>,
    /// When it was over.
    ended: Option<Duration>,
    forward: Option<Forward>,
}

/// Of a port-forward: its port, and a connection through it that says nothing.
struct Forward {
    port: u16,
    open: TcpStream,
}

impl Session {
    fn start(what: String, kubectl: &mut Command) -> Self {
        let (running, lines) = Running::start(kubectl);
        Self {
            what,
            running,
            lines,
            ended: None,
            forward: None,
        }
    }

    /// Waits for the first line of its own.
    fn says(&self, wanted: impl Fn(&str) -> bool) -> String {
        line(&self.lines, &format!("{} runs", self.what), wanted)
    }

    /// Waits until the container has heard it.
    fn is_heard(&mut self) {
        let said = self.what.clone();
        writeln!(self.running.0.stdin.as_mut().unwrap(), "{said}").unwrap();
        self.says(|line| line == format!("got {said}"));
    }

    /// Waits until something has come through the port, and leaves a connection open.
    fn forwards(&mut self) {
        let told = self.says(|line| line.starts_with(FORWARDS));
        let port = told[FORWARDS.len()..].split(' ').next().unwrap();
        let port = port.parse().unwrap();
        body(ask(port, "/page"));
        let mut open = TcpStream::connect(("127.0.0.1", port)).unwrap();
        open.set_read_timeout(Some(seconds(10))).unwrap();
        open.write_all(b"GET /page HTTP/1.1\r\n").unwrap();
        self.forward = Some(Forward { port, open });
    }
}

impl Forward {
    fn is_cut(&mut self) -> bool {
        match self.open.read(&mut [0]) {
            Ok(len) => len == 0,
            Err(e) => e.kind() == ErrorKind::ConnectionReset,
        }
    }
}

/// A watch, a log, and sessions by each protocol, all of which are at work.
fn running(world: &World, kubeconfig: &Path) -> Vec<Session> {
    let mark = Mark::now(&world.audit);
    let start = |what: &str, args: &[&str]| {
        let mut kubectl = by(world, kubeconfig, Protocol::WebSocket, args);
        Session::start(format!("kubectl {what}"), &mut kubectl)
    };
    let by_each = |what: &str, args: &[&str]| {
        Protocol::ALL.map(|protocol| {
            let mut kubectl = by(world, kubeconfig, protocol, args);
            Session::start(format!("kubectl {what} by {protocol:?}"), &mut kubectl)
        })
    };
    // All of them at once: a kubectl takes its time to start.
    let watch = start(
        "get --watch",
        &["get", "pods", POD, "--watch", "-o", "name"],
    );
    let execs = by_each(
        "exec",
        &["exec", POD, "--", "sh", "-c", "echo in; sleep 300"],
    );
    let mut attaches = by_each("attach", &["attach", "-q", "-i", POD]);
    let mut forwards = by_each("port-forward", &["port-forward", POD, ":8080"]);
    watch.says(|line| line == format!("pod/{POD}"));
    for exec in &execs {
        exec.says(|line| line == "in");
    }
    for attach in &mut attaches {
        attach.is_heard();
    }
    for forward in &mut forwards {
        forward.forwards();
    }
    // The log has a line by now.
    let logs = start("logs -f", &["logs", "-f", "--tail=1", POD]);
    logs.says(|_| true);
    // What kubectl shows first is of a list, before it watches.
    until("the watch is at the API server", seconds(30), || {
        !long_requests(&mark, "watch", "ResponseStarted").is_empty()
    });
    let sessions = execs.into_iter().chain(attaches).chain(forwards);
    [watch, logs].into_iter().chain(sessions).collect()
}

/// Waits until all of them have ended, and notes when each had.
fn all_end(sessions: &mut [Session], why: &str, began: Instant) {
    at_first_sight(&format!("all end: {why}"), seconds(60), || {
        for session in sessions.iter_mut().filter(|s| s.ended.is_none()) {
            let over = session.running.over();
            session.ended = over.then(|| began.elapsed());
        }
        let left = sessions.iter().filter(|s| s.ended.is_none());
        let left: Vec<&str> = left.map(|s| s.what.as_str()).collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{} go on", left.join(", ")))
        }
    });
}

/// H32: the token revoked, the user removed: requests are refused ≤ 5 s later, and what runs ends ≤ 5 s later; of others none does.
#[test]
#[ignore = "needs a real cluster: make test"]
fn what_a_user_runs_ends_with_the_users_token_and_with_the_user() {
    let world = world::adopted();
    ready(&world);
    let others = user(&world, "stayer", &["--group", "admin"]);
    for (name, what) in [("loser", "token revoked"), ("leaver", "user removed")] {
        let own = user(&world, name, &["--group", "admin"]);
        let get = |own: &Path| {
            let get = ["get", "pod", POD, "-o", "name"];
            output(&mut by(&world, own, Protocol::WebSocket, &get))
        };
        for own in [&own, &others] {
            // The agent hears of a new grant on its own time.
            until("the grant is in force", seconds(30), || {
                get(own).status.success()
            });
        }
        let mut ends = running(&world, &own);
        let mut stay = running(&world, &others);

        let token = fs::read_to_string(world.directory.join(format!("{name}.token"))).unwrap();
        let id = token.split('.').nth(1).unwrap();
        if what == "user removed" {
            run(&mut world.hub.cli(&["user", "remove", name, "--yes"]));
        } else {
            run(&mut world.hub.cli(&["token", "revoke", id, "--yes"]));
        }
        let began = Instant::now();
        let refused = thread::scope(|scope| {
            let refused = scope.spawn(|| {
                until("requests are refused", seconds(30), || {
                    !get(&own).status.success()
                })
            });
            all_end(&mut ends, what, began);
            refused.join().unwrap()
        });
        tell(what, refused, &mut ends);
        for session in &mut stay {
            let other = &session.what;
            assert!(!session.running.over(), "{what}: another's {other} ended");
            if let Some(forward) = &session.forward {
                body(ask(forward.port, "/page"));
            }
        }
        assert!(get(&others).status.success());
    }
}

/// After the command that ended a user's access had returned.
fn tell(what: &str, refused: Duration, ends: &mut [Session]) {
    let told = |what: &str, took| figure("H32", what, "≤ 5 s", shown(took));
    told(&format!("{what} → kubectl get is refused"), refused);
    for session in ends {
        let (run, ended) = (&session.what, session.ended.unwrap());
        told(&format!("{what} → {run} has ended"), ended);
        assert!(ended <= LATEST, "{run} ended after {ended:?}: {what}");
        if let Some(forward) = &mut session.forward {
            assert!(forward.is_cut(), "a connection through it goes on: {what}");
        }
    }
}
