use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::agent::engine::GIT_OWNER;
use crate::agent::plan;
use crate::agent::plan::behind::Followed;
use crate::agent::plan::change::{Change, Form};
use crate::agent::plan::quarantine::{HELD, RECONCILE};
use crate::agent::plan::state::{Answer, Child, Scope};
use crate::agent::plan::{Object, project};
use crate::bundle::{Kind, ObjectId};
use crate::wire::api::EngineKind;

const START: i64 = 1_800_000_000;

mod brought;
mod held;
mod idle;

fn at(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(START + seconds).unwrap()
}

/// The install as it is wanted, working, with the catalog's head applied.
fn working(install: &Install) -> Observed {
    let live = |id: &ObjectId| {
        let mut body = install.body(id).unwrap();
        body["metadata"]["uid"] = json!(id.to_string());
        body["status"] = json!({
            "observedGeneration": 0, "availableReplicas": 1, "updatedReplicas": 1,
            "artifact": {"revision": "main@sha1:1"},
            "lastAppliedRevision": "main@sha1:1", "lastAttemptedRevision": "main@sha1:1",
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "Established", "status": "True"}],
        });
        project::object(id.kind, serde_json::from_value(body).unwrap())
    };
    let scope = Scope {
        answered: Some(at(60)),
        answer: Answer::Whole,
    };
    Observed {
        objects: install
            .wanted
            .keys()
            .map(|id| (id.clone(), Arc::new(live(id))))
            .collect(),
        scopes: install.wanted.keys().map(|id| (id.kind, scope)).collect(),
        ..Observed::default()
    }
}

fn alter(observed: &mut Observed, id: &ObjectId, change: impl FnOnce(&mut Value)) {
    let mut live: Object = observed.objects[id].as_ref().clone();
    change(&mut live.fields);
    "kubectl".clone_into(&mut live.writer);
    observed.objects.insert(id.clone(), Arc::new(live));
}

/// What is told a minute after `observed` began to be so: condition to (status, reason, message).
fn told(install: &Install, observed: &Observed) -> BTreeMap<String, (Status, String, String)> {
    told_after(60, install, observed, History::default())
}

/// The same after so many seconds.
fn told_after(
    seconds: i64,
    install: &Install,
    observed: &Observed,
    history: History,
) -> BTreeMap<String, (Status, String, String)> {
    let mut history = History {
        adopted: true,
        ..history
    };
    let first = plan::plan(at(0), install, observed, &history);
    history.saw(at(0), &first);
    let plan = plan::plan(at(seconds), install, observed, &history);
    let moment = Moment {
        now: at(seconds),
        install,
        observed,
        history: &history,
        plan: &plan,
        lacks: None,
    };
    let all = conditions(&moment, None).into_iter();
    all.map(|c| (format!("{:?}", c.kind), (c.status, c.reason, c.message)))
        .collect()
}

fn status(told: &BTreeMap<String, (Status, String, String)>, kind: &str) -> (Status, String) {
    (told[kind].0, told[kind].1.clone())
}

/// F3: for half a minute nothing is open, and a cluster that is broken should say why, and what becomes of that.
#[test]
fn a_controller_that_is_down_for_a_moment_is_named_with_what_is_waited_for() {
    let mut install = plan::tests::install();
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let mut observed = working(&install);
    alter(&mut observed, &id, |fields| {
        fields["spec"]["replicas"] = json!(0);
        fields["status"]["availableReplicas"] = json!(0);
        fields["status"]["updatedReplicas"] = json!(0);
    });
    let said = |install: &Install, observed: &Observed, seconds| {
        let told = told_after(seconds, install, observed, History::default());
        let (status, reason, text) = told["EngineHealthy"].clone();
        assert_eq!(status, Status::False, "after {seconds} s");
        assert!(text.starts_with(&id.to_string()), "{text}");
        (reason, text)
    };
    let (reason, text) = said(&install, &observed, 29);
    assert_eq!(reason, "NotAvailable");
    let end = format!("; mended if it is so at {}", rfc3339(at(30)));
    assert!(text.contains("replicas") && text.ends_with(&end), "{text}");
    assert_eq!(said(&install, &observed, 30).0, "ScaledToZero");
    install.policy.paused_until = Some(at(600));
    let (_, text) = said(&install, &observed, 29);
    let end = format!(
        "; nothing is mended until {}, by the hub; end it: linesman cluster resume eu1",
        rfc3339(at(600))
    );
    assert!(text.ends_with(&end), "{text}");

    install.policy.paused_until = None;
    alter(&mut observed, &id, |fields| {
        fields["metadata"]["annotations"][plan::MAINTENANCE] = json!(rfc3339(at(600)));
    });
    let (_, text) = said(&install, &observed, 29);
    let end = format!(
        "; it is not mended until {}, by annotation linesman.dev/maintenance-until on {id}; end it: take that annotation off",
        rfc3339(at(600))
    );
    assert!(text.ends_with(&end), "{text}");
}

