//! Whether controllers get on: their Leases, and what they answer.

use super::*;
use crate::agent::engine::argocd::{PROBED_AT, REDIS, REFRESH, REPO_SERVER};
use crate::agent::plan::redis::{Requests, Tally};
use crate::agent::plan::state::Probe;
use crate::agent::plan::tests::{flux, install_with};
use crate::agent::plan::witness::Witness;

#[test]
fn a_leader_that_renews_its_lease_is_fresh_and_one_that_does_not_is_wrong() {
    let name = "source-controller";
    for (seconds, fresh) in [(69, Verdict::Yes), (70, Verdict::No)] {
        let mut cluster = Cluster::working();
        let plan = cluster.plan();
        cluster.history.saw(cluster.now, &plan);
        let mut observed = cluster.observed();
        let renewed = cluster.now - Duration::seconds(seconds);
        let lease = Lease {
            uid: "lease".to_owned(),
            holder: "pod-1".to_owned(),
            acquired: None,
            renewed,
            seen: cluster.now,
        };
        observed.leases.insert(lease_of(name, None), lease);
        let rows = components(&Moment {
            now: cluster.now,
            install: &cluster.install,
            observed: &observed,
            history: &cluster.history,
            plan: &plan,
            snapshot: None,
        });
        let row = the(&rows, name);
        let (found, fix) = if fresh == Verdict::Yes {
            ("available; pod-1 leads".to_owned(), String::new())
        } else {
            let text = format!("its Lease was renewed last at {}", rfc3339(renewed));
            let fix = "it is being mended; see: linesman heal list eu1";
            (text, fix.to_owned())
        };
        let expected = Component {
            exists: Verdict::Yes,
            works: Verdict::Yes,
            fresh,
            found,
            fix,
            ..super::row("Deployment flux-system/source-controller")
        };
        assert_eq!(*row, expected);
        let snapshot = the(&rows, "snapshot");
        assert_eq!(snapshot.exists, Verdict::No);
        assert!(snapshot.fix.ends_with("linesman cluster show eu1"));
    }
}

#[test]
fn an_answer_is_fresh_for_two_rounds_and_silence_is_wrong_after_its_time() {
    let lately = Cluster::working().install.policy.probe_every * 2 + ANSWERS;
    let second = Duration::seconds(1);
    for (answered, ago, fresh) in [
        (Some(true), lately - second, Verdict::Yes),
        (Some(true), lately, Verdict::No),
        (Some(false), ANSWERS - second, Verdict::Unknown),
        (Some(false), ANSWERS, Verdict::No),
        (None, second, Verdict::Unknown),
    ] {
        let mut cluster = Cluster::working();
        let sync = cluster.install.sync.clone();
        let sent = rfc3339(cluster.now - ago);
        let live = cluster.objects.get_mut(&sync).unwrap();
        live.fields["metadata"]["annotations"] = match answered {
            Some(_) => serde_json::json!({ REQUESTED_AT: sent }),
            None => serde_json::json!({}),
        };
        if answered == Some(true) {
            live.fields["status"]["lastHandledReconcileAt"] = serde_json::json!(sent);
        }
        let said = match answered {
            Some(true) => format!("at main@sha1:1; answered the question of {sent}"),
            Some(false) => format!("at main@sha1:1; has not answered the question of {sent}"),
            None => "at main@sha1:1; was not asked yet".to_owned(),
        };
        let mended = "it is being mended; see: linesman heal list eu1";
        let expected = Component {
            exists: Verdict::Yes,
            works: Verdict::Yes,
            fresh,
            found: said,
            fix: if fresh == Verdict::No { mended } else { "" }.to_owned(),
            ..row("Kustomization flux-system/flux-system")
        };
        // Younger than the time that a restart takes, silence is no finding.
        let plan = Plan {
            findings: Vec::new(),
            ..cluster.plan()
        };
        let row = follows(
            &Moment {
                now: cluster.now,
                install: &cluster.install,
                observed: &cluster.observed(),
                history: &cluster.history,
                plan: &plan,
                snapshot: None,
            },
            &sync,
        );
        assert_eq!(row, expected);
    }
}

/// Its Pod gave it back as it ended, and the next one takes it.
#[test]
fn a_lease_that_was_given_back_is_no_leaders() {
    let mut cluster = Cluster::working();
    let plan = cluster.plan();
    cluster.history.saw(cluster.now, &plan);
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let mut observed = cluster.observed();
    let lease = Lease {
        uid: "lease".to_owned(),
        holder: String::new(),
        acquired: None,
        renewed: cluster.now - LED,
        seen: cluster.now,
    };
    observed.leases.insert(lease_of(&id.name, None), lease);
    let moment = Moment {
        now: cluster.now,
        install: &cluster.install,
        observed: &observed,
        history: &cluster.history,
        plan: &plan,
        snapshot: None,
    };
    let row = workload(&moment, &id);
    assert_eq!(
        (row.fresh, row.found.as_str()),
        (Verdict::None, "available")
    );
}

