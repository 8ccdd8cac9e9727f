//! W12 with Flux: controllers that hang and those that only take their time, told apart.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use linesman::clock::{now, rfc3339};
use serde_json::{Value, json};

use crate::blocked::pods_of_engine;
use crate::healing::{LIMIT, none_is_open, on_record, settle, since, unchanged, whole, workloads};
use crate::support::audit::Mark;
use crate::support::place::{lab, output, run};
use crate::support::world::{self, FLUX, World, git_repository, kustomization};
use crate::support::{closely, figure, seconds, shown, until};

use super::alone::alone;

/// A controller whose queue stands still while the process is well to all who ask: its probes succeed, and its Lease is
/// renewed in its name.
struct Wedged<'a> {
    world: &'a World,
    name: &'static str,
    pod: String,
    address: String,
    /// Who answers the kubelet in its place.
    port: u16,
    renewed: Option<Instant>,
    /// How often the kubelet has started its container anew.
    restarts: Value,
}

/// Where the kubelet asks Flux' controllers: health, and source-controller's files.
const PROBES: [&str; 2] = ["9440", "9090"];
/// As often as Flux renews.
const RENEWAL: Duration = Duration::from_secs(5);

impl<'a> Wedged<'a> {
    fn stop(world: &'a World, name: &'static str) -> Self {
        let pods = format!("/api/v1/namespaces/{FLUX}/pods?labelSelector=app%3D{name}");
        let pods = world.api.get(&pods).unwrap();
        let pod = &pods["items"][0];
        let mut wedged = Self {
            world,
            name,
            pod: pod["metadata"]["name"].as_str().unwrap().to_owned(),
            address: pod["status"]["podIP"].as_str().unwrap().to_owned(),
            port: says_well(&world.place.host),
            renewed: None,
            restarts: json!(0),
        };
        wedged.answer("-I");
        wedged.renew();
        let script = format!("kill -STOP $(pgrep -f '^/usr/local/bin/{name}')");
        run(lab().args(["exec", world.place.lab(), "sh", "-c", &script]));
        wedged
    }

    fn path(&self) -> String {
        format!("/api/v1/namespaces/{FLUX}/pods/{}", self.pod)
    }

    /// Keeps it well to all who ask for as long as it is meant to run. False = it is not any more.
    fn stands(&mut self) -> bool {
        self.renew();
        let live = self.world.api.get(&self.path()).unwrap_or_default();
        let meta = &live["metadata"];
        if meta["uid"].is_null() || !meta["deletionTimestamp"].is_null() {
            assert_eq!(self.restarts, json!(0), "the kubelet saw nothing of it");
            return false;
        }
        self.restarts = live["status"]["containerStatuses"][0]["restartCount"].clone();
        true
    }

    fn renew(&mut self) {
        if self.renewed.is_some_and(|at| at.elapsed() < RENEWAL) {
            return;
        }
        self.renewed = Some(Instant::now());
        let lease = format!(
            "/apis/coordination.k8s.io/v1/namespaces/{FLUX}/leases/{}-leader-election",
            self.name
        );
        // A MicroTime has six digits.
        let now = rfc3339(now()).replace('Z', "000Z");
        let renewed = json!({ "spec": { "renewTime": now } });
        self.world.api.patch(&lease, &renewed);
    }

    /// Leads what the kubelet asks of the Pod to who answers for it.
    fn answer(&self, what: &str) {
        let to = format!("{}:{}", self.world.place.host, self.port);
        let port = self.port.to_string();
        for asked in PROBES {
            let mut rule = self.rule(what, "OUTPUT");
            rule.args(["-d", &self.address, "-p", "tcp", "--dport", asked]);
            let done = output(rule.args(["-j", "DNAT", "--to-destination", &to]));
            assert!(done.status.success() || what == "-D", "{rule:?}");
        }
        let mut back = self.rule(what, "POSTROUTING");
        back.args(["-d", &self.world.place.host, "-p", "tcp", "--dport", &port]);
        let done = output(back.args(["-j", "MASQUERADE"]));
        assert!(done.status.success() || what == "-D", "{back:?}");
    }

    fn rule(&self, what: &str, chain: &str) -> Command {
        let mut command = lab();
        command.args(["exec", self.world.place.lab(), "iptables", "-w"]);
        command.args(["-t", "nat", what, chain]);
        command
    }
}

