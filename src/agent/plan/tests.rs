use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::history::Outcome;
use super::*;
use crate::agent::engine::REQUESTED_AT;
use crate::agent::engine::argocd::{PROBED_AT, REFRESH};
use crate::agent::engine::flux::SIGNERS;
use crate::agent::engine::guard::ALLOW_DELETE;
use crate::agent::plan::state::Answer;
use crate::bundle::{Kind, ObjectId};
use crate::clock::rfc3339;
use crate::wire::api::EngineKind;

mod added;
mod argocd;
mod cluster;
mod crds;
mod damage;
mod desired;
mod git;
mod helm;
mod properties;

pub(in crate::agent) use cluster::Cluster;
pub(super) use damage::Damage;
pub(super) use desired::{argocd, bundle_of, flux};
pub(in crate::agent) use desired::{desired_of, install, install_of, install_signed};
pub(super) use git::{Bad, Fails};

const START: i64 = 1_800_000_000;

pub(super) fn start() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(START).unwrap()
}

/// W43: Flux reads the keys from a Secret of their own, each value of which is a key ring.
#[test]
fn signers_are_what_the_source_verifies_with() {
    let signed = install_signed();
    let id = ObjectId::new(Kind::Secret, "flux-system", SIGNERS);
    let name = format!("{}.asc", "A8".repeat(20));
    assert_eq!(
        signed.body(&id).unwrap()["data"],
        json!({ name: "YXJtb3I=" })
    );
    let verify = |install: &Install| {
        let source = install.body(&install.source).unwrap();
        source.pointer("/spec/verify").cloned()
    };
    assert_eq!(
        verify(&signed),
        Some(json!({"mode": "HEAD", "secretRef": {"name": SIGNERS}}))
    );
    let plain = install();
    assert_eq!((plain.body(&id), verify(&plain)), (None, None));
}

/// What an owner set up to be verified stays; what we did goes, also when nobody saw how it ended.
#[test]
fn only_our_own_verification_is_taken_back() {
    for (secret, ours) in [("owners-keys", false), (SIGNERS, true)] {
        let mut cluster = Cluster::working();
        let source = cluster.install.source.clone();
        let live = cluster.objects.get_mut(&source).unwrap();
        live.fields["spec"]["verify"] = json!({"mode": "HEAD", "secretRef": {"name": secret}});
        let found = cluster.plan().findings;
        let evidence: Vec<&str> = found.iter().map(|f| f.evidence.as_str()).collect();
        let expected: &[&str] = if ours {
            &["differs at /spec/verify"]
        } else {
            &[]
        };
        assert_eq!(evidence, expected, "{secret}");
    }
}

#[test]
fn an_empty_cluster_is_installed_in_stages() {
    let mut cluster = Cluster::empty();
    cluster.settle(100);
    let order: Vec<Kind> = cluster
        .steps
        .iter()
        .filter(|(_, s)| s.action == Action::Create)
        .map(|(_, s)| s.target.kind)
        .collect();
    let first = |kind| order.iter().position(|k| *k == kind).unwrap();
    assert_eq!(first(Kind::Namespace), 0);
    assert!(first(Kind::RoleBinding) < first(Kind::ServiceAccount));
    assert!(first(Kind::ServiceAccount) < first(Kind::Deployment));
    assert!(first(Kind::CustomResourceDefinition) < first(Kind::GitRepository));
    let last = cluster.steps.last().unwrap().0;
    assert!(last - start() < Duration::seconds(30), "{}", last - start());
}

#[test]
fn a_healthy_install_is_only_probed() {
    let mut cluster = Cluster::working();
    let end = cluster.now + Duration::hours(1);
    while cluster.now < end {
        cluster.round();
    }
    assert!(cluster.steps.iter().all(|(_, s)| s.action == Action::Nudge));
    // A probe of each root every five minutes.
    assert!(
        (20..=28).contains(&cluster.steps.len()),
        "{}",
        cluster.steps.len()
    );
}

#[test]
fn nothing_is_judged_before_all_kinds_are_known() {
    let cluster = Cluster::empty();
    let plan = plan(
        cluster.now,
        &cluster.install,
        &Observed::default(),
        &cluster.history,
    );
    assert_eq!((plan.mode, plan.steps), (Mode::Learning, Vec::new()));
}

/// F3
#[test]
fn scaling_to_zero_is_undone_after_half_a_minute() {
    let mut cluster = Cluster::working();
    let fault = cluster.now;
    cluster.damage(&Damage::Scale("kustomize-controller"));
    cluster.settle(100);
    let (at, step) = cluster
        .steps
        .iter()
        .find(|(_, s)| s.action == Action::Apply)
        .unwrap();
    assert_eq!(step.cause.as_ref().unwrap().0, Class::ScaledToZero);
    assert!(
        (30..=35).contains(&(*at - fault).whole_seconds()),
        "{}",
        *at - fault
    );
}

