//! An order to give back waits until Argo CD has looked at what the catalog has by then.

use super::*;
use crate::agent::engine::argocd::REFRESH;

/// A person orders it, and the agent hears of it.
fn ordered(by: &str) -> Cluster {
    let mut cluster = held(by);
    cluster.now += Duration::seconds(30);
    cluster.install.policy.lift_before = Some(cluster.now);
    // The commit that it is held for is what the root has, too.
    looked_at(&mut cluster, "linesman", "2");
    noted(&mut cluster);
    cluster
}

fn noted(cluster: &mut Cluster) {
    let observed = cluster.observed();
    cluster
        .history
        .noted(cluster.now, &cluster.install, &observed);
}

/// What the plan asks, is asked; the names of those, and whether it gives the server back.
fn asks(cluster: &mut Cluster) -> (Vec<String>, bool) {
    let plan = cluster.plan();
    let observed = cluster.observed();
    let mut asked = Vec::new();
    for step in plan.steps.iter().filter(|s| s.action == Action::Nudge) {
        let outcome = cluster.act(step);
        cluster
            .history
            .acted(cluster.now, step, &outcome, &observed);
        asked.push(step.target.name.clone());
    }
    (asked, writes(&plan).contains(&("lift", SERVER)))
}

/// The root looks, and finds this commit.
fn answers(cluster: &mut Cluster, revision: &str) {
    cluster.now += Duration::SECOND;
    looked_at(cluster, "linesman", revision);
    let root = cluster.objects.get_mut(&application("linesman")).unwrap();
    let annotations = root.fields["metadata"]["annotations"].as_object_mut();
    annotations.unwrap().remove(REFRESH);
    noted(cluster);
}

/// A look that began before the first question may be its answer. The next one's did not.
#[test]
fn an_order_is_obeyed_when_argo_cd_has_looked_again() {
    let mut cluster = ordered("linesman");
    let root = || vec!["linesman".to_owned()];
    assert_eq!(asks(&mut cluster), (root(), false));
    answers(&mut cluster, "2");
    assert_eq!(asks(&mut cluster), (vec![], false));
    cluster.now += Duration::seconds(5);
    assert_eq!(asks(&mut cluster), (root(), false));
    answers(&mut cluster, "2");
    let (_, lifts) = asks(&mut cluster);
    assert!(lifts);
}

/// A commit that was pushed a moment before the order no longer has it, and an Application below the root has not looked at that.
#[test]
fn an_order_waits_until_the_application_that_brings_it_has_seen_what_the_root_has() {
    let mut cluster = ordered("engine");
    looked_at(&mut cluster, "engine", "2");
    let (mut asked, lifts) = asks(&mut cluster);
    asked.sort();
    assert_eq!(
        (asked, lifts),
        (vec!["engine".to_owned(), "linesman".to_owned()], false)
    );
    answers(&mut cluster, "2");
    cluster.now += Duration::seconds(5);
    asks(&mut cluster);
    answers(&mut cluster, "3");
    assert!(!asks(&mut cluster).1, "it is still at the one before");
    // What another repository has is nothing that the root could have left.
    for (seen, due) in [("2", false), ("of-another", true), ("3", true)] {
        looked_at(&mut cluster, "engine", seen);
        assert_eq!(asks(&mut cluster).1, due, "{seen}");
    }
}

/// What took the question may have been a look that began before. By itself it would come to the last commit when the wait is over.
#[test]
fn an_application_that_is_still_at_the_one_before_is_asked_again() {
    let mut cluster = ordered("engine");
    looked_at(&mut cluster, "engine", "2");
    let mut asked = Vec::new();
    for _ in 0..3 {
        let (names, lifts) = asks(&mut cluster);
        asked.push((names.iter().any(|name| name == "engine"), lifts));
        answers(&mut cluster, "3");
        cluster.now += Duration::seconds(5);
    }
    assert_eq!(asked, [(true, false); 3]);
}

/// Of a look that failed nothing is known.
#[test]
fn an_order_waits_for_a_minute_at_most_where_argo_cd_cannot_read_git() {
    let mut cluster = ordered("linesman");
    asks(&mut cluster);
    answers(&mut cluster, "2");
    cluster.now += Duration::seconds(5);
    asks(&mut cluster);
    answers(&mut cluster, "2");
    let root = cluster.objects.get_mut(&application("linesman")).unwrap();
    root.fields["status"]["sync"]["status"] = json!("Unknown");
    assert!(!asks(&mut cluster).1);
    cluster.now += Duration::minutes(1);
    noted(&mut cluster);
    assert!(asks(&mut cluster).1);
}
