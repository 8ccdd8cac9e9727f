//! The simulated cluster of the planner's tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::damage::{BREAKS, Rival};
use super::git::{Commit, Fails};
use super::{install_of, start};
use crate::agent::engine::argocd::REFRESH;
use crate::agent::engine::{Install, REQUESTED_AT};
use crate::agent::plan::burst::Fate;
use crate::agent::plan::pass::Pass;
use crate::agent::plan::shard::Shard;
use crate::agent::plan::state::{Answer, Child, Scope};
use crate::agent::plan::{
    Action, History, Object, Observed, Plan, Pod, Step, health, plan, project, quarantine,
};
use crate::bundle::{Kind, ObjectId};
use crate::clock::rfc3339;
use crate::wire::api::EngineKind;

mod act;

use act::assert_harmless;

/// A cluster that does what it is told at once, and whose controllers do their work.
pub(in crate::agent) struct Cluster {
    pub(in crate::agent::plan) install: Install,
    pub(in crate::agent::plan) history: History,
    pub(in crate::agent::plan) objects: BTreeMap<ObjectId, Object>,
    pub(in crate::agent::plan) pods: BTreeMap<String, Pod>,
    pub(in crate::agent::plan) now: OffsetDateTime,
    /// Applications below the root, as the API server has them.
    pub(in crate::agent::plan) applications: BTreeMap<ObjectId, Value>,
    /// The owner's list, where the cluster is shared.
    pub(in crate::agent::plan) covered: Option<BTreeSet<String>>,
    /// Whoever writes against us.
    pub(super) rival: Option<Rival>,
    /// What commits want of the engine.
    pub(super) git: BTreeMap<ObjectId, Commit>,
    pub(in crate::agent::plan) fails: Fails,
    pub(super) serial: u64,
    pub(in crate::agent::plan) steps: Vec<(OffsetDateTime, Step)>,
}

impl Cluster {
    pub(in crate::agent::plan) fn empty() -> Self {
        Self::empty_of(EngineKind::Flux)
    }

    pub(in crate::agent::plan) fn empty_of(engine: EngineKind) -> Self {
        Self::empty_with(install_of(engine))
    }

    pub(in crate::agent::plan) fn empty_with(install: Install) -> Self {
        Self {
            install,
            history: History::default(),
            objects: BTreeMap::new(),
            pods: BTreeMap::new(),
            now: start(),
            applications: BTreeMap::new(),
            covered: None,
            rival: None,
            git: BTreeMap::new(),
            fails: Fails::default(),
            serial: 0,
            steps: Vec::new(),
        }
    }

    /// With a working, adopted install and a clean record.
    pub(in crate::agent) fn working() -> Self {
        Self::working_of(EngineKind::Flux)
    }

    pub(in crate::agent::plan) fn working_of(engine: EngineKind) -> Self {
        Self::working_with(install_of(engine))
    }

    pub(in crate::agent::plan) fn working_with(install: Install) -> Self {
        let mut cluster = Self::empty_with(install);
        cluster.settle(200);
        cluster.history = History {
            adopted: true,
            ..History::default()
        };
        cluster.steps.clear();
        cluster
    }

    pub(in crate::agent) fn observed(&self) -> Observed {
        let scope = Scope {
            answered: Some(self.now),
            answer: Answer::Whole,
        };
        Observed {
            objects: self
                .objects
                .iter()
                .map(|(id, o)| (id.clone(), Arc::new(o.clone())))
                .collect(),
            scopes: self
                .install
                .wanted
                .keys()
                .map(|id| (id.kind, scope))
                .collect(),
            pods: self
                .pods
                .iter()
                .map(|(n, p)| (n.clone(), Arc::new(p.clone())))
                .collect(),
            pods_at: Some(self.now),
            children: Arc::new(self.children()),
            covered: self.covered.clone(),
            ..Observed::default()
        }
    }

