//! Who may no longer reach a cluster is cut off from what runs there, too.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use super::{NAMESPACE, POD, Protocol, Running, line, long_requests, ready, user};
use crate::support::audit::Mark;
use crate::support::place::{kubectl, output, run};
use crate::support::world::{self, World};
use crate::support::{figure, seconds, shown, until};

/// A command as the owner of this kubeconfig.
pub(super) fn by(world: &World, kubeconfig: &Path, protocol: Protocol, args: &[&str]) -> Command {
    let mut command = kubectl();
    command.arg("--kubeconfig").arg(kubeconfig);
    command.args(["-n", NAMESPACE]).args(args);
    world.hub.environment(&mut command);
    let on = matches!(protocol, Protocol::WebSocket).to_string();
    command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", on);
    command
}

/// A watch and a session by each protocol, which run until somebody ends them.
fn running(world: &World, kubeconfig: &Path) -> Vec<(String, Running, Receiver<String>)> {
    let mark = Mark::now(&world.audit);
    let watch = ["get", "pods", POD, "--watch", "-o", "name"];
    let mut watch = by(world, kubeconfig, Protocol::WebSocket, &watch);
    let (watch, seen) = Running::start(&mut watch);
    line(&seen, "the watch shows the Pod", |line| {
        line == format!("pod/{POD}")
    });
    // What kubectl shows first is of a list, before it watches.
    until("the watch is at the API server", seconds(30), || {
        !long_requests(&mark, "watch", "ResponseStarted").is_empty()
    });
    let mut all = vec![("kubectl get --watch".to_owned(), watch, seen)];
    for protocol in Protocol::ALL {
        let exec = ["exec", POD, "--", "sh", "-c", "echo in; sleep 300"];
        let (session, said) = Running::start(&mut by(world, kubeconfig, protocol, &exec));
        line(&said, "the session runs", |line| line == "in");
        all.push((format!("kubectl exec by {protocol:?}"), session, said));
    }
    all
}

/// H32: the token revoked, the user removed: requests are refused ≤ 5 s later, watches and sessions end ≤ 30 s later; of
/// others none does.
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
        let began = Instant::now();
        if what == "user removed" {
            run(&mut world.hub.cli(&["user", "remove", name, "--yes"]));
        } else {
            run(&mut world.hub.cli(&["token", "revoke", id, "--yes"]));
        }
        until("requests are refused", seconds(30), || {
            !get(&own).status.success()
        });
        figure(
            "H32",
            &format!("{what} → kubectl get is refused"),
            "≤ 5 s",
            shown(began.elapsed()),
        );
        for (run, running, _) in &mut ends {
            until(&format!("{run} ends: {what}"), seconds(60), || {
                running.over()
            });
            figure(
                "H32",
                &format!("{what} → {run} has ended"),
                "≤ 30 s",
                shown(began.elapsed()),
            );
        }
        for (run, running, _) in &mut stay {
            assert!(!running.over(), "{what}: another user's {run} ended");
        }
        assert!(get(&others).status.success());
    }
}
