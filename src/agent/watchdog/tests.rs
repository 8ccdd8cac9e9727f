use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::advance;

use super::*;
use crate::agent::EngineGit;
use crate::agent::calls::Calls;
use crate::agent::fault::Faults;
use crate::agent::gate::Covered;
use crate::agent::lease::Candidate;
use crate::agent::plan::Class;
use crate::agent::plan::retry::Complaint;
use crate::agent::plan::state::{HostKeys, OwnLook};
use crate::agent::plan::tests::install_of;
use crate::bundle::ObjectId;
use crate::lifetime::hearts::{Hearts, STILL};
use crate::manifests::{EngineNamespaces, OPEN_HEALS_MAP, scope::Extent};
use crate::telemetry::HealMetrics;
use crate::wire::report::Facts;

/// A watchdog of this API server, with what tells of its heart, and its end.
struct Kept {
    hearts: Hearts,
    stop: CancellationToken,
    _desired: watch::Sender<Option<Desired>>,
    task: JoinSet<Result<()>>,
}

fn context(kube: &kube::Client, hearts: &Hearts) -> Context {
    let term = Candidate::new(kube.clone(), "linesman", "a".to_owned()).term();
    let heart = hearts.heart("watchdog", STILL);
    Context {
        kube: term.client(kube, Some(heart.clone())),
        watches: kube.clone(),
        heart,
        namespace: "linesman".to_owned(),
        engines: EngineNamespaces::default(),
        extent: Extent::Cluster,
        covered: watch::channel(Covered::Cluster).1,
        pod: "linesman-agent-0".to_owned(),
        fetched: watch::channel(String::new()).0,
        stored: watch::channel(Vec::new()).1,
        changed: watch::channel(None).0,
        rest: watch::channel(None).0,
        engine_git: watch::channel(EngineGit::default()).0,
        look: watch::channel(OwnLook::default()).1,
        met: watch::channel(HostKeys::default()).1,
        facts: watch::channel(Facts::new()).1,
        owner: watch::channel(None).1,
        metrics: HealMetrics::default(),
        calls: Calls::default(),
        refused: Arc::default(),
        term,
        faults: Faults::default(),
    }
}

/// A watchdog that has done nothing yet, of an API server that has nothing.
pub(super) fn watchdog() -> Watchdog {
    watchdog_of(&nothing_there())
}

fn watchdog_of(kube: &kube::Client) -> Watchdog {
    let context = context(kube, &Hearts::default());
    let inlets = Inlets {
        hints: mpsc::channel(1).1,
        questions: mpsc::channel(1).1,
    };
    Watchdog::new(context, watch::channel(None).1, inlets, mpsc::channel(8).0)
}

fn kept(kube: &kube::Client, news: mpsc::Sender<News>) -> Kept {
    let hearts = Hearts::default();
    let context = context(kube, &hearts);
    let (desired_out, desired) = watch::channel(None);
    let inlets = Inlets {
        hints: mpsc::channel(1).1,
        questions: mpsc::channel(1).1,
    };
    let stop = CancellationToken::new();
    let mut task = JoinSet::new();
    task.spawn(Box::pin(run(context, desired, inlets, news, stop.clone())));
    Kept {
        hearts,
        stop,
        _desired: desired_out,
        task,
    }
}

/// Lets time pass in small steps: what is due in between is done in between.
async fn pass(time: Duration) {
    for _ in 0..time.as_secs() {
        advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }
}

/// L54: an API server that takes a call and never answers does not hold up the watchdog: it asks again.
#[tokio::test(start_paused = true)]
async fn a_silent_api_server_is_asked_again() {
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&asked);
    let silent = tower::service_fn(move |_: Request<Body>| {
        seen.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<Result<Response<Body>, Infallible>>()
    });
    let (news, _told) = mpsc::channel(8);
    let mut kept = kept(&kube::Client::new(silent, "linesman"), news);
    pass(Duration::from_mins(10)).await;
    // 15 s for the answer, and 2 s until it is tried again.
    assert_eq!(asked.load(Ordering::Relaxed), 36);
    assert_eq!(kept.hearts.say(), None);
    kept.stop.cancel();
    assert!(kept.task.join_next().await.unwrap().unwrap().is_ok());
}

fn nothing_there() -> kube::Client {
    with_open_heals(None)
}

/// An API server that has nothing but these open heals of a former process.
fn with_open_heals(kept: Option<&Value>) -> kube::Client {
    const NOTHING: &str =
        r#"{"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}"#;
    const NONE: &str =
        r#"{"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {}, "items": []}"#;
    let map = kept.map(|kept| {
        let data = json!({ "heals.json": kept.to_string() });
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": data });
        map.to_string()
    });
    let server = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path();
        let asked = path.ends_with(OPEN_HEALS_MAP).then(|| map.clone());
        let (code, said) = match asked.flatten() {
            Some(map) => (200, map),
            None if path.ends_with("/configmaps") => (200, NONE.to_owned()),
            None => (404, NOTHING.to_owned()),
        };
        let answer = Response::builder().status(code);
        let answer = answer.body(Body::from(said.into_bytes())).unwrap();
        async move { Ok::<_, Infallible>(answer) }
    });
    kube::Client::new(server, "linesman")
}