/// F29: whoever suspended the root meant it, so it is told with what to do, and left.
#[test]
fn a_suspended_root_is_not_synced_and_the_message_names_who_and_what_next() {
    let install = plan::tests::install();
    let mut observed = working(&install);
    alter(&mut observed, &install.sync, |fields| {
        fields["spec"]["suspend"] = json!(true);
    });
    let told = told(&install, &observed);
    assert_eq!(
        told["Synced"],
        (
            Status::False,
            "SuspendedByHuman".to_owned(),
            "Kustomization flux-system/flux-system spec.suspend is set by 'kubectl'; ask who suspended it, \
             then resume it: set spec.suspend to false, or use 'flux resume'; in Argo CD switch \
             spec.syncPolicy.automated on again, or take the window out of spec.syncWindows of AppProject \
             default"
                .to_owned()
        )
    );
    assert_eq!(
        status(&told, "EngineHealthy"),
        (Status::True, "Healthy".to_owned())
    );
}

/// W13: a key that is refused is told before it is registered again.
#[test]
fn the_agent_looks_itself_at_once_where_git_is_away_and_where_a_key_is_refused_for_long() {
    let install = plan::tests::install();
    for (message, after, looks) in [
        ("dial tcp: i/o timeout", 0, true),
        ("ssh: unable to authenticate", 0, false),
        ("ssh: unable to authenticate", 9, false),
        ("ssh: unable to authenticate", 10, true),
        ("knownhosts: key mismatch", 60, false),
    ] {
        let mut observed = working(&install);
        alter(&mut observed, &install.source, |fields| {
            fields["status"]["conditions"] = json!([
                {"type": "Ready", "status": "False", "reason": "GitOperationFailed", "message": message}
            ]);
        });
        let mut history = History::default();
        let first = plan::plan(at(0), &install, &observed, &history);
        history.saw(at(0), &first);
        let plan = plan::plan(at(after), &install, &observed, &history);
        let moment = Moment {
            now: at(after),
            install: &install,
            observed: &observed,
            history: &history,
            plan: &plan,
            lacks: None,
        };
        assert_eq!(is_kept_out(&moment), looks, "{message} after {after} s");
    }
}

#[test]
fn a_working_install_has_nothing_against_it() {
    let install = plan::tests::install();
    let told = told(&install, &working(&install));
    let bad: Vec<&String> = told
        .iter()
        .filter(|(kind, (status, _, _))| {
            let holds = [
                "EngineFromGit",
                "SnapshotFresh",
                "ObserveOnly",
                "Paused",
                "SafeHealsOnly",
                "Quarantined",
            ];
            (*status == Status::True) == holds.contains(&kind.as_str())
        })
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(bad, Vec::<&String>::new(), "{told:#?}");
}

#[test]
fn a_missing_controller_is_the_engines_fault() {
    let install = plan::tests::install();
    let mut observed = working(&install);
    observed.objects.remove(&ObjectId::new(
        Kind::Deployment,
        "flux-system",
        "source-controller",
    ));
    let told = told(&install, &observed);
    assert_eq!(
        status(&told, "EngineHealthy"),
        (Status::False, "ObjectMissing".to_owned())
    );
    assert_eq!(status(&told, "Synced"), (Status::True, "Synced".to_owned()));
}

