use time::Duration;

use super::*;
use crate::agent::plan::tests::Cluster;
use crate::agent::plan::{Mode, Plan};

mod given_back;

const FAR: &str = "99999999999999h";

fn live<'a>(cluster: &'a Cluster, id: &ObjectId) -> &'a Value {
    &cluster.applications[id]
}

/// Rounds until there is nothing to do about it.
fn rest(cluster: &mut Cluster) {
    for _ in 0..30 {
        cluster.round();
    }
}

/// What an object says of its being out of the way.
fn said(cluster: &Cluster, id: &ObjectId) -> Option<Aside> {
    let text = live(cluster, id)["metadata"]["annotations"][HELD].as_str()?;
    serde_json::from_str(text).ok()
}

/// `spec`, and what keeps Git from it.
fn stands(cluster: &Cluster, id: &ObjectId) -> (Value, Value) {
    let object = live(cluster, id);
    let fence = object["metadata"]["annotations"][RECONCILE].clone();
    (object["spec"].clone(), fence)
}

/// Somebody writes to it.
fn write(cluster: &mut Cluster, id: &ObjectId, pointer: &str, value: Value) {
    let object = cluster.applications.get_mut(id).unwrap();
    let (above, name) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(above).unwrap()[name] = value;
}

/// One that the root brings.
fn from_git(cluster: &mut Cluster) -> ObjectId {
    let id = cluster.unreadable("a");
    let labels = json!({
        GIT_OWNER: "flux-system", "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
    });
    write(cluster, &id, "/metadata/labels", labels);
    id
}

fn asides(plan: &Plan) -> Vec<(&str, &str)> {
    let all = plan.steps.iter().filter_map(|step| match &step.action {
        Action::Aside(turn) => Some((turn.what.as_str(), step.target.name.as_str())),
        _ => None,
    });
    all.collect()
}

/// F18
#[test]
fn just_what_cannot_be_read_is_replaced_and_the_object_suspended() {
    let mut cluster = Cluster::working();
    let began = cluster.now;
    let id = cluster.unreadable("a");
    write(&mut cluster, &id, "/spec/timeout", json!("5m"));
    assert_eq!(asides(&cluster.round()), [], "it may be a moment");
    cluster.now = began + Duration::seconds(3);
    let plan = cluster.round();
    assert_eq!(asides(&plan), [("set-aside", "a")]);
    let found: Vec<_> = plan.findings.iter().map(|f| (f.class, &f.writer)).collect();
    let kubectl = "kubectl-edit".to_owned();
    assert_eq!(found, [(Class::UndecodableObject, &kubectl)]);
    let spec = json!({"interval": STAND_IN, "timeout": "5m", "suspend": true});
    assert_eq!(stands(&cluster, &id), (spec, Value::Null));
    let expected = Aside {
        hold: Hold {
            revision: String::new(),
            since: rfc3339(began + Duration::seconds(3)),
            reason: format!("spec.interval '{FAR}' is no duration that Go can hold"),
            attempt: 1,
            lifted: None,
            order: None,
            removal: false,
        },
        former: BTreeMap::from([("/interval".to_owned(), FAR.to_owned())]),
        suspended: true,
        fenced: false,
        writer: kubectl,
        written: Some(rfc3339(began)),
    };
    assert_eq!(said(&cluster, &id), Some(expected));
    let before = live(&cluster, &id).clone();
    rest(&mut cluster);
    assert_eq!(*live(&cluster, &id), before, "and that is all");
    let told: Vec<String> = all(&cluster.observed())
        .map(|(id, aside)| aside.told(id))
        .collect();
    let text = format!(
        "Kustomization apps/a since {}: spec.interval '{FAR}' is no duration that Go can hold, written by kubectl-edit at {}; \
         it is suspended, with 1h0m0s there: correct it",
        rfc3339(began + Duration::seconds(3)),
        rfc3339(began)
    );
    assert_eq!(told, [text]);
}

