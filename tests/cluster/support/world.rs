//! Lab, hub and adopted cluster together.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::api::{Api, path};
use super::git::GitAlone;
use super::hub::Hub;
use super::openpgp::Pgp;
use super::place::{Place, kubectl, output, root, run, var};
use super::{eventually, scratch, seconds, until};

/// The cluster's name at the hub.
pub(crate) const CLUSTER: &str = "demo";
pub(crate) const FLUX: &str = "flux-system";
pub(crate) const ARGOCD: &str = "argocd";

/// The world whose kubelet looks at its Pods as seldom as a stock one.
pub(crate) const STOCK_KUBELET: &str = "argohost";

/// The world whose API server knows classic impersonation only, as most clusters' do.
pub(crate) const CLASSIC: &str = "classic";
/// Its flag: of two that name a gate, the API server heeds the last.
const WITHOUT_CONSTRAINED: &str = "--feature-gates=ConstrainedImpersonation=false";

pub(crate) struct World {
    /// `flux` or `argocd`.
    pub(crate) engine: &'static str,
    pub(crate) directory: PathBuf,
    pub(crate) place: Place,
    pub(crate) hub: Hub,
    /// Git without the hub, while that is away.
    pub(super) git: Option<GitAlone>,
    pub(crate) api: Api,
    /// The API server's audit log, in a lab.
    pub(crate) audit: PathBuf,
    /// The adoption YAML, once the cluster was added.
    pub(crate) adopt: PathBuf,
    /// Apply to first revision applied, once adopted.
    pub(crate) adoption: Option<Duration>,
}

static SHARED: OnceLock<Mutex<World>> = OnceLock::new();
static WITH_ARGOCD: OnceLock<Mutex<World>> = OnceLock::new();
/// The number of the next world in place of one in which a test failed.
static ANEW: AtomicUsize = AtomicUsize::new(2);

/// The world that most tests share, with its cluster adopted and its hub running.
pub(crate) fn adopted() -> MutexGuard<'static, World> {
    at_work(&SHARED, "main", "flux")
}

/// The same with Argo CD, in a lab of its own.
pub(crate) fn adopted_argocd() -> MutexGuard<'static, World> {
    at_work(&WITH_ARGOCD, "argo", ARGOCD)
}

fn at_work(
    shared: &'static OnceLock<Mutex<World>>,
    name: &str,
    engine: &'static str,
) -> MutexGuard<'static, World> {
    let shared = shared.get_or_init(|| Mutex::new(World::open_with(name, engine)));
    let mut world = shared.lock().unwrap_or_else(|failed| {
        // Who knows what a test that failed left; those after it have done nothing. A cluster that was given is kept.
        let mut world = failed.into_inner();
        if let Some(name) = world.anew(name) {
            *world = World::open_with(&name, engine);
        }
        shared.clear_poison();
        world
    });
    if !world.hub.runs() {
        world.hub_back();
    }
    if world.adoption.is_none() {
        world.adopt();
    }
    world
}

impl World {
    /// A lab of its own with a hub that holds the engine's bundle; nothing adopted yet.
    pub(crate) fn open(name: &str) -> Self {
        Self::open_with(name, "flux")
    }

    pub(crate) fn open_with(name: &str, engine: &'static str) -> Self {
        Self::open_from(name, engine, &Place::bundle(engine))
    }

    /// The same with an install manifest of one's own.
    pub(crate) fn open_from(name: &str, engine: &'static str, manifest: &str) -> Self {
        let alone = |directory: &Path, [host, named, image]: [&str; 3]| {
            Hub::start(directory, host, named, image)
        };
        Self::open_at(name, engine, manifest, alone)
    }