    fn children(&self) -> BTreeMap<ObjectId, Child> {
        let home = &self.install.namespace;
        let all = self.applications.iter().filter_map(|(id, live)| {
            let live = serde_json::from_value(live.clone()).unwrap();
            let mut child = project::child(home, id.kind, &live)?;
            child.fate = Fate::of(home, id.kind, &live);
            child.shard = Shard::of(&live);
            Some((id.clone(), child))
        });
        all.collect()
    }

    pub(in crate::agent::plan) fn plan(&self) -> Plan {
        plan(self.now, &self.install, &self.observed(), &self.history)
    }

    /// One round of the watchdog, then time passes.
    pub(in crate::agent::plan) fn round(&mut self) -> Plan {
        self.round_of(None)
    }

    /// The same, with what happens after each of its steps.
    pub(in crate::agent::plan) fn round_with(&mut self, mut then: impl FnMut(&mut Self)) -> Plan {
        self.round_of(Some(&mut then))
    }

    fn round_of(&mut self, mut then: Option<&mut dyn FnMut(&mut Self)>) -> Plan {
        let observed = self.observed();
        self.history.set_back(self.now);
        self.history.noted(self.now, &self.install, &observed);
        let plan = plan(self.now, &self.install, &observed, &self.history);
        assert_eq!(plan, self.plan(), "the same input gives the same plan");
        assert!(plan.next_look > self.now, "{plan:?}");
        assert!(plan.next_look <= self.now + Duration::minutes(1));
        self.history.saw(self.now, &plan);
        let mut pass = Pass::new(&plan, &observed);
        let mut live = observed;
        for step in &plan.steps {
            let (now, install, history) = (self.now, &self.install, &self.history);
            let anew = || crate::agent::plan::plan(now, install, &live, history);
            let Some(step) = pass.next(step, &live, anew) else {
                continue;
            };
            assert_harmless(&step);
            let outcome = self.tried(&step);
            self.history.acted(self.now, &step, &outcome, &live);
            if step.action == Action::Restore && !outcome.is_vain() {
                self.history.saved.remove(&step.target);
            }
            live = self.observed();
            pass.acted(&step, &outcome, &live);
            self.steps.push((self.now, step));
            if let Some(then) = &mut then {
                then(self);
                live = self.observed();
            }
        }
        self.keep_regained();
        self.controllers();
        self.now = if plan.steps.is_empty() {
            plan.next_look
        } else {
            self.now + Duration::milliseconds(500)
        };
        plan
    }

    /// The last snapshot has what is the agent's again as such, and the install is made from it.
    pub(in crate::agent::plan) fn keep_regained(&mut self) {
        let regained = quarantine::regained(&self.install, &self.observed());
        for id in &regained {
            self.install.take_back(id);
        }
    }