/// F18: whichever of both somebody does by hand ends it, and what was suspended before stays so.
#[test]
fn what_somebody_corrects_or_resumes_is_let_go() {
    for (suspended, written, after) in [
        (
            false,
            ("/spec/interval", json!("5m")),
            json!({"interval": "5m"}),
        ),
        (
            true,
            ("/spec/interval", json!("5m")),
            json!({"interval": "5m", "suspend": true}),
        ),
        (
            false,
            ("/spec/suspend", json!(false)),
            json!({"interval": STAND_IN, "suspend": false}),
        ),
    ] {
        let mut cluster = Cluster::working();
        let id = cluster.unreadable("a");
        if suspended {
            write(&mut cluster, &id, "/spec/suspend", json!(true));
        }
        rest(&mut cluster);
        assert!(said(&cluster, &id).is_some());
        write(&mut cluster, &id, written.0, written.1);
        rest(&mut cluster);
        assert_eq!(stands(&cluster, &id), (after, Value::Null));
        assert_eq!(said(&cluster, &id), None);
    }
}

#[test]
fn what_somebody_suspended_meanwhile_stays_suspended() {
    let mut cluster = Cluster::working();
    let id = cluster.unreadable("a");
    rest(&mut cluster);
    let owners = json!([
        {"manager": MANAGER, "operation": "Update", "fieldsV1": {"f:spec": {"f:suspend": {}}}},
        {"manager": "flux", "operation": "Apply", "fieldsV1": {"f:spec": {"f:suspend": {}}}},
    ]);
    write(&mut cluster, &id, "/metadata/managedFields", owners);
    write(&mut cluster, &id, "/spec/interval", json!("5m"));
    rest(&mut cluster);
    let spec = json!({"interval": "5m", "suspend": true});
    assert_eq!(stands(&cluster, &id), (spec, Value::Null));
    assert_eq!(said(&cluster, &id), None);
}

/// F18: Git is kept from it until the catalog has another commit; then what Git writes decides.
#[test]
fn one_of_the_catalogs_waits_for_another_commit() {
    let mut cluster = Cluster::working();
    let id = from_git(&mut cluster);
    rest(&mut cluster);
    let aside = json!({"interval": STAND_IN, "suspend": true});
    assert_eq!(stands(&cluster, &id), (aside.clone(), json!("disabled")));
    let sync = cluster.install.sync.clone();
    let before = said(&cluster, &id).unwrap();
    assert_eq!(
        (before.hold.revision.as_str(), before.hold.attempt),
        ("main@sha1:1", 1)
    );

    let commit = |cluster: &mut Cluster, revision: &str| {
        let root = cluster.objects.get_mut(&sync).unwrap();
        root.fields["status"]["lastAttemptedRevision"] = json!(revision);
        let plan = cluster.plan();
        let steps: Vec<_> = plan
            .steps
            .iter()
            .map(|s| (s.action.as_str(), &s.target))
            .collect();
        assert_eq!(steps, [("lift", &id), ("nudge", &sync)]);
        for step in &plan.steps {
            cluster.act(step);
        }
        assert_eq!(stands(cluster, &id), (aside.clone(), Value::Null));
    };
    commit(&mut cluster, "main@sha1:2");
    assert_eq!(asides(&cluster.plan()), [], "Git has not written yet");
    // The commit did not mend it: the next try waits.
    write(&mut cluster, &id, "/spec/interval", json!(FAR));
    rest(&mut cluster);
    assert_eq!(stands(&cluster, &id), (aside.clone(), json!("disabled")));
    assert_eq!(said(&cluster, &id).unwrap().hold.attempt, 2);

    cluster.now += Duration::minutes(11);
    let fresh = cluster.observed().pods_at;
    assert_eq!(fresh, Some(cluster.now));
    commit(&mut cluster, "main@sha1:3");
    write(&mut cluster, &id, "/spec/interval", json!("7m"));
    rest(&mut cluster);
    assert_eq!(
        stands(&cluster, &id),
        (json!({"interval": "7m"}), Value::Null)
    );
    assert_eq!(said(&cluster, &id), None);
}

/// It may work with what somebody wrote by hand, while Git, which still has the other value, is kept from it.
#[test]
fn one_of_the_catalogs_that_is_corrected_by_hand_works_and_stays_held() {
    let mut cluster = Cluster::working();
    let id = from_git(&mut cluster);
    rest(&mut cluster);
    write(&mut cluster, &id, "/spec/interval", json!("5m"));
    rest(&mut cluster);
    assert_eq!(
        stands(&cluster, &id),
        (json!({"interval": "5m"}), json!("disabled"))
    );
    assert!(said(&cluster, &id).is_some_and(|aside| !aside.suspended));
}

