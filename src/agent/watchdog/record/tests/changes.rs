//! Faults while an engine is changed.

use std::sync::Arc;

use super::*;
use crate::agent::plan::tests::{Cluster, desired_of, install_of};
use crate::wire::api::EngineKind;

/// What one engine leaves of the roots and of what both have is nobody's fault when the other one comes back.
#[test]
fn what_a_hand_over_gives_back_is_no_heal() {
    let root = ObjectId::new(Kind::Application, "argocd", "linesman");
    let guard = ObjectId::new(Kind::ValidatingAdmissionPolicy, "", "linesman-guard");
    let found = [
        Finding::new(Class::SourceAltered, &root, "does not prune"),
        Finding::new(Class::ObjectAltered, &guard, "is the other engine's"),
        Finding::new(Class::GitUnreachable, &root, "no answer"),
    ];
    let plan = Plan {
        findings: found.to_vec(),
        steps: Vec::new(),
        next_look: at(60),
        exhausted: Vec::new(),
        mode: Mode::Act,
    };
    let told = |changing, hands_over| {
        let (mut records, mut history) = adopted();
        history.saw(at(0), &plan);
        let moment = Moment {
            now: at(3600),
            plan: &plan,
            history: &history,
            observed: &Observed::default(),
            proven: None,
            revision: "",
            tried: "",
            applier: "argocd-controller",
            overdue: &[],
            changing,
            waits: None,
            hands_over,
        };
        let told = records.update(&moment, || "id".to_owned());
        told.into_iter().map(|h| h.class).collect::<Vec<_>>()
    };
    let all = ["SourceAltered", "ObjectAltered", "GitUnreachable"];
    assert_eq!(told(true, true), ["GitUnreachable"]);
    // Another version of the same engine changes neither; and after its time it is a fault.
    assert_eq!(told(true, false), all);
    assert_eq!(told(false, true), all);
}

/// W24: the window on one object may keep a change waiting for a day. What else breaks meanwhile is on record; what is not yet as the
/// change wants it is not, unless it does not work, or somebody altered it.
#[test]
fn a_fault_beside_what_a_change_waits_for_is_a_heal() {
    let of = |name: &str| ObjectId::new(Kind::Deployment, "flux-system", name);
    let key = ObjectId::new(Kind::Secret, "flux-system", "flux-system");
    let service = ObjectId::new(Kind::Service, "flux-system", "source-controller");
    let [former, down] = ["source-controller", "kustomize-controller"].map(of);
    let found = [
        Finding::new(Class::ObjectMissing, &of("gone"), "is missing"),
        Finding::new(Class::BadImage, &former, "differs"),
        Finding::new(Class::BadImage, &down, "differs"),
        Finding::new(Class::ObjectAltered, &service, "differs"),
        Finding::new(Class::GitSecretBad, &key, "is missing"),
    ];
    let mut observed = Cluster::working().observed();
    let altered = observed.objects.get_mut(&service).unwrap();
    Arc::make_mut(altered).fields["spec"] = serde_json::json!({});
    let mut desired = desired_of(EngineKind::Flux);
    desired.install.form.registry = Some("mirror.lan".to_owned());
    let install = Install::new(&desired, &BTreeMap::new(), None);
    let plan = Plan {
        findings: found.to_vec(),
        steps: Vec::new(),
        next_look: at(60),
        exhausted: Vec::new(),
        mode: Mode::Act,
    };
    let told = |changing, waits| {
        let (mut records, mut history) = adopted();
        history.saw(at(0), &plan);
        history.down.insert(down.clone(), at(0));
        history.changes_from(&install_of(EngineKind::Flux));
        let moment = Moment {
            now: at(3600),
            plan: &plan,
            history: &history,
            observed: &observed,
            proven: None,
            revision: "",
            tried: "",
            applier: "kustomize-controller",
            overdue: &[],
            changing,
            waits,
            hands_over: false,
        };
        let told = records.update(&moment, || "id".to_owned());
        let told = told.into_iter().map(|heal| heal.object);
        told.collect::<Vec<_>>()
    };
    let all = [of("gone"), former.clone(), down.clone(), service, key];
    let mut all = all.map(|id| id.to_string()).to_vec();
    assert_eq!(told(true, None), [""; 0]);
    assert_eq!(told(false, Some(&install)), all);
    all.retain(|object| *object != former.to_string());
    assert_eq!(told(true, Some(&install)), all);
}