#[test]
fn a_fault_that_returns_for_ever_is_not_hammered() {
    let mut cluster = Cluster::working();
    let end = cluster.now + Duration::hours(3);
    while cluster.now < end {
        cluster.damage(&Damage::Image("source-controller"));
        cluster.round();
    }
    let applied: Vec<OffsetDateTime> = cluster
        .steps
        .iter()
        .filter(|(_, s)| s.action == Action::Apply)
        .map(|(at, _)| *at)
        .collect();
    for at in &applied {
        let within = applied
            .iter()
            .filter(|b| *at - **b < Duration::hours(1) && **b <= *at)
            .count();
        assert!(within <= 5, "{within} within an hour");
    }
    assert!(applied.len() >= 6, "trials go on: {}", applied.len());
    assert!(applied.len() <= 8, "once an hour: {}", applied.len());
    assert_eq!(cluster.plan().exhausted.len(), 1);
}

#[test]
fn what_an_apply_finds_equal_is_left_alone() {
    let mut cluster = Cluster::working();
    cluster.damage(&Damage::Field(0));
    let observed = cluster.observed();
    let plan = cluster.plan();
    let step = plan.steps.first().unwrap();
    cluster
        .history
        .acted(cluster.now, step, &Outcome::Unchanged, &observed);
    assert_eq!(cluster.plan().findings, Vec::new());
}

#[test]
fn a_window_and_a_foreign_manager_stop_all_writes() {
    let mut cluster = Cluster::working();
    let namespace = ObjectId::new(Kind::Namespace, "", "flux-system");
    let until = cluster.now + Duration::hours(1);
    cluster.objects.get_mut(&namespace).unwrap().fields["metadata"]["annotations"][MAINTENANCE] =
        json!(rfc3339(until));
    cluster.damage(&Damage::Image("source-controller"));
    let paused = cluster.plan();
    assert_eq!(
        (paused.mode, paused.steps),
        (
            Mode::Paused(Window {
                end: End::At(until),
                by: window::By::Namespace
            }),
            Vec::new()
        )
    );
    cluster.now = until + Duration::seconds(1);
    assert_eq!(cluster.plan().mode, Mode::Act);
    let source = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    cluster.objects.get_mut(&source).unwrap().fields["metadata"]["labels"]["app.kubernetes.io/managed-by"] =
        json!("flux-operator");
    let foreign = cluster.plan();
    assert_eq!(
        (foreign.mode, foreign.steps),
        (Mode::ObserveOnly, Vec::new())
    );
}

#[test]
fn a_suspended_root_is_reported_and_left_suspended() {
    let mut cluster = Cluster::working();
    let sync = cluster.install.sync.clone();
    cluster.objects.get_mut(&sync).unwrap().fields["spec"]["suspend"] = json!(true);
    let plan = cluster.plan();
    assert_eq!(
        plan.findings.iter().map(|f| f.class).collect::<Vec<_>>(),
        [Class::SuspendedByHuman]
    );
    assert!(plan.steps.iter().all(|s| s.action == Action::Nudge));
}

/// F12, F29: while a person holds the delivery a controller may hang as well. It alone is restarted, and the delivery stays held.
#[test]
fn a_controller_that_hangs_under_a_suspended_root_is_restarted() {
    for (kind, app) in [
        (Kind::GitRepository, "source-controller"),
        (Kind::Kustomization, "kustomize-controller"),
    ] {
        let mut cluster = Cluster::working();
        let root = cluster.install.roots().find(|id| id.kind == kind).unwrap();
        let root = root.clone();
        let asked = rfc3339(cluster.now);
        let live = cluster.objects.get_mut(&root).unwrap();
        live.fields["spec"]["suspend"] = json!(true);
        live.fields["metadata"]["annotations"][REQUESTED_AT] = json!(asked);
        cluster.now += Duration::seconds(91);
        let plan = cluster.plan();
        let found = plan.findings.iter().map(|f| (f.class, f.object.clone()));
        assert_eq!(
            found.collect::<Vec<_>>(),
            [
                (Class::SuspendedByHuman, root.clone()),
                (Class::QueueWedged, root.clone()),
            ]
        );
        let acts = plan.steps.iter().filter(|s| s.action != Action::Nudge);
        let acts = acts.map(|s| (s.action.as_str(), s.target.clone()));
        let controller = ObjectId::new(Kind::Deployment, "flux-system", app);
        assert_eq!(acts.collect::<Vec<_>>(), [("restart", controller)]);
        for _ in 0..40 {
            cluster.round();
            cluster.now += Duration::seconds(30);
        }
        assert_eq!(
            cluster.objects[&root].fields["spec"]["suspend"],
            json!(true)
        );
    }
}

