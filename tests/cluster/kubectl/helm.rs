//! helm, unchanged, as a user who may work in one namespace: its releases are Secrets, its waiting is watches.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use super::{ready, user};
use crate::support::api::path;
use crate::support::place::{kubectl, lab, output, run, var};
use crate::support::world::{self, World};
use crate::support::{figure, shown};

const NAMESPACE: &str = "helm-tests";
const USER: &str = "releaser";

const CHART: &str = "apiVersion: v2\nname: quay\nversion: 0.1.0\n";
const VALUES: &str = "said: first\nreplicas: 1\n";
const CONFIG: &str = r"apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {said: {{ required `said is missing` .Values.said | quote }}}
";
const DEPLOYMENT: &str = r#"apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: box
        image: lab.invalid/busybox:1
        imagePullPolicy: IfNotPresent
        command: [sleep, "3600"]
        env: [{name: SAID, value: {{ .Values.said | quote }}}]
"#;

struct Helm<'a> {
    world: &'a World,
    program: PathBuf,
    /// Of a user with a grant for one namespace.
    kubeconfig: PathBuf,
}

impl Helm<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).args(["--namespace", NAMESPACE]);
        self.world.hub.environment(&mut command);
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("NO_PROXY", "*");
        for (variable, name) in [
            ("HELM_CACHE_HOME", "cache"),
            ("HELM_CONFIG_HOME", "config"),
            ("HELM_DATA_HOME", "data"),
        ] {
            command.env(variable, self.world.directory.join("helm").join(name));
        }
        command
    }

    /// kubectl as the same user.
    fn kubectl(&self, args: &[&str]) -> Command {
        let mut command = kubectl();
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        self.world.hub.environment(&mut command);
        command.args(args);
        command
    }

    fn run(&self, args: &[&str]) -> String {
        run(&mut self.command(args))
    }

    fn json(&self, args: &[&str]) -> Value {
        let text = self.run(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&text).unwrap()
    }
}

fn program() -> PathBuf {
    match var("LINESMAN_TEST_KUBECONFIG") {
        Some(_) => "helm".into(),
        None => run(lab().args(["path", "helm"])).trim().into(),
    }
}

fn chart(directory: &Path) -> PathBuf {
    let chart = directory.join("quay");
    fs::create_dir_all(chart.join("templates")).unwrap();
    for (file, text) in [
        ("Chart.yaml", CHART),
        ("values.yaml", VALUES),
        ("templates/config.yaml", CONFIG),
        ("templates/deployment.yaml", DEPLOYMENT),
    ] {
        fs::write(chart.join(file), text).unwrap();
    }
    chart
}

/// Issue 4 §2: install, list, upgrade, rollback and uninstall, and what the user may not do.
#[test]
#[ignore = "needs a real cluster: make test"]
fn helm_works_unchanged() {
    let world = world::adopted();
    ready(&world);
    let namespace = ["create", "namespace", NAMESPACE];
    run(world.place.kubectl().args(namespace));
    let helm = Helm {
        world: &world,
        program: program(),
        kubeconfig: user(
            &world,
            USER,
            &["--group", "admin", "--namespace", NAMESPACE],
        ),
    };
    let chart = chart(&world.directory);
    let began = Instant::now();
    life_of_a_release(&helm, chart.to_str().unwrap());
    figure(
        "helm",
        "helm install, upgrade, list, rollback, uninstall, each with --wait",
        "",
        shown(began.elapsed()),
    );
    // The grant ends at its namespace.
    let everywhere = output(&mut helm.kubectl(&["get", "configmaps", "--all-namespaces"]));
    let text = String::from_utf8_lossy(&everywhere.stderr);
    let refused = !everywhere.status.success() && text.contains(NAMESPACE);
    assert!(refused, "{everywhere:?}");
    let audited = world.hub.json(&["audit", "list", "--user", USER]);
    assert_ne!(audited, json!([]), "nothing is on record");
    let gone = ["delete", "namespace", NAMESPACE, "--wait=false"];
    run(world.place.kubectl().args(gone));
}

fn life_of_a_release(helm: &Helm<'_>, chart: &str) {
    let wait = ["--wait", "--timeout", "60s"];
    let said = || {
        let place = path("v1", "ConfigMap", NAMESPACE, "ship");
        let object = helm.world.api.try_get(&place).unwrap();
        object.map(|object| object["data"]["said"].clone())
    };
    helm.run(&[&["install", "ship", chart][..], &wait].concat());
    assert_eq!(said(), Some(json!("first")));
    let upgrade = ["upgrade", "ship", chart, "--set"];
    helm.run(&[&upgrade[..], &["said=second"], &wait].concat());
    assert_eq!(said(), Some(json!("second")));
    let shown = |entry: &Value| {
        ["name", "revision", "status", "chart"].map(|key| entry[key].as_str().unwrap().to_owned())
    };
    let list = helm.json(&["list"]);
    let releases: Vec<_> = list.as_array().unwrap().iter().map(shown).collect();
    assert_eq!(releases, [["ship", "2", "deployed", "quay-0.1.0"]]);
    // What the chart refuses leaves the release as it is.
    let broken = output(&mut helm.command(&[&upgrade[..], &["said="]].concat()));
    let text = String::from_utf8_lossy(&broken.stderr);
    let refused = !broken.status.success() && text.contains("said is missing");
    assert!(refused, "{broken:?}");
    helm.run(&[&["rollback", "ship", "1"][..], &wait].concat());
    assert_eq!(said(), Some(json!("first")));
    let history = helm.json(&["history", "ship"]);
    let states = history.as_array().unwrap().iter();
    let states: Vec<_> = states.map(|entry| entry["status"].clone()).collect();
    assert_eq!(states, ["superseded", "superseded", "deployed"]);
    helm.run(&[&["uninstall", "ship"][..], &wait].concat());
    assert_eq!(said(), None);
    assert_eq!(helm.json(&["list"]), json!([]));
}