#[test]
fn what_no_commit_has_any_more_stays_out_of_the_way() {
    let mut cluster = Cluster::working();
    let id = from_git(&mut cluster);
    rest(&mut cluster);
    let mut aside = said(&cluster, &id).unwrap();
    aside.hold.lifted = Some(rfc3339(cluster.now));
    write(
        &mut cluster,
        &id,
        "/metadata/annotations",
        json!({HELD: aside.text()}),
    );
    let before = live(&cluster, &id).clone();
    rest(&mut cluster);
    assert_eq!(*live(&cluster, &id), before);
    assert!(aside.told(&id).contains("if no commit has it any more"));
}

/// With its budget spent a controller that is blinded again would stay so for an hour.
#[test]
fn nothing_is_given_back_while_the_budget_is_spent() {
    let mut cluster = Cluster::working();
    let id = from_git(&mut cluster);
    for _ in 0..3 {
        rest(&mut cluster);
        write(&mut cluster, &id, "/spec/interval", json!(FAR));
    }
    rest(&mut cluster);
    assert_eq!(live(&cluster, &id)["spec"]["interval"], json!(FAR));
    let key = (Class::UndecodableObject, id.clone());
    assert!(cluster.plan().exhausted.contains(&key));
    write(&mut cluster, &id, "/spec/interval", json!(STAND_IN));
    let sync = cluster.install.sync.clone();
    let root = cluster.objects.get_mut(&sync).unwrap();
    root.fields["status"]["lastAttemptedRevision"] = json!("main@sha1:2");
    assert_eq!(asides(&cluster.plan()), []);
}

#[test]
fn a_controller_that_gave_up_is_started_again() {
    let mut cluster = Cluster::working();
    cluster.unreadable("a");
    cluster.round();
    cluster.now += Duration::seconds(3);
    let pod = cluster.pods.get_mut("kustomize-controller").unwrap();
    pod.waiting = Some(("CrashLoopBackOff".to_owned(), String::new()));
    let plan = cluster.plan();
    let of = |s: &Step| {
        s.cause
            .as_ref()
            .is_some_and(|(class, _)| *class == Class::UndecodableObject)
    };
    let steps = plan.steps.iter().filter(|s| of(s));
    let steps: Vec<_> = steps
        .map(|s| (s.action.as_str(), s.target.name.as_str()))
        .collect();
    assert_eq!(
        steps,
        [("set-aside", "a"), ("restart", "kustomize-controller")]
    );
}

/// W24: the object has no window, and its controller has one.
#[test]
fn a_controller_that_gave_up_is_left_in_a_window_of_its_own() {
    let mut cluster = Cluster::working();
    cluster.unreadable("a");
    cluster.round();
    cluster.now += Duration::seconds(3);
    let name = "kustomize-controller";
    let pod = cluster.pods.get_mut(name).unwrap();
    pod.waiting = Some(("CrashLoopBackOff".to_owned(), String::new()));
    let id = ObjectId::new(Kind::Deployment, "flux-system", name);
    let until = rfc3339(cluster.now + Duration::hours(1));
    let live = cluster.objects.get_mut(&id).unwrap();
    live.fields["metadata"]["annotations"][MAINTENANCE] = json!(until);
    let plan = cluster.plan();
    let actions = plan.steps.iter().map(|s| s.action.as_str());
    let writes: Vec<&str> = actions.filter(|action| *action != "nudge").collect();
    assert_eq!(writes, ["set-aside"]);
}

/// What keeps the agent from writing.
type Put = fn(&mut Cluster, &ObjectId);

