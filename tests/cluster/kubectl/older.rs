//! kubectl of other versions than the lab's, unchanged. By themselves they choose other protocols: sessions go by SPDY up to 1.29,
//! port-forward up to 1.30.

use std::fs;
use std::process::Command;

use linesman::keys::sha256_hex;
use serde_json::{Value, json};

use super::sessions::{UNTIL_SIZED, terminal};
use super::{NAMESPACE, POD, Protocol, Running, ask, body, exit_code, fed, line, pattern, ready};
use crate::support::audit::Mark;
use crate::support::place::{kubectl_of, output, run};
use crate::support::world::{self, World};
use crate::support::{eventually, seconds};

/// One version, through the hub and without it.
struct Version<'w> {
    minor: &'static str,
    world: &'w World,
}

/// The minor's number of the first version that does it by WebSocket without being told.
const SESSIONS: u32 = 30;
const PORT_FORWARD: u32 = 31;

impl Version<'_> {
    fn direct(&self, args: &[&str]) -> Command {
        let mut command = kubectl_of(self.minor);
        command
            .arg("--kubeconfig")
            .arg(&self.world.place.kubeconfig);
        command.args(["-n", NAMESPACE]).args(args);
        command
    }

    /// As a user has it.
    fn line(&self, args: &[&str]) -> Command {
        let mut command = kubectl_of(self.minor);
        command
            .arg("--kubeconfig")
            .arg(self.world.line_kubeconfig());
        self.world.hub.environment(&mut command);
        command.args(["-n", NAMESPACE]).args(args);
        command
    }

    /// Told by what a session shall go; None = as it likes.
    fn by(&self, protocol: Option<Protocol>, args: &[&str]) -> Command {
        let mut command = self.line(args);
        if let Some(protocol) = protocol {
            let on = matches!(protocol, Protocol::WebSocket).to_string();
            command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", &on);
            command.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", &on);
        }
        command
    }

    /// By what the API server was asked for a session since then: `get` is a WebSocket, `create` SPDY.
    fn asked(since: &Mark, what: &str) -> Option<String> {
        let resource = format!("pods/{what}");
        let asked = since.answered();
        let asked = asked.iter().rfind(|asked| asked.resource == resource);
        asked.map(|asked| asked.verb.clone())
    }

    fn minor_number(&self) -> u32 {
        self.minor.split('.').nth(1).unwrap().parse().unwrap()
    }
}

/// L1 to L4: reads, watches, logs, sessions by each protocol, copies, port-forward and server-side apply.
fn works(minor: &'static str) {
    let world = world::adopted();
    ready(&world);
    let version = Version {
        minor,
        world: &world,
    };
    let told = run(&mut version.line(&["version", "-o", "json"]));
    let told: Value = serde_json::from_str(&told).unwrap();
    let git = told["clientVersion"]["gitVersion"].as_str().unwrap();
    assert!(git.starts_with(&format!("v{minor}.")), "{git}");
    assert_eq!(told["serverVersion"]["minor"], "35");
    reads(&version);
    watches_and_applies(&version);
    follows(&version);
    // What it does by itself is one of the two already, as `goes_by` sees.
    let other = if version.minor_number() >= PORT_FORWARD {
        Protocol::Spdy
    } else {
        Protocol::WebSocket
    };
    for protocol in [None, Some(other)] {
        sessions(&version, protocol);
        copies(&version, protocol);
        forwards(&version, protocol);
    }
}

fn reads(version: &Version<'_>) {
    for args in [
        &["get", "pod", POD, "-o", "yaml"][..],
        &["get", "pods", "-o", "name"],
        &[
            "get",
            "pod",
            POD,
            "-o",
            "custom-columns=N:.metadata.name,S:.status.phase",
        ],
        &["get", "namespaces", "--chunk-size=2", "-o", "json"],
        &["api-resources", "--no-headers", "-o", "name"],
        &["explain", "pods.spec.containers.ports"],
        &["auth", "can-i", "create", "pods/exec"],
        &["get", "pod", "none"],
        &["get", "gitrepositories", "-n", "flux-system", "-o", "name"],
    ] {
        let told = |mut command: Command| {
            let told = output(&mut command);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (told.status.code(), text(&told.stdout), text(&told.stderr))
        };
        eventually(&format!("{args:?}"), seconds(20), || {
            let (direct, line) = (told(version.direct(args)), told(version.line(args)));
            if direct == line {
                Ok(())
            } else {
                Err(format!("{direct:?} and {line:?}"))
            }
        });
    }
}

