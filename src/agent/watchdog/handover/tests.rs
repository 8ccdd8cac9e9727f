use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use time::Duration;

use super::*;
use crate::agent::DeployKey;
use crate::agent::gate::policy::Mending;
use crate::agent::plan::tests::{Cluster, desired_of, install, install_signed};
use crate::agent::plan::{Class, MAINTENANCE, project};
use crate::agent::watchdog::tests::watchdog;
use crate::bundle::Bundle;
use crate::keys::KeyPair;
use crate::wire::api::{EngineKind, SignerRef};

/// W43: the source never refers to a Secret that is not there.
#[test]
fn signers_are_written_before_the_source_and_taken_away_after_it() {
    let [plain, signed] = [install(), install_signed()];
    let mut observed = Observed::default();
    let secret = ObjectId::new(Kind::Secret, "flux-system", SIGNERS);
    // A source that is not there is the planner's.
    assert_eq!(changed(&plain, &signed, &observed).len(), 1);
    let source = signed.source.clone();
    let live = signed.body(&source).unwrap();
    let live = project::object(source.kind, serde_json::from_value(live).unwrap());
    observed.objects.insert(source.clone(), Arc::new(live));
    assert_eq!(
        changed(&plain, &signed, &observed),
        [secret.clone(), source.clone()]
    );
    assert_eq!(no_signers(&plain, &signed), None);
    assert_eq!(changed(&signed, &plain, &observed), [source]);
    assert_eq!(no_signers(&signed, &plain), Some(secret));
    assert_eq!(changed(&signed, &signed, &observed), []);
}

/// W43: with Argo CD the project names no key that is not there, and is the first to let go of them.
#[test]
fn signers_are_in_the_ring_before_the_project_names_them() {
    let ring = ObjectId::new(Kind::ConfigMap, "argocd", KEYRING);
    let project = ObjectId::new(Kind::AppProject, "argocd", "default");
    let of = |seeds: &[&str]| {
        let mut desired = desired_of(EngineKind::Argocd);
        let signer = |seed: &&str| SignerRef {
            fingerprint: seed.repeat(40),
            public_key: format!("armor of {seed}"),
            subkeys: Vec::new(),
        };
        desired.assignment.catalog.signers = seeds.iter().map(signer).collect();
        let bundle = desired.install.bundle.objects.iter();
        let mut objects: Vec<Value> = bundle.map(|o| o.whole().into_owned()).collect();
        objects.push(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": KEYRING, "labels": {"app.kubernetes.io/part-of": "argocd"}},
        }));
        desired.install.bundle = Arc::new(Bundle::from_objects(objects).unwrap());
        Install::new(&desired, &BTreeMap::new(), Some(Mending::default()))
    };
    let (plain, one, two) = (of(&[]), of(&["A"]), of(&["A", "B"]));
    let live = |id: &ObjectId| {
        let body = serde_json::from_value(plain.body(id).unwrap()).unwrap();
        (id.clone(), Arc::new(project::object(id.kind, body)))
    };
    let observed = Observed {
        objects: [&ring, &project].map(live).into(),
        ..Observed::default()
    };
    let there_first = [ring.clone(), project.clone()];
    let there_last = [project, ring];
    for (before, now, expected) in [
        (&plain, &one, &there_first[..]),
        (&one, &two, &there_first[..]),
        (&two, &one, &there_first[..]),
        (&one, &plain, &there_last[..]),
        (&one, &one, &there_first[..0]),
    ] {
        assert_eq!(changed(before, now, &observed), expected);
        assert_eq!(no_signers(before, now), None);
        assert!(before.wanted.keys().eq(now.wanted.keys()));
    }
}

