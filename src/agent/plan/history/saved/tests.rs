use std::sync::Arc;

use serde_json::json;
use time::macros::datetime;

use super::*;
use crate::agent::engine::argocd::PRUNES;
use crate::agent::plan::tests::{Cluster, desired_of, install_for};
use crate::bundle::Kind;
use crate::clock::rfc3339;

#[test]
fn what_did_not_come_back_is_tried_again_and_the_rest_is_forgotten() {
    let now = datetime!(2026-01-02 03:04:05 UTC);
    let crd = ObjectId::crd_of(Kind::Application);
    let mut history = History::default();
    let [a, b] = ["a", "b"].map(|name| saved(name, now));
    history.saved.insert(crd.clone(), vec![a, b.clone()]);
    history.restored(now, &crd, vec![b.clone()]);
    assert_eq!(history.saved[&crd], [tried(&b, now)]);
    assert_eq!(history.restore_after[&crd], now + AGAIN);
    history.restored(now, &crd, Vec::new());
    assert!(history.saved.is_empty() && history.restore_after.is_empty());
}

fn saved(name: &str, since: OffsetDateTime) -> Saved {
    Saved::new(json!({"metadata": {"name": name}}), since)
}

/// The same, tried for the first time then.
fn tried(saved: &Saved, at: OffsetDateTime) -> Saved {
    Saved {
        tried: Some(at),
        ..saved.clone()
    }
}

/// However often it is tried: its day begins with the first try after the loss, and no younger one is given up with it.
#[test]
fn what_cannot_be_brought_back_for_a_day_is_given_up() {
    let begin = datetime!(2026-01-02 03:04:05 UTC);
    let crd = ObjectId::crd_of(Kind::HelmRelease);
    let old = saved("old", begin);
    let young = saved("young", begin + Duration::hours(20));
    let mut history = History::default();
    history.saved.insert(crd.clone(), vec![old.clone()]);
    let serves = with_crd(&crd, begin - Duration::hours(1), None);
    let mut given_up = Vec::new();
    let mut now = begin;
    while now < begin + Duration::hours(25) {
        let stale = history.give_up(now, &serves);
        given_up.extend(stale.into_iter().map(|of| (now, of)));
        let mut left = history.saved.get(&crd).cloned().unwrap_or_default();
        if now == young.since {
            left.push(young.clone());
        }
        history.restored(now, &crd, left);
        now += AGAIN;
    }
    let old = tried(&old, begin);
    assert_eq!(given_up, [(begin + STALE, (crd.clone(), vec![old]))]);
    let young = tried(&young, young.since);
    assert_eq!(history.saved, [(crd.clone(), vec![young.clone()])].into());
    let rest = history.give_up(young.since + STALE, &serves);
    assert_eq!(rest, [(crd, vec![young])].into());
    assert!(history.saved.is_empty() && history.restore_after.is_empty());
}

/// A CRD that hangs over a weekend on somebody's finalizer, or a window, takes nobody's objects along.
#[test]
fn what_was_not_tried_is_kept_however_old_it_is() {
    let begin = datetime!(2026-01-02 03:04:05 UTC);
    let crd = ObjectId::crd_of(Kind::HelmRelease);
    let mut history = History::default();
    history.died(&crd, vec![saved("x", begin)]);
    let late = begin + Duration::hours(60);
    // It is not there yet, or is back by then.
    let [away, back] = [Observed::default(), with_crd(&crd, late, None)];
    assert_eq!(history.give_up(late, &away), BTreeMap::new());
    assert_eq!(history.give_up(late, &back), BTreeMap::new());
    // From the first try on there is a day.
    for (at, first) in [(late, true), (late + AGAIN, false)] {
        assert_eq!(history.is_first_try(&crd), first);
        history.tries(at, &crd);
        let left = history.saved[&crd].clone();
        history.restored(at, &crd, left);
    }
    let day = late + STALE;
    assert_eq!(history.give_up(day - AGAIN, &back), BTreeMap::new());
    // Nor does another one that could not be brought back take along what died since.
    history.died(&crd, vec![saved("y", day)]);
    let given_up = history.give_up(day, &back);
    let expected = tried(&saved("x", begin), late);
    assert_eq!(given_up, [(crd.clone(), vec![expected])].into());
    let late = day + Duration::hours(60);
    assert_eq!(history.give_up(late, &away), BTreeMap::new());
    assert_eq!(history.saved, [(crd, vec![saved("y", day)])].into());
}