/// A server-side apply that makes, changes and is refused an object, and the watch that sees it.
fn watches_and_applies(version: &Version<'_>) {
    let name = format!("by-{}", version.minor.replace('.', "-"));
    let file = version.world.directory.join(format!("{name}.json"));
    let put = |said: &str| {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": NAMESPACE}, "data": {"said": said},
        });
        fs::write(&file, map.to_string()).unwrap();
    };
    let path = file.to_str().unwrap();
    let apply = ["apply", "--server-side", "-f", path];
    let shown = "jsonpath={.metadata.name}={.data.said}{\"\\n\"}";
    let watch = ["get", "configmaps", "--watch", "-o", shown];
    let (_watching, lines) = Running::start(&mut version.line(&watch));
    put("one");
    run(&mut version.line(&apply));
    line(&lines, "it is made", |line| line == format!("{name}=one"));
    put("two");
    run(&mut version.line(&apply));
    line(&lines, "it is changed", |line| {
        line == format!("{name}=two")
    });
    put("three");
    let other = [&apply[..], &["--field-manager=other"]].concat();
    let refused = output(&mut version.line(&other));
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains("conflict with \"kubectl\""), "{refused}");
    let diff =
        exit_code(&mut version.line(&["diff", "--server-side", "--force-conflicts", "-f", path]));
    assert_eq!(diff, 1, "it would change something");
    run(&mut version.line(&["delete", "-f", path]));
}

fn follows(version: &Version<'_>) {
    let (_following, lines) = Running::start(&mut version.line(&["logs", "-f", POD]));
    let said = format!("kubectl {}", version.minor);
    let attach = ["attach", "-q", "-i", POD];
    fed(&mut version.line(&attach), format!("{said}\n").as_bytes());
    let wanted = format!("got {said}");
    line(&lines, "the line is followed", |line| line == wanted);
}

fn sessions(version: &Version<'_>, protocol: Option<Protocol>) {
    let exec = |args: &[&str]| version.by(protocol, &[&["exec", POD, "--"], args].concat());
    let mark = Mark::now(&version.world.audit);
    assert_eq!(exit_code(&mut exec(&["true"])), 0, "{protocol:?}");
    let socket = match protocol {
        Some(protocol) => matches!(protocol, Protocol::WebSocket),
        None => version.minor_number() >= SESSIONS,
    };
    goes_by(&mark, "exec", socket);
    assert_eq!(exit_code(&mut exec(&["sh", "-c", "exit 1"])), 1);
    assert_eq!(exit_code(&mut exec(&["sh", "-c", "kill -9 $$"])), 137);
    let both = output(&mut exec(&["sh", "-c", "echo out; echo err >&2"]));
    assert_eq!(
        (&both.stdout[..], &both.stderr[..]),
        (&b"out\n"[..], &b"err\n"[..])
    );
    let input = pattern(1 << 20);
    let sum = ["exec", "-i", POD, "--", "sha256sum"];
    let sum = fed(&mut version.by(protocol, &sum), &input);
    let expected = format!("{}  -\n", sha256_hex(&input));
    assert_eq!(String::from_utf8_lossy(&sum), expected, "{protocol:?}");
    terminal(
        &version.by(protocol, &UNTIL_SIZED),
        &version.world.directory.join("change"),
    );
}

fn goes_by(mark: &Mark, what: &str, socket: bool) {
    let wanted = if socket { "get" } else { "create" };
    eventually(
        &format!("a WebSocket for {what}: {socket}"),
        seconds(20),
        || match Version::asked(mark, what) {
            Some(verb) if verb == wanted => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
}

fn copies(version: &Version<'_>, protocol: Option<Protocol>) {
    let [there, back] = ["older.there", "older.back"].map(|n| version.world.directory.join(n));
    let content = pattern(4 << 20);
    fs::write(&there, &content).unwrap();
    let remote = format!("{POD}:/work/older");
    run(&mut version.by(protocol, &["cp", there.to_str().unwrap(), &remote]));
    run(&mut version.by(protocol, &["cp", &remote, back.to_str().unwrap()]));
    assert!(fs::read(&back).unwrap() == content, "{protocol:?}");
}

fn forwards(version: &Version<'_>, protocol: Option<Protocol>) {
    let mark = Mark::now(&version.world.audit);
    {
        let mut forward = version.by(protocol, &["port-forward", "pod/box", ":8080"]);
        let (_forwarding, lines) = Running::start(&mut forward);
        let told = line(&lines, "the port is told", |line| {
            line.contains("127.0.0.1:")
        });
        let port = told.split("127.0.0.1:").nth(1).unwrap();
        let port: u16 = port.split(' ').next().unwrap().parse().unwrap();
        for _ in 0..3 {
            assert_eq!(body(ask(port, "/page")).len(), 1 << 20, "{protocol:?}");
        }
    }
    // The API server writes it down when the session is over. 1.29 knows no other way than SPDY.
    let minor = version.minor_number();
    let socket = match protocol {
        Some(protocol) => matches!(protocol, Protocol::WebSocket) && minor >= SESSIONS,
        None => minor >= PORT_FORWARD,
    };
    goes_by(&mark, "portforward", socket);
}

#[test]
#[ignore = "needs a real cluster: make test"]
fn kubectl_1_34_works_as_without_the_hub() {
    works("1.34");
}

#[test]
#[ignore = "needs a real cluster: make test"]
fn kubectl_1_29_works_as_without_the_hub() {
    works("1.29");
}