    /// The same with a hub as `start` starts it: told its directory, this machine's address, its name in the cluster and
    /// the agent's image.
    pub(crate) fn open_at(
        name: &str,
        engine: &'static str,
        manifest: &str,
        start: impl FnOnce(&Path, [&str; 3]) -> Hub,
    ) -> Self {
        // An error means that one is installed already.
        let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let directory = scratch().join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("pids"), "").unwrap();
        let lab = format!("t{}-{name}", std::process::id());
        start_reaper(&directory, &lab);
        let audit = directory.join("audit.log");
        // Quick as tests like it, but where it is the kubelet that is waited for.
        let sync = if name == STOCK_KUBELET { "1m" } else { "5s" };
        let flags = if name == CLASSIC {
            WITHOUT_CONSTRAINED
        } else {
            ""
        };
        let place = Place::open(&lab, &audit, sync, flags);
        // Names work in the lab only; an agent on this machine needs the address, and so does who comes to one replica, whose
        // certificate is for the URL alone.
        let outside = ["kills", "argokills", "errors", "cut", "replicas"]
            .contains(&name.trim_end_matches(char::is_numeric));
        let named = if outside || place.lab.is_none() {
            place.host.as_str()
        } else {
            "hub.lab.test"
        };
        let hub = start(&directory, [&place.host, named, &place.image]);
        let bundle = directory.join(format!("{engine}.yaml"));
        fs::write(&bundle, manifest).unwrap();
        hub.linesman(&["engine", "import", bundle.to_str().unwrap()]);
        let api = Api::of(&place.kubeconfig);
        let adopt = directory.join("adopt.yaml");
        Self {
            engine,
            directory,
            place,
            hub,
            git: None,
            api,
            audit,
            adopt,
            adoption: None,
        }
    }

    /// Adds the cluster at the hub and keeps the YAML, not applied yet.
    pub(crate) fn add(&self) {
        self.add_with(&[]);
    }

    /// The same with more flags.
    pub(crate) fn add_with(&self, flags: &[&str]) {
        let file = self.adopt.to_str().unwrap();
        let mut args = vec![
            "cluster",
            "add",
            CLUSTER,
            "--engine",
            self.engine,
            "--file",
            file,
        ];
        args.extend(flags);
        self.hub.linesman(&args);
    }

    /// Adds the cluster, applies the YAML, waits for the first revision.
    pub(crate) fn adopt(&mut self) {
        self.adopt_with(&[]);
    }

    /// The same with more flags of `cluster add`.
    pub(crate) fn adopt_with(&mut self, flags: &[&str]) {
        self.add_with(flags);
        let began = Instant::now();
        self.apply(&self.adopt);
        eventually(
            "the first catalog revision is applied",
            seconds(240),
            || self.synced(),
        );
        self.adoption = Some(began.elapsed());
        self.hub
            .linesman(&["cluster", "wait", CLUSTER, "--timeout", "2m"]);
    }

    pub(crate) fn namespace(&self) -> &'static str {
        if self.engine == ARGOCD { ARGOCD } else { FLUX }
    }

    /// A figure's text, which names the engine where that is not Flux.
    pub(crate) fn said(&self, what: &str) -> String {
        if self.engine == ARGOCD {
            format!("Argo CD: {what}")
        } else {
            what.to_owned()
        }
    }

    /// The same, and that the hub is away, where it is so while Git is there.
    pub(crate) fn case(&self, what: &str) -> String {
        let off = if self.git.is_some() {
            " (hub stopped, Git there)"
        } else {
            ""
        };
        self.said(what) + off
    }

    /// Whether the engine can fetch.
    pub(crate) fn has_git(&self) -> bool {
        self.hub.runs() || self.git.is_some()
    }

    pub(crate) fn apply(&self, file: &Path) {
        run(self.place.kubectl().args(["apply", "-f"]).arg(file));
    }

    /// The root Kustomization's revision, where that is the catalog's head and Ready.
    pub(crate) fn synced(&self) -> Result<String, String> {
        let head = self.head()?;
        if self.engine == ARGOCD {
            return super::argocd::synced(&self.api, &head);
        }
        let root = self
            .api
            .try_get(&kustomization(FLUX))?
            .ok_or("no root Kustomization")?;
        let applied = root["status"]["lastAppliedRevision"]
            .as_str()
            .unwrap_or_default();
        if applied.ends_with(&head) {
            Ok(applied.to_owned())
        } else {
            Err(format!("applied '{applied}', head {head}"))
        }
    }

    /// The commit id of the catalog's branch, read from the hub's repository.
    pub(crate) fn head(&self) -> Result<String, String> {
        let repository = self.hub.data().join("catalog.git");
        let output = output(Command::new("git").arg("-C").arg(repository).args([
            "-c",
            "safe.directory=*",
            "rev-parse",
            "refs/heads/main",
        ]));
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// A new reconciliation asked for is answered by both controllers: the engine works.
    pub(crate) fn function(&self, limit: Duration) -> Duration {
        let began = Instant::now();
        if self.engine == ARGOCD {
            super::argocd::function(&self.api, limit);
            return began.elapsed();
        }
        self.asked(limit, ready);
        began.elapsed()
    }

    fn asked(&self, limit: Duration, holds: impl Fn(&Value) -> bool) {
        let stamp = format!(
            "test-{:?}",
            std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos()
        );
        for root in [git_repository(FLUX), kustomization(FLUX)] {
            let patch = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": stamp } } });
            // Root objects may be away for a moment after a CRD or the namespace was deleted.
            until(&format!("{root} takes the request"), limit, || {
                let Ok(Some(object)) = self.api.try_get(&root) else {
                    return false;
                };
                if object["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"]
                    != json!(stamp)
                {
                    self.api.patch(&root, &patch);
                    return false;
                }
                object["status"]["lastHandledReconcileAt"] == json!(stamp) && holds(&object)
            });
        }
    }

    /// Each controller answers a request of now, whatever it answers where there is no Git to be had.
    pub(crate) fn answers(&self, limit: Duration) {
        if self.has_git() {
            self.function(limit);
        } else if self.engine == ARGOCD {
            super::argocd::answers(&self.api, limit, |_| true);
        } else {
            self.asked(limit, |_| true);
        }
    }

    /// Deletes what the guard policy keeps, after allowing it as its message says.
    pub(crate) fn delete_guarded(&self, path: &str) {
        self.allow(path);
        assert!(self.api.delete(path), "{path} was not there");
    }

    /// Leads a root elsewhere, after allowing it as the guard policy's message says.
    pub(crate) fn patch_guarded(&self, path: &str, patch: &Value) {
        self.allow(path);
        self.api.patch(path, patch);
    }

    fn allow(&self, path: &str) {
        let until = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() + 3600;
        let until = time::OffsetDateTime::from_unix_timestamp(until.try_into().unwrap());
        let until = until
            .unwrap()
            .format(&time::format_description::well_known::Rfc3339)
            .unwrap();
        let word = json!({ "metadata": { "annotations": { "linesman.dev/allow-delete": until } } });
        self.api.patch(path, &word);
    }

    /// All Deployments of the engine are available.
    pub(crate) fn engine_available(&self) -> bool {
        if self.engine == ARGOCD {
            return super::argocd::available(&self.api);
        }
        ["source-controller", "kustomize-controller"]
            .iter()
            .all(|name| {
                let path = super::api::deployment(FLUX, name);
                self.api
                    .try_get(&path)
                    .ok()
                    .flatten()
                    .is_some_and(|d| condition(&d, "Available"))
            })
    }

    pub(crate) fn uid(&self, path: &str) -> Option<String> {
        let object = self.api.try_get(path).ok().flatten()?;
        let going = !object["metadata"]["deletionTimestamp"].is_null();
        if going {
            None
        } else {
            object["metadata"]["uid"].as_str().map(str::to_owned)
        }
    }

    /// A clone of the catalog that can push, below the world's directory.
    pub(crate) fn clone_catalog(&self) -> PathBuf {
        let clone = self.directory.join("catalog");
        if !clone.exists() {
            // The hub's name exists only inside the lab.
            let (host, port) = (&self.place.host, self.hub.git_port());
            let wrapper = self.directory.join("bin");
            fs::create_dir_all(&wrapper).unwrap();
            let ssh = wrapper.join("ssh");
            fs::write(&ssh, format!("#!/bin/sh\nexec /usr/bin/ssh -o HostName={host} -o 'HostKeyAlias=[hub.lab.test]:{port}' -o CheckHostIP=no \"$@\"\n")).unwrap();
            run(Command::new("chmod").arg("755").arg(&ssh));
            let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", wrapper.display());
            let mut command = self.hub.cli(&["catalog", "clone", clone.to_str().unwrap()]);
            run(command.env("PATH", &path));
        }
        clone
    }

    /// Commits one file of the catalog and pushes; returns the commit's id.
    pub(crate) fn push(&self, file: &str, content: &str) -> String {
        self.push_all(&[(file.to_owned(), content.to_owned())])
    }

    /// The same with several files in one commit.
    pub(crate) fn push_all(&self, files: &[(String, String)]) -> String {
        self.push_by(files, None)
    }

    /// A commit of one file, signed.
    pub(crate) fn push_signed(&self, file: &str, content: &str, by: &Pgp) -> String {
        self.push_by(&[(file.to_owned(), content.to_owned())], Some(by))
    }

    fn push_by(&self, files: &[(String, String)], by: Option<&Pgp>) -> String {
        let clone = self.clone_catalog();
        let path = format!(
            "{}:/usr/bin:/bin:/usr/sbin:/sbin",
            self.directory.join("bin").display()
        );
        let git = |args: &[&str]| {
            run(Command::new("git")
                .arg("-C")
                .arg(&clone)
                .args(args)
                .env("PATH", &path))
        };
        git(&["pull", "--quiet", "--rebase"]);
        for (file, content) in files {
            fs::create_dir_all(clone.join(file).parent().unwrap()).unwrap();
            fs::write(clone.join(file), content).unwrap();
        }
        let (first, _) = files.first().unwrap();
        git(&["add", "--all"]);
        git(&[
            "commit",
            "--quiet",
            "--allow-empty",
            "--message",
            &format!("Change {first}"),
        ]);
        if let Some(by) = by {
            let plain = git(&["cat-file", "commit", "HEAD"]);
            let signature = by.sign(plain.as_bytes());
            let git2 = git2::Repository::open(&clone).unwrap();
            let signed = git2.commit_signed(&plain, &signature, None).unwrap();
            git(&["reset", "--quiet", "--soft", &signed.to_string()]);
        }
        git(&["push", "--quiet"]);
        if !self.hub.runs() {
            self.look();
        }
        git(&["rev-parse", "HEAD"]).trim().to_owned()
    }

    /// The kubeconfig through the line, made once.
    pub(crate) fn line_kubeconfig(&self) -> PathBuf {
        let file = self.directory.join("line.kubeconfig");
        if !file.exists() {
            fs::write(&file, self.hub.linesman(&["kubeconfig", CLUSTER])).unwrap();
        }
        file
    }

    /// kubectl through the hub, as its admin.
    pub(crate) fn through_line(&self) -> Command {
        let mut command = kubectl();
        command.arg("--kubeconfig").arg(self.line_kubeconfig());
        self.hub.environment(&mut command);
        command
    }

    pub(crate) fn phase(&self) -> String {
        let view = self.hub.try_json(&["cluster", "show", CLUSTER]);
        view.map_or_else(|e| e, |v| v["phase"].as_str().unwrap_or("?").to_owned())
    }

    pub(crate) fn line_is_up(&self) -> bool {
        self.hub
            .try_json(&["cluster", "show", CLUSTER])
            .is_ok_and(|v| v["line"]["up"] == json!(true))
    }

    /// Of the line that the hub has; it goes up with each new one.
    pub(crate) fn epoch(&self) -> u64 {
        self.hub.json(&["cluster", "show", CLUSTER])["line"]["epoch"]
            .as_u64()
            .expect("the cluster has had a line")
    }

    /// Takes the lab down; the hub ends with the value.
    pub(crate) fn close(mut self) {
        self.down();
    }

    /// Takes the lab down, where it is one; the name for another in its place.
    pub(super) fn anew(&mut self, name: &str) -> Option<String> {
        self.place.lab.as_ref()?;
        self.down();
        Some(format!("{name}{}", ANEW.fetch_add(1, Ordering::Relaxed)))
    }

    fn down(&mut self) {
        self.hub.kill();
        if let Some(lab) = &self.place.lab {
            run(super::place::lab().args(["down", lab]));
        }
    }
}

