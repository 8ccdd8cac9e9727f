//! H6, W3, W25, W27, W42: the agent is killed at every boundary of the adoption and of a key's rotation, and converges with one key
//! registered; then the API server lies to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::keys::{failed_fetches, fingerprints};
use crate::support::place::{binary, run};
use crate::support::world::{CLUSTER, FLUX, World, record};
use crate::support::{comes, eventually, figure, seconds, shown, until};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use linesman::agent::fault::Boundary;
use linesman::wire::report::StepName;

pub(crate) mod errors;
mod replicas;

/// H6, W3, W25, W27, F56. The agent runs as a process on this machine, with its own ServiceAccount's rights, so that a kill costs no
/// back-off of the kubelet: one adoption meets a kill after each of its ten steps, and before each that the agent begins by
/// itself. The other four are read off the cluster: the end of one is the beginning of the next.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_agent_that_is_killed_and_lied_to_adopts_flux_and_mends_it() {
    let world = World::open("kills");
    let kubeconfig = adopted_over_kills(&world);
    a_deploy_key_is_replaced_over_kills(&world, &kubeconfig);
    // By the name of the agents before, with whose Lease it goes on at once.
    errors::lied_to(&world);
    replicas::one_acts_and_another_takes_over(&world);
    // Two labs at once, and nothing of this one is left.
    let lab = world.place.lab().to_owned();
    world.close();
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    assert!(
        !mounts.contains(&format!("/linesman-lab/{lab}/")),
        "mounts are left"
    );
}