/// What a process ended it has counted, told or not; what nobody follows any more ends with this one. So a sum over both has
/// each heal once.
#[tokio::test]
async fn a_heal_that_a_former_process_ended_is_not_counted_again() {
    let kept = |class: &str, restored: Option<&str>| {
        json!({
            "kind": "Deployment", "namespace": "flux-system", "name": class, "record": {
                "id": class, "class": class, "object": "x", "evidence": "", "steps": [], "detectedAt": "2026-01-01T00:00:00Z",
                "restoredAt": restored, "result": if restored.is_some() { "healed" } else { "open" },
            },
        })
    };
    let left = json!([
        kept("ObjectMissing", Some("2026-01-01T00:00:03Z")),
        kept("OfALaterVersion", Some("2026-01-01T00:00:03Z")),
        kept("AnotherOfThat", None),
    ]);
    let mut watchdog = watchdog_of(&with_open_heals(Some(&left)));
    watchdog.resume().await;
    let told = watchdog.untold.iter().map(|heal| heal.class.as_str());
    let told: Vec<&str> = told.collect();
    assert_eq!(told, ["ObjectMissing", "OfALaterVersion", "AnotherOfThat"]);
    let text = watchdog.context.metrics.text().unwrap();
    let counts = text
        .lines()
        .filter(|l| l.starts_with("linesman_heals_total{"));
    assert_eq!(
        counts.collect::<Vec<_>>(),
        ["linesman_heals_total{class=\"other\",step=\"none\",result=\"failed\"} 1"]
    );
}

/// F40: a root that tries again as an agent begins says nothing of the fault that is on record of it.
#[tokio::test]
async fn what_is_on_record_of_the_catalog_is_remembered_of_its_root() {
    let left = json!([{
        "kind": "Kustomization", "namespace": "flux-system", "name": "flux-system", "record": {
            "id": "a", "class": "HealthCheckFailed", "object": "x", "evidence": "HealthCheckFailed: y", "steps": [],
            "detectedAt": "2026-01-01T00:00:00Z", "restoredAt": null, "result": "reported",
        },
    }]);
    let mut watchdog = watchdog_of(&with_open_heals(Some(&left)));
    watchdog.resume().await;
    let root = ObjectId::new(Kind::Kustomization, "flux-system", "flux-system");
    let said = Complaint::on_record(Class::HealthCheckFailed, "HealthCheckFailed: y");
    assert_eq!(watchdog.history.complaints, [(root, said)].into());
}

/// W25: whoever is killed between a step and the question whether it helped leaves the question to the next one.
#[tokio::test]
async fn what_was_done_about_an_open_heal_is_yet_to_be_proven_to_the_next_process() {
    let kept = |name: &str, stepped: Option<&str>| {
        json!({
            "kind": "Deployment", "namespace": "argocd", "name": name, "steppedAt": stepped, "record": {
                "id": name, "class": "ObjectMissing", "object": "x", "evidence": "", "steps": [],
                "detectedAt": "2026-01-01T00:00:00Z", "restoredAt": null, "result": "open",
            },
        })
    };
    let left = json!([
        kept("argocd-redis", Some("2026-01-01T00:00:03.250Z")),
        kept("argocd-repo-server", Some("2026-01-01T00:00:01Z")),
        kept("argocd-server", None),
    ]);
    let mut watchdog = watchdog_of(&with_open_heals(Some(&left)));
    watchdog.resume().await;
    let last = clock::parse_rfc3339("2026-01-01T00:00:03.250Z");
    assert_eq!(watchdog.history.last_write, last);
}

/// L54: a watchdog that waits for what never comes is told of by `/livez`; one that has nothing to do is not.
#[tokio::test(start_paused = true)]
async fn a_watchdog_that_stands_still_is_missed_and_an_idle_one_is_not() {
    let (news, _told) = mpsc::channel(8);
    let idle = kept(&nothing_there(), news);
    let stuck = Hearts::default();
    let _never_runs = context(&nothing_there(), &stuck);
    pass(Duration::from_mins(10)).await;
    assert_eq!(idle.hearts.say(), None);
    let said = stuck.say().unwrap_or_default();
    assert!(said.starts_with("task watchdog is stuck for"), "{said}");
}

/// No heal waits for whoever carries the news to the hub; what is open is told when somebody takes it.
#[tokio::test(start_paused = true)]
async fn a_watchdog_whose_news_nobody_takes_goes_on_and_tells_later_what_is_open() {
    let (news, mut told) = mpsc::channel(1);
    let before = News::Revision("before".to_owned());
    news.send(before.clone()).await.unwrap();
    let left = json!([{
        "kind": "Deployment", "namespace": "flux-system", "name": "source-controller", "record": {
            "id": "a", "class": "ObjectMissing", "object": "x", "evidence": "", "steps": [],
            "detectedAt": "2026-01-01T00:00:00Z", "restoredAt": null, "result": "open",
        },
    }]);
    let kept = kept(&with_open_heals(Some(&left)), news);
    pass(Duration::from_mins(10)).await;
    assert_eq!(kept.hearts.say(), None);
    assert_eq!(told.try_recv(), Ok(before));
    pass(Duration::from_mins(2)).await;
    let open = News::GoesOn(vec!["a".to_owned()]);
    assert_eq!(told.try_recv(), Ok(open));
    // Once is enough.
    pass(Duration::from_mins(2)).await;
    assert!(told.try_recv().is_err());
}

/// Rounds may follow each other for a long time: who asks how it is does not wait for their end.
#[tokio::test]
async fn questions_are_answered_between_two_rounds() {
    let (asking, questions) = mpsc::channel(2);
    let mut watchdog = watchdog();
    watchdog.questions = questions;
    let (install, observed) = (install_of(EngineKind::Flux), Observed::default());
    let plan = plan::plan(clock::now(), &install, &observed, &watchdog.history);
    let (asked, mut answer) = oneshot::channel();
    asking.send(asked).await.unwrap();
    watchdog.answer_waiting((&install, &observed, &plan));
    let rows = answer.try_recv().unwrap();
    assert!(rows.iter().any(|row| row.name == "watchdog"), "{rows:?}");
    // Nobody is waited for.
    watchdog.answer_waiting((&install, &observed, &plan));
}