/// A policy may be there and refuse nothing.
#[test]
fn a_guard_that_is_missing_or_was_changed_is_none() {
    let install = plan::tests::install();
    let id = ObjectId::new(Kind::ValidatingAdmissionPolicyBinding, "", "linesman-guard");
    let mut observed = working(&install);
    alter(&mut observed, &id, |fields| {
        fields["metadata"]["labels"]["a"] = json!("b");
    });
    let said = |observed: &Observed| told(&install, observed)["Guarded"].clone();
    let refuses = (Status::True, "Refuses".to_owned(), String::new());
    assert_eq!(said(&observed), refuses);
    alter(&mut observed, &id, |fields| {
        fields["spec"]["validationActions"] = json!(["Warn"]);
    });
    let not = |reason: &str, text: &str| (Status::False, reason.to_owned(), format!("{id} {text}"));
    let altered = not("Altered", "differs at /spec/validationActions/0");
    assert_eq!(said(&observed), altered);
    observed.objects.remove(&id);
    assert_eq!(said(&observed), not("Missing", "is missing"));
}

/// Nothing is missing of what was never there.
#[test]
fn a_first_install_names_what_it_makes_next() {
    let install = plan::tests::install();
    let accounts = |id: &&ObjectId| id.kind == Kind::ServiceAccount;
    let account = install.wanted.keys().find(accounts).unwrap();
    let mut observed = working(&install);
    observed.objects.remove(account);
    let counts = |id: &&ObjectId| id.kind.installable() && id.kind != Kind::Secret;
    let total = install.wanted.keys().filter(counts).count();
    for (adopted, said) in [(false, "next"), (true, "ServiceAccountMissing")] {
        let history = History {
            adopted,
            ..History::default()
        };
        let plan = plan::plan(at(60), &install, &observed, &history);
        let moment = Moment {
            now: at(60),
            install: &install,
            observed: &observed,
            history: &history,
            plan: &plan,
            lacks: None,
        };
        let text = format!("{} of {total} objects; {said}: {account}", total - 1);
        assert_eq!(apply(&moment), Some(text), "{adopted}");
    }
}

#[test]
fn a_change_that_cannot_end_says_why() {
    let mut desired = plan::tests::desired_of(EngineKind::Flux);
    let now = desired.install.form.clone();
    let before = Form {
        version: "2.8.0".to_owned(),
        ..now.clone()
    };
    desired.install.change = Some(Change {
        from: before.clone(),
        to: now.clone(),
        number: 7,
        since: "2027-01-15T08:00:00Z".to_owned(),
        within: 300,
        both: false,
        objects: Vec::new(),
        failed: None,
        ending: None,
    });
    let install = Install::new(&desired, &BTreeMap::new(), None);
    let observed = working(&install);
    let history = History {
        adopted: true,
        ..History::default()
    };
    let plan = plan::plan(at(60), &install, &observed, &history);
    let told = |lacks| {
        let moment = Moment {
            now: at(60),
            install: &install,
            observed: &observed,
            history: &history,
            plan: &plan,
            lacks,
        };
        let said = current(&moment);
        (said.status, said.reason, said.message)
    };
    let text = |waits: &str| {
        let (before, now) = (before.words(), now.words());
        let text = format!("change 7: {before} to {now}: {waits}");
        (Status::False, "Changing".to_owned(), text)
    };
    assert_eq!(told(None), text("waits for the controllers"));
    let why = "cannot remove HelmRelease flux-system/linesman-probe: forbidden";
    assert_eq!(told(Some(why)), text(why));
}

/// The hub keeps the beginning of a long text, and the bundle that is named there.
#[test]
fn a_change_that_was_undone_names_what_is_in_force_before_the_reason() {
    let mut desired = plan::tests::desired_of(EngineKind::Flux);
    let before = desired.install.form.clone();
    let to = Form {
        version: "2.99.0".to_owned(),
        ..before.clone()
    };
    desired.install.change = Some(Change {
        from: before.clone(),
        to: to.clone(),
        number: 7,
        since: "2027-01-15T08:00:00Z".to_owned(),
        within: 300,
        both: false,
        objects: Vec::new(),
        failed: Some("it crashes".to_owned()),
        ending: None,
    });
    let install = Install::new(&desired, &BTreeMap::new(), None);
    let observed = working(&install);
    let history = History::default();
    let plan = plan::plan(at(60), &install, &observed, &history);
    let moment = Moment {
        now: at(60),
        install: &install,
        observed: &observed,
        history: &history,
        plan: &plan,
        lacks: None,
    };
    let said = current(&moment);
    let text = format!(
        "change 7: {} did not work within 300 s; back at {}: it crashes; mend it, then 'linesman engine set' again",
        to.words(),
        before.words()
    );
    assert_eq!((said.reason.as_str(), said.message), ("Returned", text));
}
