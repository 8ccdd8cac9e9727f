//! What is held back from Git.

use super::super::held::fitting;
use super::*;
use crate::agent::engine::TRACKING;
use crate::agent::gate::policy::Mending;
use crate::agent::plan::quarantine::shield::OPTIONS;

/// W41: what an agent keeps up in vain, a person has to see to.
#[test]
fn a_hold_that_does_not_stand_is_told_of_first() {
    let install = plan::tests::install();
    let mut observed = working(&install);
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let hold = json!({
        "revision": "main@sha1:1", "since": rfc3339(at(0)), "reason": "it crashes", "attempt": 1,
    });
    let note = hold.to_string();
    alter(&mut observed, &id, |fields| {
        fields["metadata"]["annotations"] = json!({HELD: note, RECONCILE: "disabled"});
    });
    let times = [0, 2, 4, 6, 11].map(at).to_vec();
    let again = (plan::Action::Hold { note }, times);
    let history = History {
        adopted: true,
        kept: [(("hold", id), again)].into(),
        ..History::default()
    };
    for (now, begins) in [
        (
            12,
            "a hold does not stand: it was undone at Deployment flux-system/source-controller 4 times within an hour",
        ),
        (30, "Deployment flux-system/source-controller since "),
    ] {
        let plan = plan::plan(at(now), &install, &observed, &history);
        let moment = Moment {
            now: at(now),
            install: &install,
            observed: &observed,
            history: &history,
            plan: &plan,
            lacks: None,
        };
        let (reason, text) = held(&moment).expect("it is held");
        assert_eq!(reason, "BadEngineCommit");
        assert!(text.starts_with(begins), "{text}");
    }
}

/// What the last snapshot has as Git's and a commit left out, with which the root is done. It is held, for the second time.
fn left_out(ids: &[ObjectId], revision: &str, reason: &str) -> (Install, Observed) {
    let plain = plan::tests::install();
    let gits = ids.iter().map(|id| {
        let mut body = plain.body(id).unwrap();
        body["metadata"]["labels"][GIT_OWNER] = json!("flux-system");
        (id.clone(), body)
    });
    let desired = plan::tests::desired_of(EngineKind::Flux);
    let install = Install::new(&desired, &gits.collect(), Some(Mending::default()));
    let mut observed = working(&install);
    let hold = json!({
        "revision": revision, "since": rfc3339(at(0)), "reason": reason, "attempt": 2,
    });
    let note = hold.to_string();
    for id in ids {
        alter(&mut observed, id, |fields| {
            fields["metadata"]["annotations"][HELD] = json!(note);
            fields["metadata"]["annotations"][RECONCILE] = json!("disabled");
        });
    }
    root_is_at("main@sha1:2", &install, &mut observed);
    (install, observed)
}

/// It has begun with this commit, is done with the second one, and lists nothing.
fn root_is_at(tried: &str, install: &Install, observed: &mut Observed) {
    alter(observed, &install.sync, |fields| {
        let ready = json!({"type": "Ready", "status": "True"});
        fields["status"] = json!({
            "conditions": [ready], "inventory": {"entries": []},
            "lastAttemptedRevision": tried, "lastAppliedRevision": "main@sha1:2",
        });
    });
}

/// After a revert no commit gives it back: what does, and where, is told, and of no time at which it would be tried.
#[test]
fn of_what_the_catalog_no_longer_has_the_way_out_is_told() {
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let (install, mut observed) = left_out(std::slice::from_ref(&id), "main@sha1:1", "it crashes");
    let history = History::default();
    let told = |observed: &Observed| {
        let plan = plan::plan(at(30), &install, observed, &history);
        let moment = Moment {
            now: at(30),
            install: &install,
            observed,
            history: &history,
            plan: &plan,
            lacks: None,
        };
        let (_, text) = held(&moment).expect("it is held");
        text
    };
    let expected = |way_out: &str| {
        let since = rfc3339(at(0));
        format!(
            "{id} since {since} because of main@sha1:1: it crashes; the catalog no longer has {id}: {way_out}"
        )
    };
    let lift = format!("linesman cluster lift {} --reason TEXT", install.cluster);
    let ours = format!("commit it again, or leave it to the agent: {lift}");
    assert_eq!(told(&observed), expected(&ours));

    // The order stays, and is obeyed then.
    root_is_at("main@sha1:3", &install, &mut observed);
    let waits = format!(
        "{ours}, which is carried out when Flux is done with its commit, and not while that fails"
    );
    assert_eq!(told(&observed), expected(&waits));

    root_is_at("main@sha1:2", &install, &mut observed);
    alter(&mut observed, &id, |fields| {
        fields["spec"]["template"]["spec"]["containers"][0]["image"] = json!("x:v2");
    });
    let kept = "it stays held until a commit has it again";
    assert_eq!(told(&observed), expected(kept));
}

