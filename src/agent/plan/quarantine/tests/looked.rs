//! An order to give back waits until Flux has looked at what the catalog has by then.

use super::ordered::{NAME, held, order};
use super::*;

/// A person orders it, and the agent hears of it.
fn ordered() -> Cluster {
    let mut cluster = held();
    cluster.now += Duration::seconds(30);
    order(&mut cluster, Duration::ZERO);
    noted(&mut cluster);
    cluster
}

fn noted(cluster: &mut Cluster) {
    let observed = cluster.observed();
    cluster
        .history
        .noted(cluster.now, &cluster.install, &observed);
}

/// What the plan asks, is asked; whom it was, and what it writes beside that.
fn asks(cluster: &mut Cluster) -> (Vec<ObjectId>, Vec<(String, String)>) {
    let plan = cluster.plan();
    let observed = cluster.observed();
    let mut asked = Vec::new();
    for step in plan.steps.iter().filter(|s| s.action == Action::Nudge) {
        let outcome = cluster.act(step);
        cluster
            .history
            .acted(cluster.now, step, &outcome, &observed);
        asked.push(step.target.clone());
    }
    let writes = writes(&plan).into_iter();
    let writes = writes.map(|(action, name)| (action.to_owned(), name.to_owned()));
    (asked, writes.collect())
}

fn lift() -> Vec<(String, String)> {
    vec![("lift".to_owned(), NAME.to_owned())]
}

/// The commit of which a root says that it is at it, and the one that it is done with.
fn is_at(cluster: &mut Cluster, tried: &str, applied: &str) {
    let sync = cluster.install.sync.clone();
    let status = &mut cluster.objects.get_mut(&sync).unwrap().fields["status"];
    status["lastAttemptedRevision"] = json!(tried);
    status["lastAppliedRevision"] = json!(applied);
}

fn finds(cluster: &mut Cluster, revision: &str) {
    let source = cluster.install.source.clone();
    let status = &mut cluster.objects.get_mut(&source).unwrap().fields["status"];
    status["artifact"]["revision"] = json!(revision);
}

#[test]
fn an_order_is_obeyed_when_the_engine_has_looked_at_git() {
    let mut cluster = ordered();
    let source = cluster.install.source.clone();
    assert_eq!(asks(&mut cluster), (vec![source], vec![]));
    cluster.now += Duration::SECOND;
    noted(&mut cluster);
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [], "no answer yet");
    assert!(plan.next_look <= cluster.now + Duration::seconds(5));
    works(&mut cluster);
    assert_eq!(asks(&mut cluster).1, lift());
}

/// A commit that was pushed a moment before the order no longer has it: as soon as it is given back, it would be pruned.
#[test]
fn an_order_waits_until_the_engine_is_done_with_what_it_found() {
    let mut cluster = ordered();
    asks(&mut cluster);
    works(&mut cluster);
    for (found, tried, applied, due) in [
        ("2", "2", "2", true),
        ("3", "2", "2", false),
        ("3", "3", "2", false),
        ("3", "3", "3", true),
    ] {
        finds(&mut cluster, found);
        is_at(&mut cluster, tried, applied);
        let expected = if due { lift() } else { Vec::new() };
        let asked = asks(&mut cluster).1;
        assert_eq!(asked, expected, "{found} {tried} {applied}");
    }
}

/// What a root fails with before it prunes takes nothing away.
#[test]
fn an_order_does_not_wait_for_a_commit_that_fails() {
    let mut cluster = ordered();
    asks(&mut cluster);
    works(&mut cluster);
    finds(&mut cluster, "3");
    is_at(&mut cluster, "3", "2");
    let sync = cluster.install.sync.clone();
    for (reason, due) in [("PruneFailed", false), ("BuildFailed", true)] {
        let status = &mut cluster.objects.get_mut(&sync).unwrap().fields["status"];
        status["conditions"] = json!([{"type": "Ready", "status": "False", "reason": reason}]);
        let observed = cluster.observed();
        let (now, known) = (cluster.now, (&observed, &cluster.history));
        let held = &holds(&cluster.install, &observed)[&deployment(NAME)];
        let is_due = order::is_due(now, &cluster.install, known, held);
        assert_eq!(is_due, due, "{reason}");
    }
}

/// It was asked once, and that was before: another question is for this order.
#[test]
fn what_was_answered_before_the_order_does_not_count() {
    let mut cluster = held();
    let source = cluster.install.source.clone();
    let asked = rfc3339(cluster.now);
    let live = cluster.objects.get_mut(&source).unwrap();
    live.fields["metadata"]["annotations"][REQUESTED_AT] = json!(asked);
    works(&mut cluster);
    cluster.now += Duration::SECOND;
    order(&mut cluster, Duration::ZERO);
    noted(&mut cluster);
    assert_eq!(asks(&mut cluster), (vec![source], vec![]));
}

/// Git may be away, and the order may be for a version whose image has arrived.
#[test]
fn an_order_waits_for_a_minute_at_most() {
    let mut cluster = ordered();
    asks(&mut cluster);
    cluster.now += Duration::seconds(59);
    noted(&mut cluster);
    assert!(!asks(&mut cluster).1.contains(&lift()[0]));
    cluster.now += Duration::seconds(1);
    noted(&mut cluster);
    assert!(asks(&mut cluster).1.contains(&lift()[0]));
}

/// Nothing is asked for an order that gives nothing back.
#[test]
fn an_order_that_is_obeyed_asks_for_nothing() {
    let mut cluster = ordered();
    asks(&mut cluster);
    works(&mut cluster);
    let plan = cluster.plan();
    do_all(&mut cluster, &plan);
    works(&mut cluster);
    let (now, observed) = (cluster.now, cluster.observed());
    let waits = unlooked(now, &cluster.install, &observed, &cluster.history);
    assert_eq!(waits, None);
}
