//! Lab, hub and adopted cluster together.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::api::Api;
use super::git::GitAlone;
use super::hub::Hub;
use super::place::{Place, kubectl, run, var};
use super::{eventually, scratch, seconds};

mod catalog;
mod engine;
mod reaper;

pub(crate) use engine::{condition, git_repository, kustomization, ready};
pub(crate) use reaper::record;
use reaper::start_reaper;

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

/// The world whose Services are below another domain than nearly every cluster's.
pub(crate) const OTHER_DOMAIN: &str = "domain";
/// That domain.
pub(crate) const DOMAIN: &str = "corp.internal";
const USUAL_DOMAIN: &str = "cluster.local";

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

fn another(name: &str) -> String {
    format!("{name}{}", ANEW.fetch_add(1, Ordering::Relaxed))
}

/// A new directory, and the name of a lab. What a test before has under the same name is of another hub, and its lab may be up.
fn unused(name: &str) -> (PathBuf, String) {
    let pid = std::process::id();
    let mut name = name.to_owned();
    fs::create_dir_all(scratch()).unwrap();
    loop {
        let directory = scratch().join(format!("{name}-{pid}"));
        match fs::create_dir(&directory) {
            Ok(()) => return (directory, format!("t{pid}-{name}")),
            Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}"),
        }
        name = another(&name);
    }
}

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
        let (directory, lab) = unused(name);
        fs::write(directory.join("pids"), "").unwrap();
        start_reaper(&directory, &lab);
        let audit = directory.join("audit.log");
        // Quick as tests like it, but where it is the kubelet that is waited for.
        let sync = if name == STOCK_KUBELET { "1m" } else { "5s" };
        let flags = if name == CLASSIC {
            WITHOUT_CONSTRAINED
        } else {
            ""
        };
        let domain = if name == OTHER_DOMAIN {
            DOMAIN
        } else {
            USUAL_DOMAIN
        };
        let place = Place::open(&lab, &audit, sync, flags, domain);
        // Names work in the lab only; an agent on this machine needs the address, and so does who comes to one replica, whose
        // certificate is for the URL alone.
        let outside = ["kills", "argokills", "cut", "replicas"]
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

    pub(crate) fn uid(&self, path: &str) -> Option<String> {
        let object = self.api.try_get(path).ok().flatten()?;
        let going = !object["metadata"]["deletionTimestamp"].is_null();
        if going {
            None
        } else {
            object["metadata"]["uid"].as_str().map(str::to_owned)
        }
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
        Some(another(name))
    }

    fn down(&mut self) {
        self.hub.kill();
        if let Some(lab) = &self.place.lab {
            run(super::place::lab().args(["down", lab]));
        }
    }
}

/// The lab of a test's own goes with it where it failed, too: it would take processor time from the tests beside it until the program
/// ends. What hub and API server logged stays in the world's directory.
impl Drop for World {
    fn drop(&mut self) {
        if !thread::panicking() || var("LINESMAN_TEST_KEEP").is_some() {
            return;
        }
        self.hub.kill();
        if let Some(lab) = &self.place.lab {
            // A second panic would end the program, and the reaper takes down what is left.
            let mut down = super::place::lab();
            let _ended = down.args(["down", lab]).stdin(Stdio::null()).output();
        }
    }
}
