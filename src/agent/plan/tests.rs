use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::history::Outcome;
use super::*;
use crate::agent::engine::REQUESTED_AT;
use crate::agent::engine::argocd::{PROBED_AT, REFRESH};
use crate::agent::engine::guard::ALLOW_DELETE;
use crate::agent::plan::state::{Answer, Past};
use crate::bundle::{Kind, ObjectId};
use crate::clock::rfc3339;
use crate::wire::api::EngineKind;

mod added;
mod argocd;
mod away;
mod cluster;
mod controllers;
mod crds;
mod damage;
mod desired;
mod git;
mod helm;
mod keys;
mod objects;
mod properties;

pub(in crate::agent) use cluster::Cluster;
pub(super) use damage::Damage;
pub(super) use desired::{
    argocd, desired_with, flux, flux_with_helm, install_for, install_signed_of, install_with,
};
pub(in crate::agent) use desired::{desired_of, install, install_of, install_signed};
pub(super) use git::{Bad, Fails};
pub(super) use objects::{account, deployment, source};

const START: i64 = 1_800_000_000;

pub(super) fn start() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(START).unwrap()
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

/// What is not known yet is looked at soon, and what is to be given back at once.
#[test]
fn while_nothing_is_done_the_next_look_is_in_a_minute_or_sooner() {
    let now = start();
    let paused = |end| {
        let by = window::By::Hub;
        Mode::Paused(Window { end, by })
    };
    let until = |seconds| paused(End::At(now + Duration::seconds(seconds)));
    for (mode, due, seconds) in [
        (Mode::Learning, false, 5),
        (Mode::Learning, true, 2),
        (Mode::ObserveOnly, false, 60),
        (Mode::ObserveOnly, true, 2),
        (until(30), false, 30),
        (until(30), true, 2),
        (until(90), false, 60),
        (paused(End::Open), false, 60),
    ] {
        let at = now + Duration::seconds(seconds);
        assert_eq!(rests_until(now, mode, due), at, "{mode:?} {due}");
    }
}

#[test]
fn what_came_of_a_step_is_looked_at_two_seconds_later() {
    let mut cluster = Cluster::working();
    let id = ObjectId::new(Kind::Service, "flux-system", "source-controller");
    cluster.objects.remove(&id).unwrap();
    let plan = cluster.plan();
    let step = Step {
        action: Action::Create,
        target: id.clone(),
        cause: Some((Class::ObjectMissing, id)),
    };
    assert_eq!(
        (plan.steps, plan.next_look),
        (vec![step], cluster.now + Duration::seconds(2))
    );
}

/// No step is planned for what is only reported: nothing else says when it begins to count.
#[test]
fn what_is_yet_to_count_is_looked_at_when_it_does() {
    let now = start();
    let after = |seconds| now + Duration::seconds(seconds);
    let [young, old, down, crd] =
        ["a", "b", "c", "d"].map(|name| ObjectId::new(Kind::Deployment, "flux-system", name));
    let findings = [&young, &old].map(|id| Finding::new(Class::RegistryDown, id, ""));
    let past = |seconds| Past {
        since: Some(after(seconds)),
        ..Past::default()
    };
    let history = History {
        faults: [
            ((Class::RegistryDown, young), past(-5)),
            ((Class::RegistryDown, old), past(-20)),
        ]
        .into(),
        down: [(down, after(-10))].into(),
        restore_after: [(crd, after(40))].into(),
        ..History::default()
    };
    let looks: Vec<OffsetDateTime> = ripening(now, &history, &findings).collect();
    assert_eq!(looks, [15, 20, 40].map(after));
}