#[test]
fn a_wedged_controller_is_restarted_and_a_busy_one_is_not() {
    let mut cluster = Cluster::working();
    let sync = cluster.install.sync.clone();
    let asked = rfc3339(cluster.now);
    let object = cluster.objects.get_mut(&sync).unwrap();
    object.fields["metadata"]["annotations"][REQUESTED_AT] = json!(asked);
    object.fields["status"]["conditions"] = json!([{"type": "Reconciling", "status": "True"}]);
    cluster.now += Duration::seconds(120);
    assert_eq!(cluster.plan().steps, Vec::new());
    cluster.objects.get_mut(&sync).unwrap().fields["status"]["conditions"] = json!([]);
    let steps = cluster.plan().steps;
    assert_eq!(
        steps
            .iter()
            .map(|s| (s.action.as_str(), s.target.name.as_str()))
            .collect::<Vec<_>>(),
        [("restart", "kustomize-controller")]
    );
}

#[test]
fn the_hubs_word_of_a_new_head_asks_the_source_once() {
    let mut cluster = Cluster::working();
    cluster.history.head = Some(("2".to_owned(), cluster.now));
    let steps = cluster.round().steps;
    assert_eq!(
        steps.iter().map(|s| &s.target).collect::<Vec<_>>(),
        [&cluster.install.source]
    );
    assert_eq!(cluster.plan().steps, Vec::new());
}

#[test]
fn a_permission_to_delete_ends_with_its_time() {
    let mut cluster = Cluster::working();
    let namespace = ObjectId::new(Kind::Namespace, "", "flux-system");
    let now = cluster.now;
    for (word, kept) in [
        (rfc3339(now + Duration::hours(1)), true),
        (rfc3339(now - Duration::seconds(1)), false),
        (rfc3339(now + Duration::hours(25)), false),
        ("forever".to_owned(), false),
    ] {
        let object = cluster.objects.get_mut(&namespace).unwrap();
        object.fields["metadata"]["annotations"][ALLOW_DELETE] = json!(word);
        let plan = cluster.plan();
        let locked = plan.steps.iter().any(|s| s.action == Action::Lock);
        assert_eq!(locked, !kept, "{word}");
        assert_eq!(plan.findings, Vec::new());
    }
    cluster.settle(10);
    assert_eq!(cluster.objects[&namespace].annotation(ALLOW_DELETE), None);
}

/// F11: with an address of nobody, each event stalls a reconciliation.
#[test]
fn events_for_nobody_are_switched_off() {
    let mut cluster = Cluster::working();
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let args = "/spec/template/spec/containers/0/args";
    let mut wanted = cluster.install.wanted[&id].clone();
    let mut expect = wanted.expect.as_ref().clone();
    *expect.pointer_mut(args).unwrap() = json!(["--events-addr="]);
    wanted.expect = Arc::new(expect);
    cluster.install.wanted.insert(id, wanted);
    cluster.alter(
        "source-controller",
        args,
        json!(["--events-addr=http://notification-controller"]),
    );
    let plan = cluster.plan();
    let steps: Vec<(&str, Class)> = plan
        .steps
        .iter()
        .map(|s| (s.action.as_str(), s.cause.as_ref().unwrap().0))
        .collect();
    assert_eq!(steps, [("apply", Class::EventSinkMissing)]);
}

/// F13: the Lease of a Pod that is gone is deleted, at most three times an hour.
#[test]
fn a_stuck_leader_loses_its_lease() {
    let cluster = Cluster::working();
    let mut observed = cluster.observed();
    let lease = state::Lease {
        uid: "lease".to_owned(),
        holder: "gone".to_owned(),
        renewed: cluster.now - Duration::minutes(5),
        seen: cluster.now,
    };
    observed
        .leases
        .insert("source-controller".to_owned(), lease);
    let later = cluster.now + Duration::seconds(80);
    let plan = plan(later, &cluster.install, &observed, &cluster.history);
    let freed = Action::FreeLease {
        uid: "lease".to_owned(),
    };
    let actions: Vec<&Action> = plan.steps.iter().map(|s| &s.action).collect();
    assert_eq!(actions, [&freed]);
}

#[test]
fn an_api_server_without_admission_policies_is_done_without() {
    let mut cluster = Cluster::working();
    cluster.objects.retain(|id, _| !id.kind.optional());
    let missing = cluster.plan().findings;
    assert_eq!(missing.len(), 2, "{missing:?}");
    let mut observed = cluster.observed();
    for (kind, scope) in &mut observed.scopes {
        if kind.optional() {
            scope.answer = Answer::Nothing;
        }
    }
    let plan = plan(cluster.now, &cluster.install, &observed, &cluster.history);
    assert_eq!((plan.mode, plan.findings), (Mode::Act, Vec::new()));
}