impl Drop for Wedged<'_> {
    fn drop(&mut self) {
        self.answer("-D");
        // It ends like one that only reconciles no more; where it was not ended, others need it.
        let script = format!("pkill -CONT -f '^/usr/local/bin/{}' || true", self.name);
        let _gone = output(lab().args(["exec", self.world.place.lab(), "sh", "-c", &script]));
    }
}

/// A server that says to everybody that all is well, for as long as the tests run.
fn says_well(host: &str) -> u16 {
    let listener = TcpListener::bind((host, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // Who asks and goes away is not answered.
            let _gone = well(&mut stream);
        }
    });
    port
}

fn well(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(seconds(2)))?;
    let mut asked = [0; 2048];
    let _length = stream.read(&mut asked)?;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

/// Asks as `flux reconcile` does.
fn reconcile(world: &World, root: &str) {
    let asked = json!({ "reconcile.fluxcd.io/requestedAt": rfc3339(now()) });
    let asked = json!({ "metadata": { "annotations": asked } });
    world.api.patch(root, &asked);
}

/// W12: one controller of [`are_restarted`].
pub(super) fn is_restarted(world: &World, name: &'static str, root: &str) {
    are_restarted(world, &[(name, root)]);
}

/// W12: controllers do not answer although they lead and are well to the kubelet: each is named, and its Pod ended by the agent.
/// Each comes with the object that it is asked by; with the hub away nobody asks them but the agent, every five minutes.
pub(super) fn are_restarted(world: &World, all: &[(&'static str, &str)]) {
    settle(world);
    let (known, workloads) = (on_record(world), workloads(world));
    let mark = Mark::now(&world.audit);
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let mut standing: Vec<Wedged> = names.iter().map(|name| Wedged::stop(world, name)).collect();
    let pods = standing.iter().map(|w| format!("delete pods/{}", w.pod));
    let by_agent: BTreeSet<String> = pods.collect();
    let asked = if world.hub.runs() {
        for (_, root) in all {
            reconcile(world, root);
        }
        ", asked"
    } else {
        ""
    };
    let (began, mut called) = (Instant::now(), false);
    let stopped = |names: &str, came: &str| {
        let what = format!("{names} stopped (SIGSTOP), probes and Lease kept well{asked} → {came}");
        let took = shown(began.elapsed());
        figure("W12", &world.case(&what), "≤ probe + 90 s", took);
    };
    let names = names.join(", ");
    until(
        "each is called wedged, its Pod ended",
        seconds(3 * LIMIT),
        || {
            let new = wedges(&since(world, &known)).len();
            if new == all.len() && !called {
                called = true;
                stopped(&names, "called QueueWedged");
            }
            standing.retain_mut(|wedged| {
                let stands = wedged.stands();
                if !stands {
                    stopped(wedged.name, "Pod ended by the agent");
                }
                stands
            });
            called && standing.is_empty()
        },
    );
    let took = world.function(seconds(LIMIT));
    let what = world.case(&format!("… {names} → function"));
    figure("W12", &what, "≤ 60 s", shown(took));
    // It goes on asking the other controllers that are asked by what people have.
    let mut written = mark.written_in(FLUX);
    written.retain(|write| !(write.starts_with("patch ") && write.ends_with("/asked")));
    assert_eq!(written.len(), all.len(), "{written:?}");
    assert_eq!(written.into_iter().collect::<BTreeSet<_>>(), by_agent);
    settle(world);
    let new = since(world, &known);
    assert_eq!(wedges(&new).len(), all.len(), "{new:#?}");
    for wedge in wedges(&new) {
        let told = whole(world, wedge);
        let step = &told["steps"][0];
        assert_eq!(
            (&told["result"], &step["action"], &step["outcome"]),
            (&json!("healed"), &json!("restart"), &json!("ok")),
            "{told:#}"
        );
    }
    unchanged(world, &workloads);
}

fn wedges(heals: &[Value]) -> Vec<&Value> {
    let all = heals.iter();
    all.filter(|heal| heal["class"] == "QueueWedged").collect()
}

#[test]
#[ignore = "takes minutes: make chaos"]
fn a_source_controller_that_hangs_and_leads_is_restarted() {
    is_restarted(
        &world::adopted(),
        "source-controller",
        &git_repository(FLUX),
    );
}

#[test]
#[ignore = "takes minutes: make chaos"]
fn a_kustomize_controller_that_hangs_and_leads_is_restarted() {
    is_restarted(
        &world::adopted(),
        "kustomize-controller",
        &kustomization(FLUX),
    );
}

/// W12: found by the agent's own probe, and on record once the hub is back.
#[test]
#[ignore = "takes minutes: make chaos"]
fn controllers_that_hang_and_lead_are_restarted_without_the_hub_too() {
    alone(&mut world::adopted(), |world| {
        is_restarted(world, "source-controller", &git_repository(FLUX));
        is_restarted(world, "kustomize-controller", &kustomization(FLUX));
    });
}

/// As many as kustomize-controller has workers.
const BUSY: usize = 4;
/// How long each waits for what never becomes ready, in seconds, as the acceptance has it: much longer than an answer of an idle
/// controller is waited for.
const WAITS: u64 = 300;
const KUSTOMIZATIONS: &str =
    "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/flux-system/kustomizations";

/// Kustomizations that wait for a Deployment whose image nobody has.
struct Waiting<'a>(&'a World);

impl<'a> Waiting<'a> {
    fn of(world: &'a World) -> Self {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "never"},
            "spec": {
                "selector": {"matchLabels": {"app": "never"}},
                "template": {
                    "metadata": {"labels": {"app": "never"}},
                    "spec": {"containers": [{"name": "never", "image": "lab.invalid/none:0"}]},
                },
            },
        });
        world.push("never/deployment.yaml", &deployment.to_string());
        settle(world);
        for n in 0..BUSY {
            let kustomization = json!({
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": {"name": format!("busy-{n}")},
                "spec": {
                    "interval": "10m", "timeout": format!("{WAITS}s"), "wait": true, "prune": true,
                    "path": "./never", "namePrefix": format!("busy-{n}-"), "targetNamespace": "default",
                    "sourceRef": {"kind": "GitRepository", "name": FLUX},
                },
            });
            world.api.create(KUSTOMIZATIONS, &kustomization);
        }
        let waiting = Self(world);
        until("all workers wait", seconds(LIMIT), || {
            (0..BUSY).all(|n| {
                let live = world.api.get(&format!("{KUSTOMIZATIONS}/busy-{n}"));
                let live = live.unwrap_or_default();
                let said = live["status"]["conditions"].to_string();
                said.contains("Running health checks")
            })
        });
        waiting
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        for n in 0..BUSY {
            self.0.api.delete(&format!("{KUSTOMIZATIONS}/busy-{n}"));
        }
    }
}

