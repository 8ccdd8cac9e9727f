//! The hub in Kubernetes, of what `linesman hub manifests` prints: in the cluster that it adopts, as nobody should have it alone, for a
//! lab is one cluster.

use std::fs;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use serde_json::{Value, json};

use crate::support::api::path;
use crate::support::place::{binary, output, root, run};
use crate::support::world::{CLUSTER, World, condition};
use crate::support::{seconds, until};

mod whole {
    #[test]
    #[ignore = "needs a real cluster: make chaos"]
    fn a_hub_of_the_printed_manifests_adopts_a_cluster_and_outlives_its_pod() {
        super::alone();
    }

    #[test]
    #[ignore = "needs a real cluster: make chaos"]
    fn replicas_of_the_printed_manifests_share_records_and_volume() {
        super::several();
    }
}

const IMAGE: &str = "lab.invalid/linesman-hub:dev";
/// Namespace, StatefulSet and Service.
const HUB: &str = "linesman-hub";
/// The first of its Pods.
const FIRST: &str = "linesman-hub-0";
/// The user in the Pod.
const USER: u32 = 65_532;
const HTTPS: u16 = 30_443;
const GIT: u16 = 30_222;

fn alone() {
    let world = World::open("hosted");
    let hosted = Hosted::new(&world);
    let said = hosted.apply(&[]);
    assert!(!said.contains("Warning"), "{said}");
    hosted.ready(1);
    // It ends with 1 where applying them again would change something.
    let mut diff = world.place.kubectl();
    run(diff.args(["diff", "-f"]).arg(hosted.file()));
    hosted.log_in();
    adopts(&world, &hosted);
    let wrong = hosted.failing_checks();
    assert_eq!(wrong, [] as [Value; 0]);
    // As the docs have it: by the hub's user, where its data is.
    hosted.exec(&["linesman", "hub", "rotate", "key", "--in", "10s"]);
    let before = [hosted.clusters(), hosted.commit()];
    hosted.lose(FIRST);
    hosted.ready(1);
    assert_eq!([hosted.clusters(), hosted.commit()], before);
    until("the line is back", seconds(120), || hosted.line_is_up());
    world.close();
}

/// The agent and Flux in the cluster reach the hub at its URLs, and a commit arrives.
fn adopts(world: &World, hosted: &Hosted<'_>) {
    let bundle = world.directory.join("flux.yaml");
    hosted.linesman(&["engine", "import", bundle.to_str().unwrap()]);
    let adopt = hosted.directory.join("adopt.yaml");
    let file = adopt.to_str().unwrap();
    hosted.linesman(&["cluster", "add", CLUSTER, "--file", file]);
    world.apply(&adopt);
    hosted.linesman(&["cluster", "wait", CLUSTER, "--for=healthy", "--timeout=8m"]);
    let clone = hosted.directory.join("catalog");
    hosted.linesman(&["catalog", "clone", clone.to_str().unwrap()]);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "hosted", "namespace": "default"}, "data": {"is": "there"},
    });
    let cluster = clone.join("clusters").join(CLUSTER);
    fs::create_dir_all(&cluster).unwrap();
    fs::write(cluster.join("hosted.yaml"), map.to_string()).unwrap();
    for args in [
        &["add", "--all"][..],
        &["commit", "--quiet", "--message", "Add a map"],
        &["push", "--quiet"],
    ] {
        run(Command::new("git").arg("-C").arg(&clone).args(args));
    }
    let map = path("v1", "ConfigMap", "default", "hosted");
    until("the commit is applied", seconds(120), || {
        world.uid(&map).is_some()
    });
}

fn several() {
    let world = World::open("hostedmany");
    let hosted = Hosted::new(&world);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let url = runtime.block_on(async {
        let url = crate::postgres::database().await;
        crate::postgres::with_tls(&url).await.0
    });
    // The server listens on this machine alone.
    let (_, server) = url.split_once("@localhost:").unwrap();
    let (port, database) = server.split_once('/').unwrap();
    let host = &world.place.host;
    let port = relay(host, port.parse().unwrap());
    let url = format!("postgres://linesman@{host}:{port}/{database}?sslmode=require");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HUB}});
    world.api.create("/api/v1/namespaces", &namespace);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "database", "namespace": HUB}, "stringData": {"url": url},
    });
    let secrets = format!("/api/v1/namespaces/{HUB}/secrets");
    world.api.create(&secrets, &secret);
    hosted.apply(&["--replicas=2", "--database-secret=database", "--drain=10s"]);
    hosted.ready(2);
    hosted.log_in();
    let bundle = world.directory.join("flux.yaml");
    hosted.linesman(&["engine", "import", bundle.to_str().unwrap()]);
    let adopt = hosted.directory.join("adopt.yaml");
    let file = adopt.to_str().unwrap();
    hosted.linesman(&["cluster", "add", CLUSTER, "--file", file]);
    assert_eq!(hosted.failing_checks(), [] as [Value; 0]);
    let before = [hosted.clusters(), hosted.commit()];
    for pod in ["linesman-hub-1", FIRST] {
        hosted.lose(pod);
        hosted.ready(2);
        assert_eq!([hosted.clusters(), hosted.commit()], before, "{pod}");
    }
    world.close();
}

/// A port of this machine for the lab, which leads to one of loopback.
fn relay(host: &str, port: u16) -> u16 {
    let listener = TcpListener::bind((host, 0)).unwrap();
    let own = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for inside in listener.incoming().flatten() {
            let Ok(outside) = TcpStream::connect(("127.0.0.1", port)) else {
                continue;
            };
            let ways = [
                (inside.try_clone().unwrap(), outside.try_clone().unwrap()),
                (outside, inside),
            ];
            for (mut from, mut to) in ways {
                thread::spawn(move || {
                    drop(io::copy(&mut from, &mut to));
                    drop(to.shutdown(Shutdown::Both));
                });
            }
        }
    });
    own
}

