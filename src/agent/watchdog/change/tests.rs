use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::agent::gate::policy::Mending;
use crate::agent::plan::change::Form;
use crate::agent::plan::tests::{Cluster, desired_of};
use crate::agent::plan::{self, MAINTENANCE};
use crate::agent::watchdog::tests::watchdog;
use crate::bundle::Kind;
use crate::clock::rfc3339;
use crate::wire::api::EngineKind;
use crate::wire::id::Digest;

/// A change to what is wanted, which was begun an hour ago and has five minutes, while Service source-controller is not as wanted and
/// rests until `until`, if anybody is at work on it.
fn resting(until: Option<OffsetDateTime>) -> (Watchdog, Install, Observed) {
    differing(until, None)
}

/// The same of one that failed for that reason.
fn differing(until: Option<OffsetDateTime>, failed: Option<&str>) -> (Watchdog, Install, Observed) {
    let began = clock::now() - time::Duration::HOUR;
    let mut desired = desired_of(EngineKind::Flux);
    let to = desired.install.form.clone();
    desired.install.change = Some(Change {
        from: Form {
            bundle: Digest::from_bytes([0; 32]),
            ..to.clone()
        },
        to,
        number: 7,
        since: rfc3339(began),
        within: 300,
        both: false,
        objects: Vec::new(),
        failed: failed.map(str::to_owned),
        ending: None,
    });
    let install = Install::new(&desired, &BTreeMap::new(), Some(Mending::default()));
    let mut observed = Cluster::working().observed();
    let service = observed.objects.get_mut(&source(Kind::Service)).unwrap();
    let service = Arc::make_mut(service);
    service.fields["spec"] = json!({});
    if let Some(until) = until {
        service.fields["metadata"]["annotations"][MAINTENANCE] = json!(rfc3339(until));
    }
    let mut watchdog = watchdog();
    watchdog.history.adopted = true;
    watchdog.changing = Changing {
        what: Some((7, false)),
        since: Some(began),
        ..Changing::default()
    };
    (watchdog, install, observed)
}

fn source(kind: Kind) -> ObjectId {
    ObjectId::new(kind, "flux-system", "source-controller")
}

/// Sees the change once, and gives the number of the one that failed.
async fn failed(watchdog: &mut Watchdog, install: &Install, observed: &Observed) -> Option<u64> {
    let at = observed.pods_at.unwrap();
    let plan = plan::plan(at, install, observed, &watchdog.history);
    watchdog.see_change(install, observed, &plan).await;
    let told = watchdog.context.changed.borrow().clone();
    told.map(|told| match told {
        Verdict::Failed(number, _) => number,
        told => panic!("{told:?}"),
    })
}

/// W24: the time of a change stands still for the window on one object, but not while the engine does not work.
#[tokio::test]
async fn a_change_waits_for_a_window_only_while_the_engine_works() {
    for (goes, expected) in [(false, (true, None)), (true, (false, Some(7)))] {
        let end = clock::now() + time::Duration::HOUR;
        let (mut watchdog, install, mut observed) = resting(Some(end));
        if goes {
            observed.objects.remove(&source(Kind::Deployment));
        }
        let failed = failed(&mut watchdog, &install, &observed).await;
        let waited = watchdog.changing.waited.is_some();
        assert_eq!((waited, failed), expected, "{goes}");
    }
}

/// W24: it was looked at a minute ago when the window ended, and what it waited for had been altered for two seconds: the version of
/// before came back, for the change had had its minute.
#[tokio::test]
async fn a_change_has_its_time_from_when_the_window_is_seen_to_be_over() {
    let (mut watchdog, install, observed) = resting(None);
    watchdog.changing.waited = Some(clock::now() - time::Duration::minutes(6));
    watchdog.changing.waits = true;
    assert_eq!(failed(&mut watchdog, &install, &observed).await, None);
    assert!(!watchdog.changing.waits);
    watchdog.changing.waited = Some(clock::now() - time::Duration::minutes(6));
    assert_eq!(failed(&mut watchdog, &install, &observed).await, Some(7));
}

