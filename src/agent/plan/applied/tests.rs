use serde_json::json;
use time::Duration;
use time::macros::datetime;

use super::*;
use crate::agent::plan::tests::Cluster;
use crate::agent::plan::{Class, Plan};
use crate::clock::rfc3339;

const THEN: OffsetDateTime = datetime!(2026-01-02 03:04:05 UTC);

#[test]
fn what_argo_cd_applied_is_told_from_what_people_did() {
    let lacks = json!({"spec": {"syncPolicy": {"syncOptions": []}}}).to_string();
    let has = json!({"spec": {"syncPolicy": {"automated": {"prune": true}}}}).to_string();
    let null = json!({"spec": {"syncPolicy": {"automated": null}}}).to_string();
    let word = json!({"f:metadata": {"f:annotations": {format!("f:{LAST_APPLIED}"): {}}}});
    let other = json!({"f:metadata": {"f:labels": {"f:a": {}}}});
    let entry = |manager: &str, second: i64, fields: &Value| {
        let time = rfc3339(THEN + Duration::seconds(second));
        json!({"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields})
    };
    let by = |automated| {
        Some(Applied {
            automated,
            at: Some(THEN),
        })
    };
    let argo = || entry("argocd-controller", 0, &word);
    for (text, entries, expected) in [
        (Some(&lacks), vec![argo()], by(false)),
        (Some(&null), vec![argo()], by(false)),
        (Some(&has), vec![argo()], by(true)),
        (
            Some(&lacks),
            vec![argo(), entry("kubectl", 9, &other)],
            by(false),
        ),
        // `kubectl apply` of the same, and of another.
        (Some(&lacks), vec![argo(), entry("kubectl", 0, &word)], None),
        (Some(&lacks), vec![entry("kubectl", 9, &word)], None),
        (
            Some(&lacks),
            vec![entry("argocd-controller", 0, &other)],
            None,
        ),
        (None, vec![argo()], None),
        (Some(&"{".to_owned()), vec![argo()], None),
    ] {
        let entries: Vec<ManagedFieldsEntry> = serde_json::from_value(json!(entries)).unwrap();
        let text = text.map(String::as_str);
        assert_eq!(
            of(Kind::Application, text, &entries),
            expected,
            "{text:?} {entries:?}"
        );
        assert_eq!(of(Kind::Deployment, text, &entries), None);
    }
}

/// A root without `automated`, beside what Argo CD applied of it; the last to write a field of it was `writer`.
fn stopped(automated: bool, writer: &str) -> Cluster {
    let mut cluster = Cluster::working_of(EngineKind::Argocd);
    cluster.now += Duration::seconds(30);
    let (root, at) = (cluster.install.sync.clone(), Some(cluster.now));
    let live = cluster.objects.get_mut(&root).unwrap();
    let policy = live.fields.pointer_mut("/spec/syncPolicy").unwrap();
    policy.as_object_mut().unwrap().remove("automated");
    live.generation += 1;
    live.applied = Some(Applied { automated, at });
    writer.clone_into(&mut live.writer);
    cluster.now += Duration::seconds(10);
    cluster
}

fn found(plan: &Plan) -> Vec<(Class, &str, &str, &str)> {
    let all = plan.findings.iter();
    all.map(|f| {
        (
            f.class,
            f.evidence.as_str(),
            f.writer.as_str(),
            f.commit.as_str(),
        )
    })
    .collect()
}

fn writes(plan: &Plan) -> Vec<&str> {
    let steps = plan.steps.iter().map(|s| s.action.as_str());
    steps.filter(|action| *action != "nudge").collect()
}

/// F29, W18: no field says that it was Argo CD, and no other commit would arrive.
#[test]
fn a_root_that_a_commit_stops_is_held_and_synced_again() {
    for writer in ["linesman", "argocd-controller"] {
        let mut cluster = stopped(false, writer);
        let plan = cluster.plan();
        let said = "differs at /spec/syncPolicy/automated; commit 1 has it so";
        assert_eq!(
            found(&plan),
            [(Class::SourceAltered, said, "argocd-controller", "1")]
        );
        assert_eq!(
            plan.findings[0].fault_at,
            Some(cluster.now - Duration::seconds(10))
        );
        assert_eq!(writes(&plan), ["shield", "hold", "apply"]);
        for step in &plan.steps {
            cluster.act(step);
        }
        let root = &cluster.objects[&cluster.install.sync];
        assert!(!is_absent(&root.fields));
        assert_eq!(cluster.plan().findings, [], "{writer}");
    }
}

/// F29: also where a commit wrote something else of the root before.
#[test]
fn a_root_that_a_person_stops_is_left_whoever_wrote_it_last() {
    for writer in ["linesman", "argocd-controller"] {
        let plan = stopped(true, writer).plan();
        let said = "spec.syncPolicy.automated is off; who took it away is on no record";
        assert_eq!(found(&plan), [(Class::SuspendedByHuman, said, "", "")]);
        assert_eq!(writes(&plan), [""; 0], "{writer}");
    }
}

/// F29: a catalog may never have had it, so that Argo CD took nothing away.
#[test]
fn a_root_that_ran_beside_the_same_word_was_stopped_by_a_person() {
    let mut cluster = stopped(false, "linesman");
    let root = cluster.install.sync.clone();
    let mut ran = cluster.observed();
    let live = std::sync::Arc::make_mut(ran.objects.get_mut(&root).unwrap());
    live.fields["spec"]["syncPolicy"]["automated"] = json!({"prune": true, "selfHeal": true});
    cluster.history.noted(cluster.now, &cluster.install, &ran);
    let observed = cluster.observed();
    cluster
        .history
        .noted(cluster.now, &cluster.install, &observed);
    let plan = cluster.plan();
    assert_eq!(plan.findings[0].class, Class::SuspendedByHuman);
    assert_eq!(writes(&plan), [""; 0]);
    // Another commit does.
    let live = cluster.objects.get_mut(&root).unwrap();
    live.applied.as_mut().unwrap().at = Some(cluster.now - Duration::seconds(6));
    assert_eq!(cluster.plan().findings[0].class, Class::SourceAltered);
}

/// F29: what Argo CD applies is told of a moment later, and no person's doing meanwhile.
#[test]
fn a_root_that_was_stopped_just_now_is_nobodys_until_the_commit_is_told() {
    let mut cluster = stopped(false, "linesman");
    let root = cluster.install.sync.clone();
    let status = &mut cluster.objects.get_mut(&root).unwrap().fields["status"];
    status["operationState"] = Value::Null;
    cluster.now -= Duration::seconds(8);
    assert_eq!(found(&cluster.plan()), []);
    cluster.now += Duration::seconds(8);
    assert_eq!(cluster.plan().findings[0].class, Class::SourceAltered);
}

/// F29: to see a root stand still beside a word is not to have seen it at work beside that.
#[test]
fn a_root_that_stands_still_is_not_noted_as_one_that_ran() {
    let mut cluster = stopped(false, "linesman");
    let observed = cluster.observed();
    cluster
        .history
        .noted(cluster.now, &cluster.install, &observed);
    assert_eq!(cluster.history.ran_beside, None);
    assert_eq!(cluster.plan().findings[0].class, Class::SourceAltered);
}