/// A hub in the lab, and what its people have here.
struct Hosted<'a> {
    world: &'a World,
    directory: PathBuf,
    /// The node's address, at which the Service is.
    node: String,
}

impl<'a> Hosted<'a> {
    /// The lab has the hub's image, and a volume for it.
    fn new(world: &'a World) -> Self {
        let mut image = Command::new(root().join("tests/image"));
        image.arg(world.place.lab()).arg(binary());
        run(image.args([IMAGE, "hub"]));
        let directory = world.directory.join("hosted");
        let volume = directory.join("volume");
        fs::create_dir_all(&volume).unwrap();
        // For a volume of this kind the kubelet does not.
        chown(&volume, Some(USER), Some(USER)).unwrap();
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "hosted"},
            "spec": {
                "capacity": {"storage": "20Gi"},
                "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": volume, "type": "Directory"},
            },
        });
        world.api.create("/api/v1/persistentvolumes", &volume);
        let nodes = world.api.get("/api/v1/nodes").unwrap();
        let all = nodes["items"][0]["status"]["addresses"].as_array().unwrap();
        let node = all.iter().find(|address| address["type"] == "InternalIP");
        let node = node.unwrap()["address"].as_str().unwrap().to_owned();
        Self {
            world,
            directory,
            node,
        }
    }

    fn url(&self) -> String {
        format!("https://{}:{HTTPS}", self.node)
    }

    fn file(&self) -> PathBuf {
        self.directory.join("hub.yaml")
    }

    /// Prints the manifests and applies them as they are; what kubectl says.
    fn apply(&self, flags: &[&str]) -> String {
        let mut print = Command::new(binary());
        print.args(["hub", "manifests", "--image", IMAGE, "--service=NodePort"]);
        print.args(["--agent-image", &self.world.place.image]);
        print.args(["--url", &self.url()]);
        print.args(["--git-url", &format!("ssh://git@{}:{GIT}", self.node)]);
        fs::write(self.file(), run(print.args(flags))).unwrap();
        let mut apply = self.world.place.kubectl();
        let applied = output(apply.args(["apply", "-f"]).arg(self.file()));
        let said = String::from_utf8([applied.stdout, applied.stderr].concat()).unwrap();
        assert!(applied.status.success(), "{said}");
        said
    }

    /// Waits for so many Pods, in a namespace that admits none but restricted ones.
    fn ready(&self, replicas: u64) {
        let set = path("apps/v1", "StatefulSet", HUB, HUB);
        until("the hub's Pods are ready", seconds(240), || {
            let live = self.world.api.get(&set).unwrap_or_default();
            let status = &live["status"];
            status["observedGeneration"] == live["metadata"]["generation"]
                && status["readyReplicas"] == json!(replicas)
        });
    }

    /// Deletes a Pod, and waits for the next one of its name.
    fn lose(&self, name: &str) {
        let pod = path("v1", "Pod", HUB, name);
        let before = self.world.uid(&pod).unwrap();
        assert!(self.world.api.delete(&pod));
        until("another Pod is there and ready", seconds(240), || {
            let now = self.world.uid(&pod);
            let live = self.world.api.get(&pod).unwrap_or_default();
            now.is_some_and(|now| now != before) && condition(&live, "Ready")
        });
    }

    fn exec(&self, command: &[&str]) -> String {
        let mut kubectl = self.world.place.kubectl();
        kubectl.args(["-n", HUB, "exec", FIRST, "--"]);
        run(kubectl.args(command))
    }

    /// What the first admin needs, out of the Pod.
    fn log_in(&self) {
        for name in ["admin.token", "ca.crt"] {
            let text = self.exec(&["cat", &format!("/var/lib/linesman/hub/{name}")]);
            fs::write(self.directory.join(name), text).unwrap();
        }
    }

    fn cli(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(args)
            .env("LINESMAN_HUB", self.url())
            .env("LINESMAN_TOKEN_FILE", self.directory.join("admin.token"))
            .env("LINESMAN_CA_FILE", self.directory.join("ca.crt"))
            .env("XDG_STATE_HOME", self.directory.join("state"));
        command
    }

    fn linesman(&self, args: &[&str]) -> String {
        run(&mut self.cli(args))
    }

    /// The names of the clusters that it knows.
    fn clusters(&self) -> String {
        self.linesman(&["cluster", "list", "-o", "name"])
    }

    /// The catalog's head, by Git over SSH.
    fn commit(&self) -> String {
        let clone = self.directory.join("catalog");
        self.linesman(&["catalog", "clone", clone.to_str().unwrap()]);
        let mut git = Command::new("git");
        git.arg("-C").arg(clone);
        run(git.args(["ls-remote", "origin", "refs/heads/main"]))
    }

    fn line_is_up(&self) -> bool {
        let shown = output(&mut self.cli(&["cluster", "show", CLUSTER, "-o", "json"]));
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap_or_default();
        shown["line"]["up"] == json!(true)
    }

    /// What the doctor finds at the hub's end.
    fn failing_checks(&self) -> Vec<Value> {
        let said = output(&mut self.cli(&["doctor", "-o", "json"]));
        let found: Vec<Value> = serde_json::from_slice(&said.stdout).unwrap();
        let at_hub = |check: &Value| check["end"] == "hub";
        assert!(found.iter().any(at_hub), "{found:#?}");
        let failing = found.into_iter();
        let failing = failing.filter(|check| at_hub(check) && check["ok"] != json!(true));
        failing.collect()
    }
}