/// The same with Argo CD, whose word is of what it would prune; and the refusal to change the engine names what is left of it in Git.
#[test]
fn of_what_left_git_in_argo_cd_the_way_out_is_told_as_well() {
    let plain = plan::tests::install_of(EngineKind::Argocd);
    let id = ObjectId::new(Kind::Deployment, "argocd", "argocd-repo-server");
    let mut body = plain.body(&id).unwrap();
    let tracked = "linesman:apps/Deployment:argocd/argocd-repo-server";
    body["metadata"]["annotations"] = json!({TRACKING: tracked});
    let desired = plan::tests::desired_of(EngineKind::Argocd);
    let gits = [(id.clone(), body)].into();
    let install = Install::new(&desired, &gits, Some(Mending::default()));
    let mut observed = working(&install);
    let hold = json!({
        "revision": "1", "since": rfc3339(at(0)), "reason": "it crashes", "attempt": 1,
    });
    alter(&mut observed, &id, |fields| {
        fields["metadata"]["annotations"][HELD] = json!(hold.to_string());
        fields["metadata"]["annotations"][OPTIONS] = json!("Prune=false");
    });
    let says = |observed: &mut Observed, phase: &str| {
        alter(observed, &install.sync, |fields| {
            fields["status"] = json!({
                "sync": {"status": "OutOfSync", "revision": "2"},
                "operationState": {
                    "phase": phase, "operation": {"sync": {"revision": "2"}}, "syncResult": {"revision": "2"},
                },
                "resources": [{
                    "group": "apps", "kind": "Deployment", "namespace": "argocd",
                    "name": "argocd-repo-server", "status": "OutOfSync", "requiresPruning": true,
                }],
            });
        });
    };
    let lift = format!("linesman cluster lift {} --reason TEXT", install.cluster);
    let ours = format!("{id}: commit it again, or leave it to the agent: {lift}");
    let waits = format!("{ours}, which is carried out when Argo CD is done with its commit");
    for (phase, way_out) in [("Succeeded", ours), ("Running", waits)] {
        says(&mut observed, phase);
        let told = told(&install, &observed);
        let (_, _, text) = &told["Quarantined"];
        let end = format!("; the catalog no longer has {way_out}");
        assert!(text.ends_with(&end), "{text}");
        let (_, _, text) = &told["EngineFromGit"];
        let expected =
            format!("the catalog no longer has {id}: condition Quarantined says how its hold ends");
        assert_eq!(*text, expected, "{phase}");
    }
}

/// A commit that removes the engine has many held, and the text has an end.
#[test]
fn however_many_are_held_the_way_out_is_told() {
    let plain = plan::tests::install();
    let ids = plain.wanted.keys().filter(|id| plain.may_be_gits(id));
    let ids: Vec<ObjectId> = ids.take(8).cloned().collect();
    let first = ids.first().unwrap();
    let commit = format!("main@sha1:{}", "0123456789".repeat(4));
    let lift = format!("linesman cluster lift {} --reason TEXT", plain.cluster);
    let end = format!(
        "; and 4 more; the catalog no longer has {first} and 7 more: commit it again, or leave it to the agent: {lift}"
    );
    let pruned = "was pruned: the catalog no longer has it";
    for reason in [pruned.to_owned(), pruned.repeat(12)] {
        let (install, observed) = left_out(&ids, &commit, &reason);
        let (_, reason, text) = told(&install, &observed)["Quarantined"].clone();
        assert_eq!(reason, "BadEngineCommit");
        assert!(text.ends_with(&end), "{text}");
        for id in &ids[..4] {
            assert!(text.contains(&format!("{id} since ")), "{text}");
        }
    }
}

/// One alone is told of as a whole, as long as there is place.
#[test]
fn what_is_held_is_cut_for_want_of_place_alone() {
    let said = |lengths: &[usize], place| {
        let all = lengths.iter().map(|length| "x".repeat(*length));
        let told = fitting(all.collect(), place).into_iter();
        told.map(|text| text.chars().count()).collect::<Vec<_>>()
    };
    let more = "and 1 more".len();
    assert_eq!(said(&[], 700), Vec::<usize>::new());
    assert_eq!(said(&[600], 700), [600]);
    assert_eq!(said(&[600, 90], 694), [600, 90]);
    assert_eq!(said(&[600, 90], 693), [344, 90]);
    assert_eq!(said(&[100; 4], 700), [100; 4]);
    assert_eq!(said(&[100; 5], 700), [100, 100, 100, 100, more]);
    assert_eq!(said(&[400, 100], 200), [198, more]);
    assert_eq!(said(&[400, 100], 10), [150, more]);
}