    /// Rounds until nothing is wrong and function is proven.
    pub(in crate::agent::plan) fn settle(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let plan = self.round();
            let proven = health::proven_since(&self.install, &self.observed());
            let current = proven.is_some_and(|p| self.history.last_write.is_none_or(|at| p >= at));
            if plan.findings.is_empty() && plan.steps.is_empty() && current {
                return;
            }
        }
        panic!("does not settle: {:#?}", self.plan());
    }

    /// What Kubernetes and Flux do meanwhile.
    pub(in crate::agent::plan) fn controllers(&mut self) {
        self.collect_the_dead();
        self.rival_writes();
        let accounts: BTreeMap<String, OffsetDateTime> = self
            .objects
            .iter()
            .filter(|(id, _)| id.kind == Kind::ServiceAccount)
            .filter_map(|(id, o)| Some((id.name.clone(), o.created?)))
            .collect();
        let mut up = BTreeMap::new();
        for (id, object) in &mut self.objects {
            match id.kind {
                Kind::CustomResourceDefinition => {
                    object.fields["status"] =
                        json!({"conditions": [{"type": "Established", "status": "True"}]});
                }
                Kind::Deployment | Kind::StatefulSet => {
                    let container = &object.fields["spec"]["template"]["spec"]["containers"][0];
                    let env = container["env"].as_array().into_iter().flatten();
                    let runs = object.fields["spec"]["replicas"] == json!(1)
                        && container["image"]
                            .as_str()
                            .is_some_and(|i| i.ends_with(":v1"))
                        && !env.into_iter().any(|e| e["name"] == json!(BREAKS))
                        && accounts.contains_key(&id.name);
                    let replicas = i32::from(runs);
                    object.fields["status"] = json!({"observedGeneration": object.generation, "replicas": replicas, "availableReplicas": replicas, "updatedReplicas": replicas});
                    if runs {
                        let pod = self.pods.entry(id.name.clone()).or_default();
                        pod.app.clone_from(&id.name);
                        if pod.uid.is_empty() {
                            self.serial += 1;
                            pod.uid = format!("pod-{}", self.serial);
                        }
                        pod.created.get_or_insert(self.now);
                        pod.running = pod.created;
                    }
                    let valid = self
                        .pods
                        .get(&id.name)
                        .is_some_and(|p| p.created >= accounts.get(&id.name).copied());
                    up.insert(id.name.clone(), runs && valid);
                }
                _ => {}
            }
        }
        self.pods.retain(|_, pod| up.contains_key(&pod.app));
        self.pods_wait();
        self.git_applies();
        let rights = self.install.traits.rights.iter();
        let rights = rights.map(|name| ObjectId::new(Kind::ClusterRoleBinding, "", name));
        let rights = rights.into_iter().all(|id| self.objects.contains_key(&id));
        let now = rfc3339(self.now);
        let fetched = !self.is_unreached();
        for id in self.install.roots().chain(self.install.canaries()) {
            let controller = self.install.controller(id).name;
            let works = rights && up.get(&controller).copied().unwrap_or_default();
            if let Some(root) = self.objects.get_mut(id).filter(|_| works) {
                reconciled(id.kind, root, &now, fetched);
            }
        }
    }

    fn collect_the_dead(&mut self) {
        let namespace = ObjectId::new(Kind::Namespace, "", &self.install.namespace);
        let now = self.now;
        let over = |o: &Object| o.deleting.is_some_and(|at| now - at > Duration::seconds(3));
        if self.objects.get(&namespace).is_some_and(over) {
            self.objects
                .retain(|id, _| id.namespace.is_empty() && *id != namespace);
            self.pods.clear();
        }
        self.let_go();
        let crds: Vec<ObjectId> = self
            .objects
            .iter()
            .filter(|(id, o)| id.kind == Kind::CustomResourceDefinition && over(o))
            .map(|(id, _)| id.clone())
            .collect();
        for crd in crds {
            self.objects.remove(&crd);
            self.objects.retain(|id, _| {
                let (group, _, plural) = id.kind.resource();
                crd.name != format!("{plural}.{group}")
            });
        }
    }
}

/// What its controller says of a root or canary, whether what the root applies can be `fetched` or not.
fn reconciled(kind: Kind, root: &mut Object, now: &str, fetched: bool) {
    if kind == Kind::Application {
        let annotations = root.fields["metadata"]["annotations"].as_object_mut();
        annotations.unwrap().remove(REFRESH);
        root.fields["status"] = json!({
            "reconciledAt": now, "sync": {"status": "Synced", "revision": "1"},
            "operationState": {"phase": "Succeeded", "syncResult": {"revision": "1"}},
        });
        return;
    }
    let asked = root.annotation(REQUESTED_AT).unwrap_or_default().to_owned();
    let ready = if fetched || kind != Kind::Kustomization {
        json!({"type": "Ready", "status": "True"})
    } else {
        json!({
            "type": "Ready", "status": "False", "reason": "ArtifactFailed",
            "message": "failed to download archive: no such host", "lastTransitionTime": now,
        })
    };
    root.fields["status"] = json!({
        "lastHandledReconcileAt": asked, "artifact": {"revision": "main@sha1:1"},
        "lastAppliedRevision": "main@sha1:1", "lastAttemptedRevision": "main@sha1:1",
        "conditions": [ready],
    });
}