/// F18 where nothing may be written: it is named, and that is all.
#[test]
fn it_is_left_in_a_window_and_where_the_owner_did_not_let_the_agent_in() {
    let all: [(&str, Put); 5] = [
        ("a window for all", |cluster, _| {
            cluster.install.policy.paused_until = Some(cluster.now + Duration::hours(1));
        }),
        ("a window of its own", |cluster, id| {
            let until = rfc3339(cluster.now + Duration::hours(1));
            write(
                cluster,
                id,
                "/metadata/annotations",
                json!({MAINTENANCE: until}),
            );
        }),
        ("safe heals only", |cluster, _| {
            cluster.install.policy.safe_until = Some(cluster.now + Duration::minutes(10));
        }),
        ("another namespace's", |cluster, _| {
            cluster.covered = Some(["shop".to_owned()].into());
        }),
        ("somebody else's engine", |cluster, _| {
            let namespace = cluster.install.namespace.clone();
            let id = ObjectId::new(Kind::Deployment, &namespace, "source-controller");
            let labels = json!({"app.kubernetes.io/managed-by": "Helm"});
            cluster.objects.get_mut(&id).unwrap().fields["metadata"]["labels"] = labels;
        }),
    ];
    for (what, put) in all {
        let mut cluster = Cluster::working();
        let id = cluster.unreadable("a");
        put(&mut cluster, &id);
        let before = live(&cluster, &id).clone();
        for _ in 0..10 {
            let plan = cluster.round();
            assert!(plan.findings.iter().any(|f| f.object == id), "{what}");
            assert_eq!(asides(&plan), [], "{what}: {:?}", plan.mode);
        }
        assert_eq!(*live(&cluster, &id), before, "{what}");
    }
    let mut cluster = Cluster::working();
    cluster.unreadable("a");
    cluster.covered = Some(["apps".to_owned()].into());
    rest(&mut cluster);
    assert_eq!(cluster.plan().mode, Mode::Act);
    assert_eq!(all_named(&cluster), ["a"]);
}

fn all_named(cluster: &Cluster) -> Vec<String> {
    let observed = cluster.observed();
    all(&observed).map(|(id, _)| id.name.clone()).collect()
}

/// F18: a single commit may have many of them, and each of them blinds.
#[test]
fn all_of_them_are_mended_not_only_those_that_are_named() {
    let mut cluster = Cluster::working();
    for n in 0..100 {
        cluster.unreadable(&format!("app-{n}"));
    }
    for _ in 0..60 {
        cluster.round();
    }
    assert_eq!(all_named(&cluster).len(), 100);
    assert_eq!(cluster.plan().findings, []);
}

/// F18: a root is ours, and is mended as whatever else is changed of it.
#[test]
fn a_root_gets_the_value_that_it_had() {
    for of_sync in [true, false] {
        let mut cluster = Cluster::working();
        let id = if of_sync {
            &cluster.install.sync
        } else {
            &cluster.install.source
        };
        let id = id.clone();
        let root = cluster.objects.get_mut(&id).unwrap();
        root.fields["spec"]["interval"] = json!(FAR);
        "kubectl-edit".clone_into(&mut root.writer);
        let plan = cluster.plan();
        let steps: Vec<_> = plan
            .steps
            .iter()
            .map(|s| (s.action.as_str(), &s.target))
            .collect();
        assert_eq!(steps, [("apply", &id)], "{:?}", plan.findings);
    }
}

/// F18: the clock was ahead when it was set aside, and was set right since.
#[test]
fn one_whose_beginning_is_ahead_is_given_back_all_the_same() {
    for attempt in [1, 2] {
        let mut cluster = Cluster::working();
        let id = from_git(&mut cluster);
        rest(&mut cluster);
        let mut before = said(&cluster, &id).unwrap();
        before.hold.attempt = attempt;
        let marks = json!({HELD: before.text(), RECONCILE: "disabled"});
        write(&mut cluster, &id, "/metadata/annotations", marks);
        cluster.now -= Duration::days(1);
        cluster.history.set_back(cluster.now);
        let sync = cluster.install.sync.clone();
        let root = cluster.objects.get_mut(&sync).unwrap();
        root.fields["status"]["lastAttemptedRevision"] = json!("main@sha1:2");
        if attempt == 2 {
            let plan = cluster.plan();
            assert_eq!(asides(&plan), [("set-aside", "a")]);
            for step in &plan.steps {
                cluster.act(step);
            }
            before.hold.since = rfc3339(cluster.now);
            assert_eq!(said(&cluster, &id), Some(before));
            assert_eq!(asides(&cluster.plan()), [], "once");
            cluster.now += Duration::minutes(10);
        }
        assert_eq!(asides(&cluster.plan()), [("lift", "a")], "{attempt}");
    }
}