/// F29: an engine that has taken another one's place, and may prune again, delivers nothing that a person holds back.
#[test]
fn a_stopped_root_that_may_prune_again_stays_stopped() {
    let of = |prunes: bool| {
        let mut desired = desired_of(EngineKind::Argocd);
        desired.prunes = prunes;
        Install::new(&desired, &BTreeMap::new(), Some(Mending::default()))
    };
    let (before, now) = (of(false), of(true));
    let root = now.sync.clone();
    let mut body = before.body(&root).unwrap();
    body["spec"]["syncPolicy"]["automated"] = Value::Null;
    let live = project::object(root.kind, serde_json::from_value(body).unwrap());
    let observed = Observed {
        objects: [(root.clone(), Arc::new(live))].into(),
        ..Observed::default()
    };
    let all = changed(&before, &now, &observed);
    assert_eq!(all, std::slice::from_ref(&root));
    let automated = |history: &History| {
        let install = written_from(&now, &root, &observed, history);
        let body = install.body(&root).unwrap();
        body.pointer("/spec/syncPolicy/automated").cloned()
    };
    let mut history = History::default();
    let at_work = json!({"prune": true, "selfHeal": true});
    assert_eq!(automated(&history), Some(at_work));
    let stopped = (Class::SuspendedByHuman, root.clone());
    let told = history.faults.entry(stopped).or_default();
    told.since = Some(OffsetDateTime::UNIX_EPOCH);
    assert_eq!(automated(&history), None);
}

/// An install that reads with this key, and what it is made of.
fn reads_with(seed: u8) -> (Install, Desired) {
    let pair = KeyPair::from_seed(&[seed; 32]);
    let mut desired = desired_of(EngineKind::Flux);
    desired.deploy_key = DeployKey {
        unsettled: true,
        private: pair.openssh("").unwrap(),
        public: pair.public().openssh("").unwrap(),
    };
    let install = Install::new(&desired, &BTreeMap::new(), Some(Mending::default()));
    (install, desired)
}

/// W24: a Secret with a window of its own stays as it is until that ends. Then the plan writes it, and only when the engine has
/// fetched with the new key may the former one end.
#[tokio::test]
async fn a_key_is_handed_over_when_nobody_is_at_work_on_its_secret_any_more() {
    let ((before, _), (now, desired)) = (reads_with(1), reads_with(2));
    let secret = now.secret.clone();
    let live = |install: &Install, until: Option<&str>| {
        let mut body = install.body(&secret).unwrap();
        if let Some(until) = until {
            body["metadata"]["annotations"] = json!({ MAINTENANCE: until });
        }
        let live = serde_json::from_value(body).unwrap();
        Arc::new(project::object(Kind::Secret, live))
    };
    let mut observed = Cluster::working().observed();
    let at = observed.pods_at.unwrap();
    let end = at + Duration::HOUR;
    let history = History {
        adopted: true,
        ..History::default()
    };
    let writes = |observed: &Observed| {
        let plan = plan::plan(at, &now, observed, &history);
        let mut steps = plan.steps.iter();
        steps.any(|s| s.target == secret && s.action == Action::WriteSecret)
    };
    let mut watchdog = watchdog();
    let mut fetched = |observed: &Observed| {
        watchdog.see_fetch(at - Duration::HOUR, &now, &desired, observed);
        watchdog.context.fetched.borrow().clone()
    };

    let until = clock::rfc3339(end);
    let old = live(&before, Some(&until));
    observed.objects.insert(secret.clone(), old);
    let all = changed(&before, &now, &observed);
    assert_eq!(all, std::slice::from_ref(&secret));
    let none = Vec::new;
    assert_eq!(parted(at, all.clone(), &observed), (all.clone(), none()));
    assert_eq!(parted(end, all.clone(), &observed), (none(), all));
    assert!(!writes(&observed));
    assert_eq!(fetched(&observed), "");

    observed.objects.insert(secret.clone(), live(&before, None));
    assert!(writes(&observed));
    assert_eq!(fetched(&observed), "");

    observed.objects.insert(secret.clone(), live(&now, None));
    assert!(!writes(&observed));
    let key = Public::from_openssh(&desired.deploy_key.public).unwrap();
    assert_eq!(fetched(&observed), key.fingerprint());
}
