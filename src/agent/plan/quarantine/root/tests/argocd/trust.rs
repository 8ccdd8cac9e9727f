//! Whom Argo CD trusts: host keys and the catalog's Secret.

use super::*;
use crate::agent::engine::argocd::{KNOWN_HOSTS, REPOSITORY};
use crate::agent::plan::quarantine::lifts;

/// What says whom Argo CD trusts, and the field of it that a commit has otherwise.
fn trusted() -> [(ObjectId, &'static str); 2] {
    let id = |kind, name| ObjectId::new(kind, "argocd", name);
    [
        (id(Kind::ConfigMap, KNOWN_HOSTS), "ssh_known_hosts"),
        (id(Kind::Secret, REPOSITORY), "url"),
    ]
}

/// Argo CD applies a commit's version of it.
fn distrusts(cluster: &mut Cluster, id: &ObjectId, field: &str) {
    let now = cluster.now;
    let live = cluster.objects.get_mut(id).unwrap();
    let tracked = format!("{ROOT}:/{}:argocd/{}", id.kind, id.name);
    live.fields["metadata"]["annotations"][TRACKING] = json!(tracked);
    live.fields["data"][field] = json!("elsewhere.test ssh-ed25519 AAAA");
    cluster.install.traits.applier.clone_into(&mut live.writer);
    live.written = Some(now);
}

/// F24, W18: host keys and the catalog's Secret are the hub's word: written again at once, held back while the commit has
/// them otherwise, and made anew as they were, and held.
#[test]
fn whom_argo_cd_trusts_no_commit_says() {
    for (id, field) in trusted() {
        let mut cluster = brought_by(ROOT);
        let name = id.name.as_str();
        let before = cluster.objects[&id].fields["data"].clone();
        distrusts(&mut cluster, &id, field);
        let plan = cluster.plan();
        let found = &plan.findings[0];
        let said = format!("differs at /data/{field}; commit 1 has it so");
        assert_eq!(
            (found.class, found.evidence.as_str(), found.commit.as_str()),
            (Class::GitSecretBad, said.as_str(), "1")
        );
        let steps = [("shield", ROOT), ("hold", name), ("write-key", name)];
        assert_eq!(writes(&plan), steps);
        do_all(&mut cluster);
        assert_eq!(cluster.objects[&id].fields["data"], before);
        let ignored = json!({
            "kind": id.kind.as_str(), "namespace": "argocd", "name": name,
            "jsonPointers": ["/data", "/binaryData", "/stringData"],
        });
        assert!(ignores(root(&cluster)).contains(&ignored));
        assert_eq!(writes(&cluster.plan()), []);

        let gone = cluster.objects.remove(&id).unwrap();
        assert_eq!(writes(&cluster.plan()), [("create-held", name)]);
        cluster.objects.insert(id.clone(), gone);

        looked_at(&mut cluster, ROOT, "2", None);
        assert_eq!(writes(&cluster.plan()), [("lift", name), ("shield", ROOT)]);
        do_all(&mut cluster);
        distrusts(&mut cluster, &id, field);
        assert_eq!(writes(&cluster.plan()), steps, "later each time");
        do_all(&mut cluster);
        assert_eq!(hold(&cluster.objects[&id]).unwrap().attempt, 2);
    }
}

/// F24, W18: an operation that began before the hold may write the held commit's version after it was lifted. That is no
/// second break, and the next look gives it back.
#[test]
fn what_the_held_commit_writes_once_more_is_given_back_at_once() {
    for (id, field) in trusted() {
        let mut cluster = brought_by(ROOT);
        let name = id.name.as_str();
        distrusts(&mut cluster, &id, field);
        do_all(&mut cluster);
        let first = hold(&cluster.objects[&id]).unwrap();
        cluster.now += Duration::seconds(20);
        looked_at(&mut cluster, ROOT, "2", None);
        do_all(&mut cluster);
        cluster.now += Duration::seconds(20);
        looked_at(&mut cluster, ROOT, "1", None);
        distrusts(&mut cluster, &id, field);
        let steps = [("shield", ROOT), ("hold", name), ("write-key", name)];
        assert_eq!(writes(&cluster.plan()), steps);
        do_all(&mut cluster);
        assert_eq!(hold(&cluster.objects[&id]).unwrap(), first);
        looked_at(&mut cluster, ROOT, "2", None);
        assert_eq!(writes(&cluster.plan()), [("lift", name), ("shield", ROOT)]);

        // Not for ever.
        do_all(&mut cluster);
        cluster.now += Duration::minutes(10);
        looked_at(&mut cluster, ROOT, "1", None);
        distrusts(&mut cluster, &id, field);
        do_all(&mut cluster);
        assert_eq!(hold(&cluster.objects[&id]).unwrap().attempt, 2);
    }
}

/// F24: a person's change is written over, and nothing is held.
#[test]
fn whom_argo_cd_trusts_no_person_says() {
    for (id, field) in trusted() {
        let mut cluster = brought_by(ROOT);
        distrusts(&mut cluster, &id, field);
        "kubectl-edit".clone_into(&mut cluster.objects.get_mut(&id).unwrap().writer);
        let name = id.name.as_str();
        assert_eq!(writes(&cluster.plan()), [("write-key", name)]);
    }
}

/// F24, W18: what an operation applies has what its Application leaves alone as it was when it began: given back with a commit's
/// host keys, it would be written so once more.
#[test]
fn whom_argo_cd_trusts_is_not_given_back_before_it_is_as_the_hub_says() {
    for (id, field) in trusted() {
        let mut cluster = brought_by(ROOT);
        distrusts(&mut cluster, &id, field);
        let bad = cluster.objects[&id].fields["data"].clone();
        do_all(&mut cluster);
        cluster.now += Duration::seconds(20);
        looked_at(&mut cluster, ROOT, "2", None);
        let given_back = |cluster: &Cluster| {
            let (now, observed) = (cluster.now, cluster.observed());
            let steps = lifts(now, &cluster.install, &observed, &cluster.history);
            let steps = steps.into_iter();
            let named = steps.map(|step| (step.action.as_str(), step.target));
            named.collect::<Vec<_>>()
        };
        let root = || application(ROOT);
        let all = [("lift", id.clone()), ("shield", root()), ("nudge", root())];
        assert_eq!(given_back(&cluster), all);
        cluster.objects.get_mut(&id).unwrap().fields["data"] = bad;
        assert_eq!(given_back(&cluster), []);
    }
}