pub(crate) fn kustomization(name: &str) -> String {
    path(
        "kustomize.toolkit.fluxcd.io/v1",
        "Kustomization",
        FLUX,
        name,
    )
}

pub(crate) fn git_repository(name: &str) -> String {
    path("source.toolkit.fluxcd.io/v1", "GitRepository", FLUX, name)
}

pub(crate) fn ready(object: &Value) -> bool {
    condition(object, "Ready")
}

pub(crate) fn condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|c| c["type"] == json!(kind) && c["status"] == json!("True"))
}

/// Remembers a process for the reaper.
pub(crate) fn record(directory: &Path, pid: u32) {
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(directory.join("pids"))
        .unwrap();
    writeln!(file, "{pid} {}", start_time(pid)).unwrap();
}

fn start_time(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    after.split(' ').nth(19).unwrap_or("gone").to_owned()
}

/// However this process ends, hub and lab end too.
#[allow(
    clippy::zombie_processes,
    reason = "the reaper outlives this process; that is its purpose"
)]
fn start_reaper(directory: &Path, lab: &str) {
    if var("LINESMAN_TEST_KEEP").is_some() {
        return;
    }
    let mut command = Command::new(root().join("tests/cluster/reaper"));
    command
        .arg(std::process::id().to_string())
        .arg(start_time(std::process::id()))
        .arg(directory);
    if var("LINESMAN_TEST_KUBECONFIG").is_none() {
        command.arg(lab);
    }
    // A group of its own: ^C in the terminal reaches the tests, not the reaper.
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap();
}
