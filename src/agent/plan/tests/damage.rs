//! What goes wrong in the simulated cluster.

use serde_json::{Value, json};
use time::Duration;

use super::Cluster;
use super::git::Bad;
use crate::agent::engine::is_workload;
use crate::bundle::{Kind, ObjectId};
use crate::clock::rfc3339;
use crate::wire::api::EngineKind;

const FOREIGN: &str = "example.com/backup";
/// A variable with which a controller does not start.
pub(super) const BREAKS: &str = "KUBERNETES_SERVICE_HOST";
/// Its owner takes so long.
const BACKUP: Duration = Duration::minutes(3);

#[derive(Debug, Clone)]
pub(in crate::agent::plan) enum Damage {
    Delete(usize),
    Field(usize),
    Scale(&'static str),
    Image(&'static str),
    /// An environment variable added that stops it.
    Env(&'static str),
    /// Deleted while finalizers hold it: the engine's, and somebody else's, too.
    Pinned(usize, bool),
    /// By a commit, which the engine applies again and again.
    Commit(&'static str, Bad),
    /// Scaled to zero so often after it was put right.
    Rival(&'static str, u32),
    /// Of one of a few Kustomizations of the catalog's, where the engine has any.
    Unreadable(usize),
}

/// A controller of somebody else's that has another opinion.
#[derive(Debug, Clone)]
pub(super) struct Rival {
    workload: &'static str,
    /// So often it writes yet.
    left: u32,
}

/// Whether a finalizer is not the engine's.
pub(super) fn is_foreign(finalizer: &str) -> bool {
    finalizer == FOREIGN
}

impl Cluster {
    pub(in crate::agent::plan) fn damage(&mut self, what: &Damage) {
        let ids: Vec<ObjectId> = self.objects.keys().cloned().collect();
        let pick = |n: usize| ids[n % ids.len()].clone();
        match *what {
            Damage::Delete(n) => {
                let id = pick(n);
                match id.kind {
                    Kind::Namespace | Kind::CustomResourceDefinition => {
                        self.objects.get_mut(&id).unwrap().deleting = Some(self.now);
                    }
                    _ => drop(self.objects.remove(&id)),
                }
            }
            Damage::Field(n) => {
                let object = self.objects.get_mut(&pick(n)).unwrap();
                object.fields["spec"] = json!({});
                object.generation += 1;
                self.serial += 1;
                object.version = self.serial;
                "kubectl".clone_into(&mut object.writer);
            }
            Damage::Commit(name, bad) => drop(self.commit(name, bad)),
            Damage::Pinned(n, foreign) => self.pin(&pick(n), foreign),
            Damage::Rival(name, times) => {
                self.rival = Some(Rival {
                    workload: name,
                    left: times,
                });
            }
            Damage::Unreadable(n) => {
                if self.install.traits.kind == EngineKind::Flux {
                    self.unreadable(&format!("app-{}", n % 3));
                }
            }
            Damage::Scale(name) => self.alter(name, "/spec/replicas", json!(0)),
            Damage::Image(name) => self.alter(
                name,
                "/spec/template/spec/containers/0/image",
                json!("bad:0"),
            ),
            Damage::Env(name) => self.add(name),
        }
    }

    /// Somebody writes a Kustomization that its controller cannot read, or writes it so.
    pub(in crate::agent::plan) fn unreadable(&mut self, name: &str) -> ObjectId {
        let id = ObjectId::new(Kind::Kustomization, "apps", name);
        self.serial += 1;
        let live = self.applications.entry(id.clone()).or_insert_with(|| {
            json!({
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": {"name": name, "namespace": "apps", "uid": format!("uid-{name}")},
            })
        });
        live["spec"]["interval"] = json!("99999999999999h");
        live["metadata"]["resourceVersion"] = json!(self.serial.to_string());
        let fields = json!({"f:spec": {"f:interval": {}}});
        live["metadata"]["managedFields"] = json!([{
            "manager": "kubectl-edit", "operation": "Update", "time": rfc3339(self.now), "fieldsV1": fields,
        }]);
        id
    }

    pub(in crate::agent::plan) fn alter(&mut self, workload: &str, pointer: &str, value: Value) {
        let mut objects = self.objects.iter_mut();
        let found = objects.find(|(id, _)| is_workload(id.kind) && id.name == workload);
        if let Some((_, object)) = found
            && let Some(field) = object.fields.pointer_mut(pointer)
        {
            *field = value;
            object.generation += 1;
            "kubectl".clone_into(&mut object.writer);
        }
    }

    fn add(&mut self, workload: &str) {
        let container = "/spec/template/spec/containers/0";
        let mut objects = self.objects.iter_mut();
        let found = objects.find(|(id, _)| is_workload(id.kind) && id.name == workload);
        if let Some((_, object)) = found
            && let Some(container) = object.fields.pointer_mut(container)
        {
            container["env"] = json!([{"name": BREAKS, "value": "nowhere"}]);
            object.generation += 1;
            "kubectl".clone_into(&mut object.writer);
        }
    }

    fn pin(&mut self, id: &ObjectId, foreign: bool) {
        let engines = self.install.traits.finalizers;
        let now = self.now;
        // What holds a Namespace or a CRD is what is in it.
        if matches!(id.kind, Kind::Namespace | Kind::CustomResourceDefinition) {
            return;
        }
        let object = self.objects.get_mut(id).unwrap();
        object.deleting.get_or_insert(now);
        object.finalizers = engines.iter().take(1).map(|f| (*f).to_owned()).collect();
        if foreign {
            object.finalizers.push(FOREIGN.to_owned());
        }
    }

    /// Somebody else's finalizer goes in its time; what none holds any more is gone.
    pub(super) fn let_go(&mut self) {
        let now = self.now;
        for object in self.objects.values_mut() {
            if object.deleting.is_some_and(|at| now - at > BACKUP) {
                object.finalizers.retain(|f| !is_foreign(f));
            }
        }
        self.objects.retain(|id, object| {
            let held = matches!(id.kind, Kind::Namespace | Kind::CustomResourceDefinition)
                || !object.finalizers.is_empty();
            object.deleting.is_none() || held
        });
    }

    pub(super) fn rival_writes(&mut self) {
        let Some(rival) = self.rival.as_mut().filter(|rival| rival.left > 0) else {
            return;
        };
        let workload = rival.workload;
        let mut objects = self.objects.iter();
        let right = objects.any(|(id, o)| {
            is_workload(id.kind) && id.name == workload && o.number("/spec/replicas") > 0
        });
        if right {
            rival.left -= 1;
            self.alter(workload, "/spec/replicas", json!(0));
        }
    }
}