/// A change of the registry brings no object of its own: its way back was told of as somebody's `BadImage`.
#[tokio::test]
async fn the_way_back_from_a_change_is_no_fault_until_all_is_as_it_was() {
    let (mut watchdog, install, observed) = differing(None, Some("no such image"));
    let change = install.change().unwrap();
    let covers = |watchdog: &Watchdog, after| {
        let at = clock::now() + time::Duration::seconds(after);
        watchdog.changing.covers(at, change)
    };
    // It is asked for before the way back is looked at, and after that.
    assert!(covers(&watchdog, 0));
    assert_eq!(failed(&mut watchdog, &install, &observed).await, None);
    assert_eq!([0, 310].map(|s| covers(&watchdog, s)), [true, false]);
    let given_back = Cluster::working().observed();
    assert_eq!(failed(&mut watchdog, &install, &given_back).await, None);
    assert!(!covers(&watchdog, 0));
    assert_eq!(failed(&mut watchdog, &install, &observed).await, None);
    assert!(!covers(&watchdog, 0));
}

/// Of what somebody takes away no field has another writer: how it was wanted before tells that it is his doing.
#[tokio::test]
async fn how_the_install_was_wanted_is_known_while_it_changes() {
    let now = clock::now();
    let id = ObjectId::new(Kind::Service, "flux-system", "source-controller");
    let mut observed = Cluster::working().observed();
    let service = observed.objects.get_mut(&id).unwrap();
    Arc::make_mut(service).fields["spec"] = json!({});
    let mut watchdog = watchdog();
    let before = desired_of(EngineKind::Flux);
    let mut next = before.clone();
    next.install.form.registry = Some("mirror.lan".to_owned());
    next.install.change = Some(Change {
        from: before.install.form.clone(),
        to: next.install.form.clone(),
        number: 7,
        since: rfc3339(now),
        within: 300,
        both: false,
        objects: Vec::new(),
        failed: None,
        ending: None,
    });
    let install = watchdog.renew(&next, &before);
    let key = (plan::Class::ObjectAltered, id);
    let is_fault = |watchdog: &Watchdog| {
        let known = (&observed, &watchdog.history);
        change::is_fault(now, &install, known, &key)
    };
    assert!(is_fault(&watchdog));
    // Something else of what is desired says nothing of it.
    watchdog.renew(&next, &next);
    assert!(is_fault(&watchdog));
    let over = Desired {
        install: crate::agent::InForce {
            change: None,
            ..next.install.clone()
        },
        ..next.clone()
    };
    watchdog.renew(&over, &next);
    assert!(!is_fault(&watchdog));
}

#[test]
fn what_need_not_wait_for_a_window_has_its_time_from_the_beginning() {
    let at = |seconds| OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(seconds);
    let form = desired_of(EngineKind::Flux).install.form;
    let change = Change {
        from: form.clone(),
        to: form,
        number: 7,
        since: rfc3339(at(0)),
        within: 300,
        both: false,
        objects: Vec::new(),
        failed: None,
        ending: None,
    };
    let mut changing = Changing {
        since: Some(at(0)),
        waited: Some(at(900)),
        ..Changing::default()
    };
    let is_old = |changing: &Changing, now| {
        let all = changing.is_old(at(now), &change);
        [all, changing.is_old_but_for_a_window(at(now), &change)]
    };
    assert_eq!(is_old(&changing, 299), [false, false]);
    assert_eq!(is_old(&changing, 300), [false, true]);
    assert_eq!(is_old(&changing, 1_199), [false, true]);
    assert_eq!(is_old(&changing, 1_200), [true, true]);
    // It was not looked at since, and waits still.
    changing.waits = true;
    assert_eq!(is_old(&changing, 1_200), [false, true]);
    changing.waits = false;
    changing.held = Some(at(1_000));
    assert_eq!(is_old(&changing, 1_299), [false, false]);
}

/// What `trim` asks for where the API server answers so, and whether it is content.
async fn trimmed(answers: Vec<(u16, String)>) -> (Vec<String>, Result<(), String>) {
    let (asked, done) = told(answers).await;
    (asked.into_iter().map(|(line, _)| line).collect(), done)
}

