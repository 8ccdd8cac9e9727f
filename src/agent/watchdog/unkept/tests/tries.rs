//! The first try to bring something back waits for its record, but not for long.

use tokio::time::advance;

use super::*;
use crate::agent::apply::Hands;
use crate::agent::observe::View;
use crate::agent::plan::history::Outcome;

/// W44: an agent that ended in between would leave a record that says that nobody had tried, and the next one would bring back what
/// somebody deleted since.
#[tokio::test(start_paused = true)]
async fn nothing_is_brought_back_before_it_is_on_record_that_it_is_tried() {
    let crd = crd("kustomizations.kustomize.toolkit.fluxcd.io");
    let server = Arc::new(Mutex::new(Server::default()));
    let mut watchdog = watchdog();
    watchdog.saves = saves(&server);
    let lost = saved("x");
    let all = vec![lost.clone()];
    watchdog.history.saved.insert(crd.clone(), all.clone());
    watchdog.history.adopted = true;
    watchdog.keep_saves(&crd).await;
    server.lock().unwrap().refuses = 2;
    let (install, observed) = (install(), Cluster::working().observed());
    let mut now = observed.pods_at.unwrap();
    let is_planned = |watchdog: &Watchdog, now| {
        let plan = plan::plan(now, &install, &observed, &watchdog.history);
        let mut steps = plan.steps.iter();
        let planned = steps.any(|step| step.action == Action::Restore && step.target == crd);
        (planned, plan.next_look <= now + time::Duration::seconds(2))
    };
    assert!(is_planned(&watchdog, now).0);
    for _ in 0..2 {
        assert!(!watchdog.records_try(now, &crd).await);
        assert_eq!(is_planned(&watchdog, now), (false, true));
        // Nobody has tried, here or on record.
        assert_eq!(watchdog.history.saved[&crd], all);
        let left = watchdog.saves.load(clock::now()).await.unwrap();
        assert_eq!(left.objects[&crd], all);
        now += time::Duration::seconds(2);
        advance(Duration::from_secs(2)).await;
        assert!(is_planned(&watchdog, now).0);
    }
    assert!(watchdog.records_try(now, &crd).await);
    assert!(watchdog.history.saved[&crd][0].tried.is_some());
    let left = watchdog.saves.load(clock::now()).await.unwrap();
    assert!(left.objects[&crd][0].tried.is_some());
    assert!(is_planned(&watchdog, now).0);
    // What was kept before goes with the rest.
    watchdog.history.restored(now, &crd, Vec::new());
    watchdog.keep_saves(&crd).await;
    assert_eq!(server.lock().unwrap().maps, BTreeMap::new());
    assert_eq!(watchdog.unkept, Unkept::default());
}

/// W11: a quota, a webhook that is away or one that never answers keeps no sync object away. Until then nobody has tried.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_put_on_record_is_brought_back_all_the_same() {
    let target = crd("kustomizations.kustomize.toolkit.fluxcd.io");
    let lost = Saved::new(
        json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"namespace": "team-a", "name": "x"},
        }),
        clock::now(),
    );
    let step = Step {
        action: Action::Restore,
        target: target.clone(),
        cause: None,
    };
    for (silent, tries) in [(false, 3), (true, 1)] {
        let server = Arc::new(Mutex::new(Server {
            denied: vec![Method::PATCH],
            silent,
            ..Server::default()
        }));
        let mut watchdog = watchdog();
        let (kube, store) = (kube(&server), saves(&server));
        watchdog.saves = store.clone();
        let all = vec![lost.clone()];
        watchdog.history.saved.insert(target.clone(), all.clone());
        let (install, observed) = (install(), Cluster::working().observed());
        let hands = Hands {
            kube: &kube,
            install: &install,
            view: &View::new(&install),
            observed: &observed,
            saves: &store,
        };
        let begin = Instant::now();
        for _ in 1..tries {
            let outcome = Box::pin(watchdog.step(hands, &install, &step)).await;
            assert!(matches!(outcome, Outcome::Unserved(_)), "{outcome:?}");
            assert_eq!(watchdog.history.saved[&target], all);
            advance(Duration::from_secs(2)).await;
        }
        let outcome = Box::pin(watchdog.step(hands, &install, &step)).await;
        assert_eq!(outcome, Outcome::Done, "{silent}");
        assert!(begin.elapsed() < PATIENCE + LAST, "{:?}", begin.elapsed());
        let server = server.lock().unwrap();
        assert_eq!(server.made, std::slice::from_ref(&*lost.object));
        assert_eq!(server.writes, tries);
        assert_eq!(watchdog.history.saved, BTreeMap::new());
        // There is no record any more to be written.
        assert_eq!(watchdog.unkept, Unkept::default());
    }
}

/// What is on record as tried, or was tried, needs no other record, and none that is to go stands in the way of a first try.
#[tokio::test(start_paused = true)]
async fn a_record_holds_up_nothing_but_the_first_try() {
    let crd = crd("kustomizations.kustomize.toolkit.fluxcd.io");
    let now = clock::now();
    for denied in [Method::DELETE, Method::GET] {
        let server = Arc::new(Mutex::new(Server::default()));
        let mut watchdog = watchdog();
        watchdog.saves = saves(&server);
        let all = vec![saved("x"), saved("y")];
        let before = now - time::Duration::hours(1);
        let stored = watchdog.saves.store(&crd, &all[..1], before).await;
        assert!(matches!(stored, Ok(Stored::Alone)), "{stored:?}");
        watchdog.history.saved.insert(crd.clone(), all);
        // That of before can neither be found nor deleted.
        server.lock().unwrap().denied = vec![denied.clone()];
        watchdog.keep_saves(&crd).await;
        assert!(watchdog.unkept.next().is_some(), "{denied}");
        assert!(watchdog.records_try(now, &crd).await, "{denied}");
        server.lock().unwrap().denied = Vec::new();
        let left = watchdog.saves.load(now).await.unwrap();
        assert!(left.objects[&crd].iter().all(|one| one.tried.is_some()));
        // Some are not back, which is not on record.
        server.lock().unwrap().denied = vec![Method::PATCH];
        let some = watchdog.history.saved[&crd][..1].to_vec();
        watchdog.history.restored(now, &crd, some);
        watchdog.keep_saves(&crd).await;
        assert!(watchdog.unkept.next().is_some(), "{denied}");
        let writes = server.lock().unwrap().writes;
        assert!(watchdog.records_try(now, &crd).await, "{denied}");
        assert_eq!(server.lock().unwrap().writes, writes);
        assert_eq!(watchdog.unkept.waited, BTreeMap::new());
    }
}
