//! W12 with Flux: controllers that hang and those that only take their time, told apart.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use linesman::clock::{now, rfc3339};
use serde_json::{Value, json};

use crate::blocked::pods_of_engine;
use crate::healing::{LIMIT, heals, on_record, settle, since, unchanged, workloads};
use crate::support::audit::Mark;
use crate::support::place::{lab, output, run};
use crate::support::world::{self, FLUX, World, git_repository, kustomization};
use crate::support::{figure, seconds, shown, until};

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

    /// Whether it is still meant to run.
    fn stands(&self) -> bool {
        self.world.uid(&self.path()).is_some()
    }

    /// How often the kubelet has started its container anew.
    fn restarts(&self) -> Value {
        let pod = self.world.api.get(&self.path()).unwrap_or_default();
        pod["status"]["containerStatuses"][0]["restartCount"].clone()
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

/// W12: it does not answer although it leads and is well to the kubelet: named, and its Pod ended by the agent. With the hub
/// away nobody asks it but the agent, every five minutes.
pub(super) fn is_restarted(world: &World, name: &'static str, root: &str) {
    settle(world);
    let (known, workloads) = (on_record(world), workloads(world));
    let mark = Mark::now(&world.audit);
    let mut wedged = Wedged::stop(world, name);
    let asked = if world.hub.runs() {
        reconcile(world, root);
        ", asked"
    } else {
        ""
    };
    let seen = until(
        &format!("{name} is called wedged"),
        seconds(2 * LIMIT),
        || {
            wedged.renew();
            let new = since(world, &known);
            new.iter().any(|heal| heal["class"] == "QueueWedged")
        },
    );
    let what = format!("{name} stopped (SIGSTOP), probes and Lease kept well{asked}");
    let bar = "≤ probe + 90 s";
    figure(
        "W12",
        &world.case(&format!("{what} → called QueueWedged")),
        bar,
        shown(seen),
    );
    let restarts = wedged.restarts();
    let ended = until("its Pod is ended", seconds(LIMIT), || {
        wedged.renew();
        !wedged.stands()
    });
    figure(
        "W12",
        &world.case(&format!("{what} → Pod ended by the agent")),
        bar,
        shown(seen + ended),
    );
    let by_agent = format!("delete pods/{}", wedged.pod);
    drop(wedged);
    let took = world.function(seconds(LIMIT));
    figure(
        "W12",
        &world.case(&format!("… {name} → function")),
        "≤ 60 s",
        shown(took),
    );
    assert_eq!(restarts, json!(0), "the kubelet saw nothing of it");
    // It goes on asking the other controllers that are asked by what people have.
    let mut written = mark.written_in(FLUX);
    written.retain(|write| !(write.starts_with("patch ") && write.ends_with("/asked")));
    assert_eq!(written, [by_agent]);
    settle(world);
    let new = since(world, &known);
    let wedges: Vec<&Value> = new.iter().filter(|h| h["class"] == "QueueWedged").collect();
    let [wedge] = wedges[..] else {
        panic!("{new:#?}");
    };
    let told = whole(world, wedge);
    let step = &told["steps"][0];
    assert_eq!(
        (&told["result"], &step["action"], &step["outcome"]),
        (&json!("healed"), &json!("restart"), &json!("ok")),
        "{told:#}"
    );
    unchanged(world, &workloads);
}

/// All that is on record of a heal.
fn whole(world: &World, heal: &Value) -> Value {
    if !world.hub.runs() {
        return heal.clone();
    }
    let id = heal["id"].as_str().unwrap();
    world.hub.json(&["heal", "show", id])
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
    let mut world = world::adopted();
    settle(&world);
    let known = on_record(&world);
    world.lose_hub();
    is_restarted(&world, "source-controller", &git_repository(FLUX));
    is_restarted(&world, "kustomize-controller", &kustomization(FLUX));
    world.hub_back();
    until("both are on record", seconds(LIMIT), || {
        let new = since(&world, &known);
        new.iter().filter(|h| h["class"] == "QueueWedged").count() == 2
    });
    settle(&world);
}

/// As many as kustomize-controller has workers.
const BUSY: usize = 4;
/// How long each waits for what never becomes ready, in seconds: longer than an answer of an idle controller is waited for.
const WAITS: u64 = 150;
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
    let took = until("the root has had its turn", seconds(4 * LIMIT), || {
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
    assert!(took > seconds(100), "nothing was in the root's way");
    assert_eq!(written, None, "the agent wrote");
    assert_eq!(pods_of_engine(&world), pods);
    until("what waited is gone", seconds(2 * LIMIT), || {
        (0..BUSY).all(|n| world.uid(&format!("{KUSTOMIZATIONS}/busy-{n}")).is_none())
    });
    until("no heal is open", seconds(2 * LIMIT), || {
        heals(&world).iter().all(|heal| heal["result"] != "open")
    });
    let new = since(&world, &known);
    assert!(new.iter().all(|h| h["class"] != "QueueWedged"), "{new:#?}");
    until("the cluster is healthy", seconds(LIMIT), || {
        world.phase() == "Healthy"
    });
}