#[test]
fn nothing_is_made_anew_that_the_agent_may_not_list() {
    let mut cluster = Cluster::working();
    cluster.objects.retain(|id, _| id.kind != Kind::Service);
    let planned = |answered: OffsetDateTime| {
        let mut observed = cluster.observed();
        let scope = observed.scopes.get_mut(&Kind::Service).unwrap();
        (scope.answered, scope.answer) = (Some(answered), Answer::Refused);
        plan(cluster.now, &cluster.install, &observed, &cluster.history)
    };
    let young = planned(cluster.now);
    assert_eq!((young.mode, young.findings), (Mode::Act, Vec::new()));
    let since = cluster.now - Duration::seconds(91);
    let old = planned(since);
    let namespace = ObjectId::new(Kind::Namespace, "", &cluster.install.namespace);
    let text = format!(
        "the API server refuses the agent to list services, since {}",
        rfc3339(since)
    );
    let told = Finding::new(Class::ApiUnhealthy, &namespace, text);
    assert_eq!(
        (old.mode, old.findings, old.steps),
        (Mode::Learning, vec![told], vec![])
    );
}

#[test]
fn host_key_and_key_trouble_are_told_apart() {
    let cases = [
        (
            "failed to checkout: knownhosts: key mismatch",
            Class::HostKeyMismatch,
        ),
        (
            "ssh: handshake failed: ssh: unable to authenticate",
            Class::KeyRevoked,
        ),
        ("dial tcp: lookup git: no such host", Class::GitUnreachable),
    ];
    for (message, class) in cases {
        let mut cluster = Cluster::working();
        let source = cluster.install.source.clone();
        cluster.objects.get_mut(&source).unwrap().fields["status"]["conditions"] = json!([{"type": "Ready", "status": "False", "reason": "GitOperationFailed", "message": message}]);
        let plan = cluster.plan();
        assert_eq!(
            plan.findings.iter().map(|f| f.class).collect::<Vec<_>>(),
            [class]
        );
        assert_eq!(plan.steps, Vec::new());
    }
}

/// F24: a key that is missing or malformed was never offered, so the Git host has not refused it.
#[test]
fn a_source_that_found_no_key_has_a_bad_secret_and_no_revoked_key() {
    let mut cluster = Cluster::working();
    let source = cluster.install.source.clone();
    let secret = cluster.install.secret.clone();
    let message = "failed to get secret 'flux-system/flux-system'";
    let said = json!([{"type": "Ready", "status": "False", "reason": "AuthenticationFailed", "message": message}]);
    cluster.objects.get_mut(&source).unwrap().fields["status"]["conditions"] = said;
    let plan = cluster.plan();
    let found: Vec<_> = plan
        .findings
        .iter()
        .map(|f| (f.class, &f.object, f.reported))
        .collect();
    assert_eq!(found, [(Class::GitSecretBad, &source, true)]);
    assert!(plan.steps.iter().all(|s| s.action == Action::Nudge));
    // Where it is the Secret that is wrong, that is mended, and what the source says of it is old from then on.
    let kept = cluster.objects.remove(&secret).unwrap();
    let found: Vec<_> = cluster
        .plan()
        .findings
        .into_iter()
        .map(|f| (f.class, f.object))
        .collect();
    assert_eq!(found, [(Class::GitSecretBad, secret.clone())]);
    cluster.objects.insert(secret, kept);
    cluster.history.last_write = Some(cluster.now);
    assert_eq!(cluster.plan().findings, Vec::new());
}

/// What somebody added is another manager's field, which no apply takes away.
#[test]
fn a_variable_that_stops_a_controller_is_removed() {
    for (engine, name) in [
        (EngineKind::Flux, "source-controller"),
        (EngineKind::Argocd, "argocd-application-controller"),
    ] {
        let mut cluster = Cluster::working_of(engine);
        let fault = cluster.now;
        cluster.damage(&Damage::Env(name));
        cluster.settle(100);
        let (at, step) = cluster
            .steps
            .iter()
            .find(|(_, s)| s.cause.is_some())
            .unwrap();
        let (class, id) = step.cause.as_ref().unwrap();
        assert_eq!((*class, id.name.as_str()), (Class::ReadyButUseless, name));
        assert_eq!(step.action, Action::Replace);
        let waited = (*at - fault).whole_seconds();
        assert!((30..=35).contains(&waited), "{waited}");
    }
}
