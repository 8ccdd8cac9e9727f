//! L49, H12: hub and agent log all that they can, and none of it is a secret or what somebody sent.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use http::Request;

use super::forms::Line;
use super::{NAMESPACE, POD, Protocol, Running, ready};
use crate::line::agent_pids;
use crate::secrecy::canaries;
use crate::support::hub::LEVEL;
use crate::support::place::{output, run};
use crate::support::world::{self, World};
use crate::support::{seconds, until};

/// How every token of a cluster begins, and every assertion of the hub: `{"alg":"`.
const JWT: &str = "eyJhbGciOi";
/// What goes through the line.
const BODY: &str = "canary-body-8Tz3Wn1Kc6";
const INPUT: &str = "canary-input-2Rb7Xq9Md4";
const COOKIE: &str = "canary-cookie-5Vh1Gs8Lp0";
const QUERY: &str = "canary-query-9Jc4Ye2Nf7";

/// Rolls the agent out with this in its environment.
fn agent_with(world: &World, setting: &str) {
    let linesman = |args: &[&str]| run(world.place.kubectl().args(["-n", "linesman"]).args(args));
    let agent = "deployment/linesman-agent";
    let before = agent_pids(world);
    linesman(&["set", "env", agent, setting]);
    linesman(&["rollout", "status", agent, "--timeout=120s"]);
    // It drains, and nobody waits for that here: of its line and log nothing is wanted any more.
    for pid in before {
        output(Command::new("kill").args(["-KILL", &pid.to_string()]));
    }
    until("one agent runs", seconds(60), || {
        let all = "--selector=app.kubernetes.io/name=linesman-agent";
        linesman(&["get", "pods", all, "-o", "name"])
            .lines()
            .count()
            == 1
    });
    until("the line is up", seconds(60), || world.line_is_up());
}

/// Writes the agent's log into the file, from its beginning on.
fn follow(world: &World, file: &Path) -> Running {
    let mut logs = world.place.kubectl();
    logs.args(["-n", "linesman", "logs", "--follow", "--tail=-1"]);
    logs.arg("deployment/linesman-agent");
    let into = File::create(file).unwrap();
    logs.stdin(Stdio::null()).stdout(into);
    Running(logs.spawn().unwrap())
}

/// Each with something in it that no log may show.
fn pass_through(world: &World) {
    let kubectl = |args: &[&str]| run(&mut Protocol::WebSocket.kubectl(world, args));
    let literal = format!("--from-literal=password={BODY}");
    kubectl(&["create", "secret", "generic", "traced", &literal]);
    kubectl(&["get", "secret", "traced", "-o", "yaml"]);
    kubectl(&["delete", "secret", "traced"]);
    for protocol in Protocol::ALL {
        let mut exec = protocol.kubectl(world, &["exec", "-i", POD, "--", "cat"]);
        assert_eq!(super::fed(&mut exec, INPUT.as_bytes()), INPUT.as_bytes());
    }
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=a%3D{QUERY}");
    let request = Request::get(path).header("cookie", format!("session={COOKIE}"));
    let (code, ..) = Line::of(world).ask(request.body(Vec::new()).unwrap());
    assert_eq!(code, 200);
}

/// L49, H12: at the finest level, of the real programs: what the Kubernetes client, TLS, WebSocket and HTTP libraries log is in
/// it.
#[test]
#[ignore = "needs a real cluster: make test"]
fn no_secret_and_nothing_sent_is_in_a_log_of_everything() {
    let mut world = world::adopted();
    ready(&world);
    world.hub.stop();
    let before = fs::metadata(world.hub.log()).unwrap().len();
    world.hub.level = "trace";
    world.hub.up();
    agent_with(&world, "LINESMAN_LOG=trace");
    let file = world.directory.join("agent-trace.log");
    let following = follow(&world, &file);
    pass_through(&world);
    // Reports go on, and the catalog is looked at.
    world.function(seconds(120));
    let read = |file: &Path| fs::read(file).unwrap();
    until("the agent's log is there", seconds(30), || {
        read(&file).len() > 100_000
    });
    drop(following);
    world.hub.stop();
    let hub = read(&world.hub.log()).split_off(usize::try_from(before).unwrap());
    world.hub.level = LEVEL;
    world.hub.up();
    agent_with(&world, "LINESMAN_LOG-");

    let logs = [("hub", hub), ("agent", read(&file))];
    let logs = logs.map(|(who, log)| (who, String::from_utf8_lossy(&log).into_owned()));
    let sent = [
        ("token or assertion", JWT),
        ("body", BODY),
        ("input", INPUT),
        ("cookie", COOKIE),
        ("query", QUERY),
    ];
    let sent = sent.map(|(what, text)| (what, text.to_owned()));
    let secrets: Vec<_> = canaries(&world).into_iter().chain(sent).collect();
    let mut found = Vec::new();
    for (who, log) in &logs {
        assert!(
            log.contains("TRACE") && log.contains("linesman::") && log.len() > 100_000,
            "the log of the {who} is no trace: {} bytes",
            log.len()
        );
        for (what, secret) in &secrets {
            let line = log.lines().find(|line| line.contains(secret.as_str()));
            found.extend(line.map(|line| {
                let shown: String = line.chars().take(300).collect();
                format!("{what} in the log of the {who}: {shown}")
            }));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    println!(
        "{} secrets looked for in {:?} bytes",
        secrets.len(),
        logs.map(|(who, log)| (who, log.len()))
    );
}