/// The same with the bodies.
async fn told(answers: Vec<(u16, String)>) -> (Vec<(String, Value)>, Result<(), String>) {
    let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let answering = async move {
        let mut asked = Vec::new();
        for (code, body) in answers {
            let (request, reply) = server.next_request().await.unwrap();
            let line = format!("{} {}", request.method(), request.uri().path());
            let sent = request.into_body().collect_bytes().await.unwrap();
            asked.push((line, serde_json::from_slice(&sent).unwrap_or_default()));
            let body = Body::from(body.into_bytes());
            reply.send_response(Response::builder().status(code).body(body).unwrap());
        }
        asked
    };
    let kube = Client::new(service, "linesman");
    let canary = ObjectId::new(Kind::HelmRelease, "flux-system", "linesman-probe");
    let (asked, done) = tokio::join!(answering, trim(&kube, &canary));
    (asked, done.map_err(|error| error.to_string()))
}

/// A Flux without helm-controller never had the kind: there is nothing to remove, and the change ends.
#[tokio::test]
async fn what_is_left_over_is_removed_where_it_is_ours_and_its_kind_is_served() {
    let path = "/apis/helm.toolkit.fluxcd.io/v2/namespaces/flux-system/helmreleases/linesman-probe";
    let of = |manager: &str| {
        json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {
                "name": "linesman-probe", "namespace": "flux-system", "uid": "1",
                "managedFields": [{"manager": manager, "operation": "Apply"}],
            },
        })
        .to_string()
    };
    let status = |code: u16, reason: &str| {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason,
        });
        status.to_string()
    };
    let (get, delete) = (format!("GET {path}"), format!("DELETE {path}"));
    let read = vec![get.clone()];
    let both = vec![get, delete];
    let cases = [
        (vec![(404, "404 page not found\n".to_owned())], &read),
        (vec![(404, status(404, "NotFound"))], &read),
        (vec![(200, of("kubectl"))], &read),
        (vec![(200, of(MANAGER)), (200, status(200, ""))], &both),
        (
            vec![(200, of(MANAGER)), (404, status(404, "NotFound"))],
            &both,
        ),
    ];
    for (answers, asked) in cases {
        let shown = format!("{answers:?}");
        assert_eq!(trimmed(answers).await, (asked.clone(), Ok(())), "{shown}");
    }
    let refused = trimmed(vec![(403, status(403, "Forbidden"))]).await;
    let why = Err("read HelmRelease flux-system/linesman-probe".to_owned());
    assert_eq!(refused, (read, why));
}

/// W10: helm-controller pins also what is suspended. When it has gone nobody frees that, and its Namespace could never end.
#[tokio::test]
async fn what_is_left_over_goes_without_the_engines_finalizer() {
    let path = "/apis/helm.toolkit.fluxcd.io/v2/namespaces/flux-system/helmreleases/linesman-probe";
    let live = |version: &str, finalizers: &[&str]| {
        let live = json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {
                "name": "linesman-probe", "namespace": "flux-system", "uid": "1", "resourceVersion": version,
                "finalizers": finalizers,
                "managedFields": [{"manager": MANAGER, "operation": "Apply"}],
            },
        });
        live.to_string()
    };
    let status = |code: u16, reason: &str| {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason,
        });
        status.to_string()
    };
    let pinned = || {
        let finalizers = ["finalizers.fluxcd.io", "example.org/mine"];
        (200, live("7", &finalizers))
    };
    let sent = json!({"metadata": {"finalizers": ["example.org/mine"], "uid": "1", "resourceVersion": "7"}});
    let (get, frees) = (format!("GET {path}"), format!("PATCH {path}"));
    let (asked, done) = told(vec![
        pinned(),
        (200, live("8", &["example.org/mine"])),
        (200, status(200, "")),
    ])
    .await;
    let lines: Vec<&str> = asked.iter().map(|(line, _)| line.as_str()).collect();
    assert_eq!(lines, [&get, &frees, &format!("DELETE {path}")]);
    assert_eq!(asked[1].1, sent);
    // Not one that is pinned once more meanwhile.
    assert_eq!(
        asked[2].1["preconditions"],
        json!({"uid": "1", "resourceVersion": "8"})
    );
    assert_eq!(done, Ok(()));
    let changed = trimmed(vec![pinned(), (409, status(409, "Conflict"))]).await;
    let why = "free HelmRelease flux-system/linesman-probe".to_owned();
    assert_eq!(changed, (vec![get, frees], Err(why)));
}