/// A root that fails may answer, and a controller whose image nobody can pull has an old Lease as well: the fault says more.
#[test]
fn a_fault_is_told_before_an_answer_and_before_a_lease() {
    let mut cluster = Cluster::working();
    cluster.damage(&Damage::Image("source-controller"));
    let (now, sync) = (cluster.now, cluster.install.sync.clone());
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let failed = Finding::new(Class::BuildFailed, &sync, "no such file");
    let mut plan = cluster.plan();
    plan.findings.push(failed.clone());
    for finding in &plan.findings {
        let key = (finding.class, finding.object.clone());
        let past = cluster.history.faults.entry(key).or_default();
        past.since = Some(now - finding.class.debounce());
    }
    let mut observed = cluster.observed();
    let lease = Lease {
        uid: "lease".to_owned(),
        holder: "pod-1".to_owned(),
        acquired: None,
        renewed: now - LED,
        seen: now,
    };
    observed.leases.insert(lease_of(&id.name, None), lease);
    let moment = Moment {
        now,
        install: &cluster.install,
        observed: &observed,
        history: &cluster.history,
        plan: &plan,
        snapshot: None,
    };
    let root = follows(&moment, &sync);
    let advice = Class::BuildFailed.advice();
    assert_eq!(
        (root.exists, root.works, root.found, root.fix.as_str()),
        (Verdict::Yes, Verdict::No, told(&failed), advice)
    );
    let controller = workload(&moment, &id);
    assert_eq!(
        (controller.works, controller.fresh),
        (Verdict::No, Verdict::No)
    );
    let found = controller.found;
    assert!(found.starts_with("F4 BadImage: "), "{found}");
}

/// None of Argo CD's has one: the root's answer tells of its controller, and of what fetched for it where the look came to an end;
/// the controllers' counts tell of Redis, and nothing tells of the others.
#[test]
fn a_workload_without_a_lease_is_fresh_by_what_it_answered() {
    let controller = "argocd-application-controller";
    let lately = Cluster::working().install.policy.probe_every * 2 + ANSWERS;
    let second = Duration::seconds(1);
    let (yes, unknown, none) = (Verdict::Yes, Verdict::Unknown, Verdict::None);
    for (ago, taken, sync, counted, expected) in [
        (second, true, "Synced", Some(9), [yes, yes, yes]),
        (second, true, "OutOfSync", None, [yes, yes, none]),
        (second, true, "Unknown", Some(0), [yes, unknown, unknown]),
        (second, false, "Synced", None, [unknown, unknown, none]),
        (lately, true, "Synced", None, [unknown, unknown, none]),
    ] {
        let mut cluster = Cluster::working_of(EngineKind::Argocd);
        let root = cluster.install.sync.clone();
        let live = cluster.objects.get_mut(&root).unwrap();
        let sent = rfc3339(cluster.now - ago);
        live.fields["metadata"]["annotations"] = if taken {
            serde_json::json!({ PROBED_AT: sent })
        } else {
            serde_json::json!({ PROBED_AT: sent, REFRESH: "normal" })
        };
        live.fields["status"]["reconciledAt"] = serde_json::json!(rfc3339(cluster.now));
        live.fields["status"]["sync"]["status"] = serde_json::json!(sync);
        let mut observed = cluster.observed();
        if let Some(answered) = counted {
            let uid = observed.pods[controller].uid.clone();
            let failed = 0;
            let tally = Tally::begin(&uid, Requests { answered, failed }, cluster.now);
            observed.requests.insert(controller.to_owned(), tally);
        }
        let plan = cluster.plan();
        let moment = Moment {
            now: cluster.now,
            install: &cluster.install,
            observed: &observed,
            history: &cluster.history,
            plan: &plan,
            snapshot: None,
        };
        let fresh = |kind, name| workload(&moment, &ObjectId::new(kind, "argocd", name)).fresh;
        let told = [
            fresh(Kind::StatefulSet, controller),
            fresh(Kind::Deployment, REPO_SERVER),
            fresh(Kind::Deployment, REDIS),
        ];
        assert_eq!(told, expected, "{ago} {taken} {sync} {counted:?}");
        assert_eq!(fresh(Kind::Deployment, "argocd-server"), Verdict::None);
    }
}

/// What an object that people have was asked for is an answer like a root's.
#[test]
fn a_workload_without_a_lease_is_fresh_by_what_it_answered_for_others() {
    let name = "notification-controller";
    let crd = "receivers.notification.toolkit.fluxcd.io";
    let mut objects = flux();
    objects.extend([
        (Kind::CustomResourceDefinition, crd),
        (Kind::ServiceAccount, name),
        (Kind::Deployment, name),
    ]);
    let cluster = Cluster::working_with(install_with(objects));
    let plan = cluster.plan();
    for (answered, fresh) in [
        (None, Verdict::None),
        (Some(true), Verdict::Yes),
        (Some(false), Verdict::Unknown),
    ] {
        let mut observed = cluster.observed();
        if let Some(answered) = answered {
            let sent = cluster.now - Duration::SECOND;
            let asked = Witness {
                fit: true,
                probe: Some(Probe { sent, answered }),
                ..Witness::default()
            };
            let receiver = ObjectId::new(Kind::Receiver, "apps", "a");
            observed.witnesses.insert(receiver, asked);
        }
        let moment = Moment {
            now: cluster.now,
            install: &cluster.install,
            observed: &observed,
            history: &cluster.history,
            plan: &plan,
            snapshot: None,
        };
        let id = ObjectId::new(Kind::Deployment, "flux-system", name);
        assert_eq!(workload(&moment, &id).fresh, fresh, "{answered:?}");
    }
}
