//! What is held back from Git.

use super::*;

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

/// After a revert no commit gives it back: what does, and where, is told.
#[test]
fn of_what_the_catalog_no_longer_has_the_way_out_is_told() {
    let mut install = plan::tests::install();
    let mut observed = working(&install);
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    install.take_over(&id);
    let hold = json!({
        "revision": "main@sha1:1", "since": rfc3339(at(0)), "reason": "it crashes", "attempt": 1,
    });
    let note = hold.to_string();
    alter(&mut observed, &id, |fields| {
        fields["metadata"]["annotations"][HELD] = json!(note);
        fields["metadata"]["annotations"][RECONCILE] = json!("disabled");
        fields["metadata"]["labels"][GIT_OWNER] = json!("flux-system");
    });
    let sync = install.sync.clone();
    alter(&mut observed, &sync, |fields| {
        let ready = json!({"type": "Ready", "status": "True"});
        fields["status"] = json!({
            "conditions": [ready], "inventory": {"entries": []},
            "lastAttemptedRevision": "main@sha1:2", "lastAppliedRevision": "main@sha1:2",
        });
    });
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
        text.split_once(": it crashes; ").unwrap().1.to_owned()
    };
    let left = format!(
        "the catalog no longer has {id}: commit it again, or leave it to the agent: linesman cluster lift {} --reason TEXT",
        install.cluster
    );
    assert_eq!(told(&observed), left);
    alter(&mut observed, &id, |fields| {
        fields["spec"]["template"]["spec"]["containers"][0]["image"] = json!("x:v2");
    });
    let kept = format!("the catalog no longer has {id}: it stays held until a commit has it again");
    assert_eq!(told(&observed), kept);
}
