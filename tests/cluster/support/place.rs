//! Where the tests run: a lab of their own, or a given cluster.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const FLAGS: &str = "LINESMAN_LAB_APISERVER_ARGS";
/// As many older parts of its audit log, of 100 MB each, a lab keeps: an hour of tests writes one.
const PARTS: u8 = 5;

/// A cluster, this machine's address as that cluster sees it, and the agent's image in it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The lab's name; `None` for a given cluster.
    pub(crate) lab: Option<String>,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) host: String,
    pub(crate) image: String,
    /// What the lab's API server has of flags of ours.
    flags: String,
}

impl Place {
    /// Brings a lab up, unless a cluster is given. `audit` is where its API server shall write its audit log.
    /// `kubelet_sync` is how often its kubelet looks at each Pod, `own` what the API server has of flags beside those for the log, and
    /// `domain` that of its Services.
    pub(crate) fn open(
        name: &str,
        audit: &Path,
        kubelet_sync: &str,
        own: &str,
        domain: &str,
    ) -> Self {
        if let Some(kubeconfig) = var("LINESMAN_TEST_KUBECONFIG") {
            let need = |key: &str| {
                var(key).unwrap_or_else(|| panic!("with LINESMAN_TEST_KUBECONFIG, set {key} too"))
            };
            return Self {
                lab: None,
                kubeconfig: kubeconfig.into(),
                host: need("LINESMAN_TEST_HOST"),
                image: need("LINESMAN_TEST_IMAGE"),
                flags: String::new(),
            };
        }
        let policy = audit.with_extension("policy.yaml");
        std::fs::write(
            &policy,
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n",
        )
        .unwrap();
        let flags = format!(
            "--audit-policy-file={} --audit-log-path={} --audit-log-maxsize=100 --audit-log-maxbackup={PARTS} {own}",
            policy.display(),
            audit.display()
        );
        run(lab()
            .args(["up", name])
            .env(FLAGS, &flags)
            .env("LINESMAN_LAB_KUBELET_SYNC", kubelet_sync)
            .env("LINESMAN_LAB_CLUSTER_DOMAIN", domain));
        let env = run(lab().args(["env", name]));
        let value = |key: &str| {
            let line = env.lines().find_map(|l| l.strip_prefix(&format!("{key}=")));
            line.unwrap_or_else(|| panic!("lab env has no {key}: {env}"))
                .to_owned()
        };
        run(Command::new(root().join("tests/image"))
            .arg(name)
            .arg(binary()));
        Self {
            lab: Some(name.to_owned()),
            kubeconfig: value("KUBECONFIG").into(),
            host: value("LAB_HOST_IP"),
            image: "lab.invalid/linesman:dev".to_owned(),
            flags,
        }
    }

    /// SIGKILL to the lab's API server.
    pub(crate) fn kill_api_server(&self) {
        run(lab().args(["stop", self.lab(), "kube-apiserver", "KILL"]));
    }

    /// Starts it again, as it was; does not wait until it answers.
    pub(crate) fn start_api_server(&self) {
        let mut start = lab();
        start.args(["start", self.lab(), "kube-apiserver"]);
        run(start.env(FLAGS, &self.flags));
    }

    /// The lab's name, for what only a lab can do.
    pub(crate) fn lab(&self) -> &str {
        self.lab
            .as_deref()
            .expect("this test needs the lab's powers; run it without LINESMAN_TEST_KUBECONFIG")
    }

    /// Gives an image that the lab has another name.
    pub(crate) fn tag_image(&self, from: &str, to: &str) {
        let socket = self.kubeconfig.with_file_name("containerd.sock");
        let mut ctr = lab();
        ctr.args(["exec", self.lab(), "ctr", "--address"]);
        ctr.arg(socket).args(["--namespace", "k8s.io"]);
        run(ctr.args(["images", "tag", "--force", from, to]));
    }

    /// The engine's install manifests.
    pub(crate) fn bundle(engine: &str) -> String {
        let given = var("LINESMAN_TEST_BUNDLE").filter(|_| engine == "flux");
        match given {
            Some(file) => std::fs::read_to_string(file).unwrap(),
            None => run(lab().args(["bundle", engine])),
        }
    }

    /// kubectl as the cluster's admin.
    pub(crate) fn kubectl(&self) -> Command {
        let mut command = kubectl();
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command
    }
}

/// kubectl for any kubeconfig: the lab's, or the machine's where a cluster is given.
pub(crate) fn kubectl() -> Command {
    if var("LINESMAN_TEST_KUBECONFIG").is_some() {
        return Command::new("kubectl");
    }
    let mut command = Command::new(run(lab().args(["path", "kube"])).trim());
    command.arg("kubectl");
    command
}

/// kubectl of another version, such as `1.29`, which `lab build kubectl-1.29` makes.
pub(crate) fn kubectl_of(minor: &str) -> Command {
    Command::new(run(lab().args(["path", &format!("kubectl-{minor}")])).trim())
}

pub(crate) fn lab() -> Command {
    Command::new(root().join("tests/lab/lab"))
}

/// The package's root, where Cargo runs tests. Not where they were built: a build directory outlives the checkout it was made for.
pub(crate) fn root() -> PathBuf {
    std::path::absolute(".").expect("the package's root")
}

/// The program under test.
pub(crate) fn binary() -> PathBuf {
    let given = var("LINESMAN_TEST_BINARY").map(|p| root().join(p));
    given.unwrap_or_else(|| env!("CARGO_BIN_EXE_linesman").into())
}

#[allow(clippy::disallowed_methods, reason = "the tests' own configuration")]
pub(crate) fn var(key: &str) -> Option<String> {
    env::var(key).ok().filter(|v| !v.is_empty())
}

/// Runs to the end; panics with what it said where that failed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = output(command);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn output(command: &mut Command) -> Output {
    command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"))
}