/// A CRD that has served since then, and that is being deleted since.
fn with_crd(crd: &ObjectId, since: OffsetDateTime, deleting: Option<OffsetDateTime>) -> Observed {
    let mut observed = Cluster::working().observed();
    let live = observed.objects.values().next().unwrap();
    let mut live = live.as_ref().clone();
    (live.created, live.deleting) = (Some(since - AGAIN), deleting);
    live.fields = json!({"status": {"conditions": [
        {"type": "NamesAccepted", "status": "True"},
        {"type": "Established", "status": "True", "lastTransitionTime": rfc3339(since)},
    ]}});
    observed.objects = [(crd.clone(), Arc::new(live))].into();
    observed
}

/// W44: an owner who has `heal: off` installs the CRD anew, and does without some of its objects: they do not come back by themselves
/// months later.
#[test]
fn what_nobody_tried_is_given_up_when_its_crd_has_served_for_two_days() {
    let begin = datetime!(2026-01-02 03:04:05 UTC);
    let hours = |hours| begin + Duration::hours(hours);
    let crd = ObjectId::crd_of(Kind::HelmRelease);
    let second = Duration::SECOND;
    let not_yet = |observed: &Observed| {
        let mut observed = observed.clone();
        let live = Arc::make_mut(observed.objects.get_mut(&crd).unwrap());
        live.fields["status"]["conditions"][1]["status"] = json!("False");
        observed
    };
    let old = with_crd(&crd, hours(-1_000), None);
    let anew = with_crd(&crd, hours(10), None);
    let dying = with_crd(&crd, hours(10), Some(hours(60)));
    for (observed, now, gone) in [
        // It was never away: they went alone.
        (&old, hours(48) - second, false),
        (&old, hours(48), true),
        (&anew, hours(58) - second, false),
        (&anew, hours(58), true),
        // It goes again, or does not serve.
        (&dying, hours(500), false),
        (&not_yet(&anew), hours(500), false),
        (&Observed::default(), hours(500), false),
    ] {
        let mut history = History::default();
        history.died(&crd, vec![saved("x", begin)]);
        let given_up = history.give_up(now, observed);
        assert_eq!(given_up.contains_key(&crd), gone, "{now}");
        assert_eq!(history.saved.is_empty(), gone, "{now}");
    }
}

/// W44: the CRD goes once more before all is back, and hangs for days; or the agent is away for a day after its first try.
#[test]
fn a_day_in_which_nobody_could_or_did_try_does_not_count() {
    let begin = datetime!(2026-01-02 03:04:05 UTC);
    let hours = |hours| begin + Duration::hours(hours);
    let second = Duration::SECOND;
    let crd = ObjectId::crd_of(Kind::HelmRelease);
    let old = with_crd(&crd, hours(-1_000), None);
    let dying = with_crd(&crd, hours(-1_000), Some(hours(1)));
    let anew = with_crd(&crd, hours(90), None);
    let away = Observed::default();
    for (observed, resumed, now, gone) in [
        (&old, None, hours(24) - second, false),
        (&old, None, hours(24), true),
        (&dying, None, hours(90), false),
        (&away, None, hours(90), false),
        (&anew, None, hours(114) - second, false),
        (&anew, None, hours(114), true),
        // Another agent begins then, and has an hour at least.
        (&old, Some(hours(20)), hours(24), true),
        (&old, Some(hours(25)), hours(25), false),
        (&old, Some(hours(25)), hours(26) - second, false),
        (&old, Some(hours(25)), hours(26), true),
        (&old, Some(hours(47)), hours(47), false),
        // Who had use for it made it anew by then.
        (&old, Some(hours(48)), hours(48), true),
        (&dying, Some(hours(90)), hours(90), false),
    ] {
        let mut history = History::default();
        let saved = tried(&saved("x", begin), begin);
        history.saved.insert(crd.clone(), vec![saved]);
        if let Some(resumed) = resumed {
            history.tries_on(resumed);
        }
        let given_up = history.give_up(now, observed);
        assert_eq!(given_up.contains_key(&crd), gone, "{resumed:?} {now}");
        assert_eq!(history.saved.is_empty(), gone, "{resumed:?} {now}");
    }
}

/// W10, W11: without a finalizer it goes at once, a moment before its CRD does, or among others of which the guard is told. By a clock
/// that was set back since, it went later than now.
#[test]
fn what_went_together_with_its_crd_or_with_many_others_is_kept() {
    let crd = ObjectId::crd_of(Kind::Application);
    let id = ObjectId::new(Kind::Application, "argocd", "by-hand");
    let keepsake = Arc::new(json!({"metadata": {"name": "by-hand"}}));
    let (second, none) = (Duration::SECOND, Duration::ZERO);
    for (is_dead, many, ago, kept) in [
        (false, false, none, false),
        (true, false, TOGETHER, true),
        (true, false, TOGETHER + second, false),
        (true, false, -TOGETHER, true),
        (false, true, burst::TOGETHER, true),
        (false, true, burst::TOGETHER + second, false),
    ] {
        let mut cluster = Cluster::working_of(EngineKind::Argocd);
        let now = cluster.now;
        if many {
            let root = cluster.install.sync.clone();
            let live = cluster.objects.get_mut(&root).unwrap();
            live.deleting = Some(now);
            live.finalizers = vec![PRUNES.to_owned()];
        }
        let mut observed = cluster.observed();
        if is_dead {
            observed.objects.remove(&crd);
        }
        let lost = (now - ago, Arc::clone(&keepsake));
        observed.lost = Arc::new([(id.clone(), lost)].into());
        let mut history = History::default();
        let more = history.mourn(now, &cluster.install, &observed);
        let what = format!("{is_dead} {many} {ago}");
        let expected: BTreeSet<ObjectId> = kept.then(|| crd.clone()).into_iter().collect();
        assert_eq!(more, expected, "{what}");
        assert_eq!(history.saved.contains_key(&crd), kept, "{what}");
    }
}