/// Returns the kubeconfig of the agents, the last of which is gone, too.
pub(crate) fn adopted_over_kills(world: &World) -> PathBuf {
    world.add();
    apply_without_the_pod(world);
    let kubeconfig = agents_kubeconfig(world);
    let mut missed = Vec::new();
    let mut kills = 0_u8;
    for step in StepName::ALL {
        let begun = step <= StepName::Apply;
        let edges: &[&str] = if begun {
            &["before", "after"]
        } else {
            &["after"]
        };
        for edge in edges {
            kills += 1;
            let point = format!("{step}-{edge}");
            let marker = world.directory.join(&point);
            let ended = Agent::start(world, &kubeconfig, Some((&point, &marker))).ends_itself();
            if !(ended && marker.exists()) {
                missed.push(format!("{point} (ended: {ended})"));
            }
        }
    }
    assert!(
        missed.is_empty(),
        "these boundaries were not reached: {missed:?}; see {}",
        world.directory.display()
    );
    let agent = Agent::start(world, &kubeconfig, None);
    let began = Instant::now();
    eventually("the cluster is adopted after all", seconds(180), || {
        world.synced()
    });
    world
        .hub
        .linesman(&["cluster", "wait", CLUSTER, "--timeout", "3m"]);
    figure(
        "H6",
        &world.said(&format!(
            "last of {kills} kills at the adoption's boundaries → adopted"
        )),
        "≤ 60 s",
        shown(began.elapsed()),
    );
    for kind in ["identity", "deploy"] {
        let keys = fingerprints(world, kind);
        assert_eq!(keys.len(), 1, "{kind} keys: {keys:?}");
    }
    assert_eq!(
        world
            .hub
            .json(&["cluster", "list"])
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    drop(agent);
    kubeconfig
}

/// W42: one rotation, killed at each of its boundaries; Flux' fetches do not fail meanwhile.
fn a_deploy_key_is_replaced_over_kills(world: &World, kubeconfig: &Path) {
    let before = (fingerprints(world, "deploy"), failed_fetches(world));
    let rotate = |flags: &[&str]| {
        let args = [&["cluster", "rotate", CLUSTER, "--deploy-key"], flags].concat();
        world.hub.linesman(&args);
    };
    rotate(&[]);
    for boundary in Boundary::DEPLOY {
        let point = format!("key-{}", boundary.as_str());
        let marker = world.directory.join(&point);
        let ended = Agent::start(world, kubeconfig, Some((&point, &marker))).ends_itself();
        assert!(ended && marker.exists(), "{point} was not reached");
    }
    let agent = Agent::start(world, kubeconfig, None);
    let after = fingerprints(world, "deploy");
    assert_eq!(after.len(), 1, "{after:?}");
    assert_ne!(after, before.0);
    let began = Instant::now();
    rotate(&["--wait=3m"]);
    let took = began.elapsed();
    figure("W42", "deploy key replaced, old one gone", "", shown(took));
    let new = fingerprints(world, "deploy");
    assert!(new.len() == 1 && new != after, "{new:?}");
    let secret = world
        .api
        .get(&format!("/api/v1/namespaces/{FLUX}/secrets/flux-system"));
    let secret = secret.unwrap()["data"]["identity.pub"].clone();
    let line = STANDARD.decode(secret.as_str().unwrap()).unwrap();
    let line = String::from_utf8(line).unwrap();
    let given = linesman::keys::Public::from_openssh(&line).unwrap();
    assert_eq!(new, [given.fingerprint()]);
    world.function(seconds(60));
    assert_eq!(failed_fetches(world), before.1);
    drop(agent);
}

/// The YAML as it is, but for the number of Pods: the process outside takes their place.
pub(crate) fn apply_without_the_pod(world: &World) {
    let yaml = fs::read_to_string(&world.adopt).unwrap();
    assert!(yaml.contains("replicas: 1"), "the YAML says how many Pods");
    let file = world.directory.join("adopt-no-pod.yaml");
    fs::write(&file, yaml.replace("replicas: 1", "replicas: 0")).unwrap();
    world.apply(&file);
}

/// A kubeconfig with a token of the agent's ServiceAccount.
pub(crate) fn agents_kubeconfig(world: &World) -> PathBuf {
    kubeconfig_named(world, "agent").0
}

/// The same by a name, and the token in it.
fn kubeconfig_named(world: &World, name: &str) -> (PathBuf, String) {
    let kubectl = || world.place.kubectl();
    let token = run(kubectl().args([
        "-n",
        "linesman",
        "create",
        "token",
        "linesman-agent",
        "--duration=2h",
    ]));
    let file = world.directory.join(format!("{name}.kubeconfig"));
    fs::copy(&world.place.kubeconfig, &file).unwrap();
    let config = |args: &[&str]| {
        run(kubectl()
            .arg("config")
            .args(args)
            .env("KUBECONFIG", &file)
            .arg("--kubeconfig")
            .arg(&file));
    };
    config(&[
        "set-credentials",
        "agent",
        &format!("--token={}", token.trim()),
    ]);
    config(&["set-context", "--current", "--user=agent"]);
    (file, token.trim().to_owned())
}

/// An agent as a process of this machine; killed with the value.
pub(crate) struct Agent(Child);

impl Agent {
    pub(crate) fn start(world: &World, kubeconfig: &Path, fault: Option<(&str, &Path)>) -> Self {
        Self::named(world, "linesman-agent-test", kubeconfig, fault)
    }

    fn named(world: &World, pod: &str, kubeconfig: &Path, fault: Option<(&str, &Path)>) -> Self {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(world.directory.join("agent.log"))
            .unwrap();
        let mut command = Command::new(binary());
        command.args(["agent", "--pod", pod, "--listen", "127.0.0.1:0"]);
        command.env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        if let Some((point, marker)) = fault {
            command
                .arg("--fault-at")
                .arg(format!("{point}:{}", marker.display()));
        }
        let child = command.spawn().unwrap();
        record(&world.directory, child.id());
        Self(child)
    }
}

impl Agent {
    fn ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    pub(crate) fn ends_itself(&mut self) -> bool {
        comes(seconds(240), || self.ended())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _killed = self.0.kill();
        let _joined = self.0.wait();
        until("the agent has ended", seconds(5), || {
            self.0.try_wait().is_ok_and(|s| s.is_some())
        });
    }
}