/// W12: a controller all of whose workers wait for something has not hung: it is not restarted.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_kustomize_controller_that_waits_for_health_is_left_alone() {
    let world = world::adopted();
    settle(&world);
    let known = on_record(&world);
    let mark = Mark::now(&world.audit);
    let pods = pods_of_engine(&world);
    let waiting = Waiting::of(&world);
    let root = kustomization(FLUX);
    reconcile(&world, &root);
    let took = closely("the root has had its turn", seconds(4 * LIMIT), || {
        let live = world.api.get(&root).unwrap();
        let asked = &live["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"];
        *asked == live["status"]["lastHandledReconcileAt"]
    });
    let what = format!(
        "all {BUSY} workers of kustomize-controller wait {WAITS} s for health → the root has its turn"
    );
    figure("W12", &what, "", shown(took));
    let written = mark.first_mending_write();
    drop(waiting);
    assert!(
        took > seconds(WAITS - 50),
        "it was not in the root's way for long"
    );
    assert_eq!(written, None, "the agent wrote");
    assert_eq!(pods_of_engine(&world), pods);
    until("what waited is gone", seconds(2 * LIMIT), || {
        (0..BUSY).all(|n| world.uid(&format!("{KUSTOMIZATIONS}/busy-{n}")).is_none())
    });
    until("no heal is open", seconds(2 * LIMIT), || {
        none_is_open(&world)
    });
    let new = since(&world, &known);
    assert!(new.iter().all(|h| h["class"] != "QueueWedged"), "{new:#?}");
    until("the cluster is healthy", seconds(LIMIT), || {
        world.phase() == "Healthy"
    });
}
