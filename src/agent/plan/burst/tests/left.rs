//! An agent ends in the midst of a burst, and another one begins later, be it after a day: who deleted what it does not know.

use super::*;
use crate::agent::plan::find::FRESH;
use crate::agent::plan::state::{Answer, Scope};
use crate::clock::{parse_rfc3339, rfc3339};

const RIGHTS: [&str; 2] = [
    "cluster-reconciler-flux-system",
    "crd-controller-flux-system",
];
const CONTROLLER: &str = "kustomize-controller";

fn right(name: &str) -> ObjectId {
    ObjectId::new(Kind::ClusterRoleBinding, "", name)
}

impl Place {
    /// The guard has taken these of the engine's rights.
    fn without(&mut self, rights: &[&str]) {
        for name in rights {
            self.cluster.objects.remove(&right(name));
        }
        self.begin();
    }

    /// It has stopped the controller, too.
    fn stop(&mut self) {
        let id = ObjectId::new(Kind::Deployment, ROOT, CONTROLLER);
        let live = self.cluster.objects.get_mut(&id).unwrap();
        live.fields["spec"]["replicas"] = json!(0);
        GUARD.clone_into(&mut live.writer);
        self.begin();
    }

    /// Another agent begins now: it knows what there is.
    fn begin(&mut self) {
        self.seen = self.cluster.observed();
        self.seen.since = Some(self.cluster.now);
    }

    /// What a list tells that comes after that.
    fn goes(&mut self, name: &str, at: &str, change: fn(&mut Value)) {
        let mut object = live(name, ROOT);
        object["metadata"]["deletionTimestamp"] = json!(at);
        change(&mut object);
        self.hear(name, Some(object));
    }
}

/// W44: it had cut rights and came no further, for its node went away, or somebody started the controller again in the meantime.
#[test]
fn what_goes_together_while_the_engine_has_no_rights_is_let_go_by_the_next_agent() {
    type Change = fn(&mut Value);
    type Case<'a> = (&'a str, &'a [&'a str], [&'a str; 3], Change, bool);
    let as_is: Change = |_| {};
    let at_once = ["00"; 3];
    let cases: [Case<'_>; 7] = [
        ("both rights", &RIGHTS, at_once, as_is, true),
        ("one right", &RIGHTS[..1], at_once, as_is, true),
        ("ten seconds", &RIGHTS, ["05", "00", "10"], as_is, true),
        ("not together", &RIGHTS, ["00", "06", "12"], as_is, false),
        ("no rights taken", &[], at_once, as_is, false),
        (
            "made by hand",
            &RIGHTS,
            at_once,
            |o| o["metadata"]["labels"] = json!({}),
            false,
        ),
        (
            "that leave all behind",
            &RIGHTS,
            at_once,
            |o| o["spec"]["deletionPolicy"] = json!("Orphan"),
            false,
        ),
    ];
    for (what, taken, seconds, change, guarded) in cases {
        let mut place = Place::new();
        place.without(taken);
        for (name, second) in ["a", "b", "c"].into_iter().zip(seconds) {
            place.goes(name, &format!("2026-01-02T03:04:{second}Z"), change);
        }
        let cuts = vec!["cut-rights"; RIGHTS.len() - taken.len()];
        let expected = if guarded {
            [cuts, vec!["scale-to-zero", "release"]].concat()
        } else {
            vec!["create"; taken.len()]
        };
        assert_eq!(place.actions(), expected, "{what}");
        assert_eq!(place.is_on(), guarded, "{what}");
    }
}

/// What this agent has seen begin, it has judged; and before the adoption nothing was its guard's.
#[test]
fn what_began_later_or_before_the_adoption_was_no_guards() {
    let at = "2026-01-02T03:04:05Z";
    let began = parse_rfc3339(at).unwrap();
    for (adopted, since, guarded) in [
        (true, 0, true),
        (true, -10, true),
        (true, -11, false),
        (false, 0, false),
    ] {
        let mut place = Place::new();
        place.cluster.history.adopted = adopted;
        place.without(&RIGHTS);
        place.seen.since = Some(began + Duration::seconds(since));
        for name in ["a", "b", "c"] {
            place.goes(name, at, |_| {});
        }
        assert_eq!(place.is_on(), guarded, "{adopted} {since}");
    }
}

/// W5: that the engine lacks them has to be known, or what somebody deleted long ago would cost it the rest.
#[test]
fn rights_of_which_nothing_is_told_were_taken_by_no_guard() {
    for (answered, answer, guarded) in [
        (true, Answer::Whole, true),
        (false, Answer::Whole, false),
        (true, Answer::Refused, false),
    ] {
        let mut place = Place::new();
        place.without(&RIGHTS);
        let answered = answered.then_some(place.cluster.now);
        let scope = Scope { answered, answer };
        place.seen.scopes.insert(Kind::ClusterRoleBinding, scope);
        for name in ["a", "b", "c"] {
            place.goes(name, "2026-01-02T03:04:05Z", |_| {});
        }
        assert_eq!(place.is_on(), guarded, "{answered:?} {answer:?}");
    }
}

/// W44: the record of the cut says it of a single one.
#[test]
fn what_is_left_of_a_burst_is_let_go_where_the_cut_is_on_record() {
    let mut place = Place::new();
    place.without(&RIGHTS);
    place.goes("a", "2026-01-02T03:04:05Z", |_| {});
    assert_eq!(place.actions(), ["create", "create"]);
    let cut = RIGHTS.map(|name| (right(name), String::new()));
    place.cluster.history.cut = cut.into();
    assert_eq!(place.actions(), ["scale-to-zero", "release"]);
    // They are back, whoever gave them.
    let whole = Cluster::working();
    for name in RIGHTS {
        let live = whole.objects[&right(name)].clone();
        place.cluster.objects.insert(right(name), live);
    }
    let children = std::mem::take(&mut place.seen.children);
    place.begin();
    place.seen.children = children;
    assert_eq!(place.actions(), [""; 0]);
}