/// W44: what is on record as tried has its day from then on, however the try ends.
#[test]
fn all_that_died_is_tried_from_its_own_first_try_on() {
    let now = datetime!(2026-01-02 03:04:05 UTC);
    let crd = ObjectId::crd_of(Kind::Application);
    let named = |name: &str| {
        let meta = json!({"namespace": "n", "name": name});
        Saved::new(json!({"metadata": meta}), now)
    };
    let mut history = History::default();
    let mut expected = Vec::new();
    for (name, at) in [("a", now), ("b", now + AGAIN)] {
        history.died(&crd, vec![named(name)]);
        assert!(history.is_first_try(&crd));
        history.tries(at, &crd);
        assert!(!history.is_first_try(&crd));
        expected.push(tried(&named(name), at));
        assert_eq!(history.saved[&crd], expected);
    }
}

/// An agent that ends meanwhile would leave a record that looks as if nobody had tried; and nobody has, however often it was put off.
#[test]
fn what_is_not_on_record_is_put_off_for_a_moment() {
    let now = datetime!(2026-01-02 03:04:05 UTC);
    let crd = ObjectId::crd_of(Kind::Application);
    let mut history = History::default();
    history.died(&crd, vec![saved("x", now)]);
    for _ in 0..3 {
        history.put_off(now, &crd);
    }
    assert_eq!(
        history.restore_after,
        [(crd.clone(), now + UNRECORDED)].into()
    );
    let back = with_crd(&crd, now, None);
    let given_up = history.give_up(now + STALE, &back);
    assert_eq!(given_up, BTreeMap::new());
    assert_eq!(history.saved, [(crd.clone(), vec![saved("x", now)])].into());
    assert!(history.is_first_try(&crd));
}

/// Else they would come back when the engine does, years later, although all of that was taken down on purpose.
#[test]
fn what_died_with_an_engine_that_is_no_longer_wanted_is_forgotten() {
    let now = datetime!(2026-01-02 03:04:05 UTC);
    let crd = |name: &str| ObjectId::new(Kind::CustomResourceDefinition, "", name);
    let own = crd("kustomizations.kustomize.toolkit.fluxcd.io");
    let other = crd("applications.argoproj.io");
    let mut desired = desired_of(EngineKind::Flux);
    let form = desired.install.form.clone();
    let mut history = History::default();
    for crd in [&own, &other] {
        history.died(crd, vec![saved("x", now)]);
        history.put_off(now, crd);
    }
    // One takes the other's place, and may have to give it back.
    desired.install.change = Some(Change {
        from: form.clone(),
        to: form,
        number: 7,
        since: "2026-01-02T03:00:00Z".to_owned(),
        within: 300,
        both: true,
        objects: Vec::new(),
        failed: None,
        ending: None,
    });
    assert_eq!(history.leave(&install_for(&desired)), BTreeSet::new());
    desired.install.change = None;
    assert_eq!(history.leave(&install_for(&desired)), [other].into());
    let later = now + UNRECORDED;
    assert_eq!(history.restore_after, [(own.clone(), later)].into());
    assert_eq!(history.saved, [(own, vec![saved("x", now)])].into());
    assert_eq!(history.leave(&install_for(&desired)), BTreeSet::new());
}

#[test]
fn of_two_that_died_under_one_name_the_later_one_comes_back() {
    let now = datetime!(2026-01-02 03:04:05 UTC);
    let crd = ObjectId::crd_of(Kind::Application);
    let of = |name: &str, path: &str| {
        let meta = json!({"namespace": "n", "name": name});
        Saved::new(json!({"metadata": meta, "spec": {"path": path}}), now)
    };
    let mut history = History::default();
    history.died(&crd, vec![of("a", "1"), of("b", "1")]);
    history.died(&crd, vec![of("b", "2"), of("c", "2")]);
    let expected = vec![of("a", "1"), of("b", "2"), of("c", "2")];
    assert_eq!(history.saved, [(crd, expected)].into());
}