/// W44: the list of the sync objects may be the last to come, and what it tells of would be pruned by then.
#[test]
fn nothing_is_given_to_the_engine_before_it_is_known_what_goes() {
    let known = RIGHTS.map(|name| (right(name), String::new()));
    let just = FRESH;
    let late = FRESH + Duration::SECOND;
    for (taken, stopped, on_record, ago, listed) in [
        (&RIGHTS[..], true, true, late, vec!["create", "create"]),
        (&RIGHTS[..], true, false, late, vec!["create", "create"]),
        (&RIGHTS[..], false, true, late, vec!["create", "create"]),
        (&RIGHTS[..], false, false, just, vec!["create", "create"]),
        (&[][..], true, false, late, vec!["apply"]),
    ] {
        let what = format!("{taken:?} {stopped} {on_record}");
        let mut place = Place::new();
        if stopped {
            place.stop();
        }
        place.without(taken);
        if on_record {
            place.cluster.history.cut = known.clone().into();
        }
        place.seen.since = Some(place.cluster.now - ago);
        place.seen.awaited = [Kind::Kustomization, Kind::GitRepository].into();
        assert_eq!(place.actions(), [""; 0], "{what}");
        // What fills the gap: they go, and are let go.
        let mut goes = Place {
            seen: place.seen.clone(),
            ..Place::new()
        };
        goes.cluster.history = place.cluster.history.clone();
        goes.seen.awaited.clear();
        for name in ["a", "b", "c"] {
            goes.goes(name, "2026-01-02T03:04:05Z", |_| {});
        }
        assert_eq!(goes.actions().last(), Some(&"release"), "{what}");
        // Or nothing does.
        place.seen.awaited = [Kind::GitRepository].into();
        assert_eq!(place.actions(), listed, "{what}");
    }
}

/// A list that never comes keeps nobody's engine without rights where no guard is known of, and all else is mended meanwhile.
#[test]
fn a_list_that_does_not_come_is_waited_for_where_a_guard_is_known_of() {
    let mut place = Place::new();
    let service = ObjectId::new(Kind::Service, ROOT, "source-controller");
    place.cluster.objects.remove(&service);
    place.without(&RIGHTS);
    let since = place.cluster.now - FRESH - Duration::SECOND;
    place.seen.since = Some(since);
    place.seen.awaited = [Kind::Kustomization].into();
    assert_eq!(place.actions(), ["create"; 3]);
    place.cluster.history.cut = RIGHTS.map(|name| (right(name), String::new())).into();
    assert_eq!(place.actions(), ["create"]);
    let found = place.plan().findings.into_iter();
    let mut told = found.filter(|f| f.class == Class::ApiUnhealthy);
    let text = format!(
        "the API server has not answered since {}, asked for kustomizations",
        rfc3339(since)
    );
    assert_eq!(told.next().map(|f| f.evidence), Some(text));
}

/// W5: three that somebody deleted days ago hang on what they cannot let go of; then somebody takes a right away, and this agent looks on.
#[test]
fn a_right_that_goes_before_the_agents_eyes_was_taken_by_no_guard() {
    for (seen, actions) in [
        (true, vec!["create"]),
        (false, vec!["cut-rights", "scale-to-zero", "release"]),
    ] {
        let mut place = Place::new();
        place.begin();
        for name in ["a", "b", "c"] {
            place.goes(name, "2026-01-01T03:04:05Z", |_| {});
        }
        if seen {
            let Cluster {
                install,
                history,
                now,
                ..
            } = &mut place.cluster;
            history.noted(*now, install, &place.seen);
        }
        assert_eq!(place.actions(), [""; 0]);
        place.cluster.objects.remove(&right(RIGHTS[0]));
        let since = place.seen.since;
        place.look();
        place.seen.since = since;
        assert_eq!(place.actions(), actions, "{seen}");
    }
}

/// W5, W8: it is back at once, also where the agent has just begun and a list takes its time.
#[test]
fn what_no_guard_takes_waits_for_no_list() {
    let controller = ObjectId::new(Kind::Deployment, ROOT, CONTROLLER);
    let service = ObjectId::new(Kind::Service, ROOT, "source-controller");
    for id in [controller, service] {
        let mut place = Place::new();
        place.cluster.objects.remove(&id);
        place.begin();
        place.seen.awaited = [Kind::Kustomization].into();
        assert_eq!(place.actions(), ["create"], "{id}");
    }
    // Nor did any before the adoption.
    for (adopted, actions) in [(true, vec![]), (false, vec!["create", "create"])] {
        let mut place = Place::new();
        place.cluster.history.adopted = adopted;
        place.without(&RIGHTS);
        place.seen.awaited = [Kind::Kustomization].into();
        assert_eq!(place.actions(), actions, "{adopted}");
    }
}

/// Nothing else may happen by then that would wake the agent.
#[test]
fn the_agent_looks_again_when_a_list_has_been_waited_for_long_enough() {
    let mut place = Place::new();
    place.without(&RIGHTS);
    place.seen.awaited = [Kind::Kustomization].into();
    place.seen.since = Some(place.cluster.now - FRESH);
    assert_eq!(place.actions(), [""; 0]);
    let next = place.plan().next_look;
    assert_eq!(next - place.cluster.now, Duration::MILLISECOND);
    place.cluster.now = next;
    assert_eq!(place.actions(), ["create", "create"]);
}
