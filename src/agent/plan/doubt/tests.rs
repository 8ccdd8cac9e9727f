use serde_json::{Value, json};

use super::*;
use crate::agent::engine::argocd::PROBED_AT;
use crate::agent::plan::tests::Cluster;
use crate::agent::plan::{Action, plan};
use crate::clock::rfc3339;
use crate::wire::api::EngineKind;

const REFUSED: &str =
    "failed to list refs: ssh: handshake failed: ssh: unable to authenticate, attempted methods";

/// Argo CD, and what it took back.
struct Argo {
    cluster: Cluster,
    taken_back: Option<TakenBack>,
}

impl Argo {
    fn new() -> Self {
        let cluster = Cluster::working_of(EngineKind::Argocd);
        let taken_back = None;
        let mut argo = Self {
            cluster,
            taken_back,
        };
        argo.is_asked();
        argo.later(1).looks(None);
        argo
    }

    fn later(&mut self, seconds: i64) -> &mut Self {
        self.cluster.now += Duration::seconds(seconds);
        self
    }

    fn root(&mut self) -> &mut Object {
        let root = self.cluster.install.sync.clone();
        self.cluster.objects.get_mut(&root).unwrap()
    }

    /// It has looked just now, and says this.
    fn looks(&mut self, says: Option<&str>) {
        let now = self.cluster.now;
        let root = self.root();
        let before = root.clone();
        let conditions = says.map(|text| json!({"type": "ComparisonError", "message": text}));
        let conditions: Vec<Value> = conditions.into_iter().collect();
        root.fields["status"]["conditions"] = json!(conditions);
        root.fields["status"]["reconciledAt"] = json!(rfc3339(now));
        let annotations = root.fields["metadata"]["annotations"].as_object_mut();
        annotations.unwrap().remove(REFRESH);
        let told = taken_back(&before, root, now);
        if told.is_some() {
            self.taken_back = told;
        }
    }

    fn is_asked(&mut self) {
        let (now, root) = (self.cluster.now, self.cluster.install.sync.clone());
        self.cluster.history.nudged.insert(root, now);
        let annotations = &mut self.root().fields["metadata"]["annotations"];
        annotations[PROBED_AT] = json!(rfc3339(now));
        annotations[REFRESH] = json!("normal");
    }

    /// Whether the refusal is a fault now, and whether Argo CD is to be asked.
    fn judged(&mut self) -> (bool, bool) {
        let now = self.cluster.now;
        let mut observed = self.cluster.observed();
        observed.taken_back.clone_from(&self.taken_back);
        let plan = plan(now, &self.cluster.install, &observed, &self.cluster.history);
        self.cluster.history.saw(now, &plan);
        let refused = |f: &&Finding| f.class == Class::KeyRevoked;
        let refused = plan.findings.iter().filter(refused).count();
        let asked = plan.steps.iter().any(|s| s.action == Action::Nudge);
        (refused == 1, asked)
    }
}

/// W13: Argo CD showed the refusal for less than a second, and then what it had read before. It was called `KeyRevoked` 150 s later.
#[test]
fn a_refusal_that_is_taken_back_unasked_is_asked_about_and_goes_on() {
    let mut argo = Argo::new();
    let began = argo.later(10).cluster.now;
    argo.looks(Some(REFUSED));
    assert_eq!(argo.judged(), (true, false));
    argo.later(1).looks(None);
    assert_eq!(argo.judged(), (true, true));
    argo.is_asked();
    assert_eq!(argo.judged(), (true, false), "it is asked once");
    argo.later(1).looks(Some(REFUSED));
    assert_eq!(argo.judged(), (true, false));
    // By itself it takes what it had read before again, a minute later.
    argo.later(60).looks(None);
    assert_eq!(argo.judged(), (true, true));
    let key = (Class::KeyRevoked, argo.cluster.install.sync.clone());
    let since = argo.cluster.history.faults[&key].since;
    assert_eq!(since, Some(began), "its debounce never began anew");
    argo.is_asked();
    argo.later(1).looks(None);
    assert_eq!(argo.judged(), (false, false));
}

/// Between two questions there are five seconds, as always; one that went unseen is asked again.
#[test]
fn a_question_that_was_taken_away_unseen_is_asked_again_within_bounds() {
    let mut argo = Argo::new();
    argo.later(10).looks(Some(REFUSED));
    argo.later(1).looks(None);
    let mut asked = Vec::new();
    for second in 0..240 {
        if argo.judged().1 {
            asked.push(second);
            argo.is_asked();
            let annotations = argo.root().fields["metadata"]["annotations"].as_object_mut();
            annotations.unwrap().remove(REFRESH);
        }
        argo.later(1);
    }
    let most = LASTS.whole_seconds() / 5;
    assert!(asked.starts_with(&[0, 5, 10]), "{asked:?}");
    let count = i64::try_from(asked.len()).unwrap();
    assert!(count <= most + 2, "{asked:?}");
}

/// H17, W13: an Argo CD that answers within the second of each question was asked in vain for three minutes.
#[test]
fn the_second_answer_counts_also_in_the_second_of_its_question() {
    let mut argo = Argo::new();
    argo.later(10).looks(Some(REFUSED));
    argo.later(1).looks(None);
    for expected in [(true, false), (false, false)] {
        assert_eq!(argo.judged(), (true, true));
        argo.is_asked();
        argo.looks(None);
        assert_eq!(argo.judged(), expected);
        argo.later(5);
    }
}

#[test]
fn a_refusal_that_nobody_answers_for_stands_for_minutes_only() {
    let mut argo = Argo::new();
    argo.later(10).looks(Some(REFUSED));
    argo.later(1).looks(None);
    argo.is_asked();
    argo.later(LASTS.whole_seconds() - 1);
    assert!(argo.judged().0);
    argo.later(1);
    assert!(!argo.judged().0);
}

/// W13: the hub registered the key again, and the answer says so.
#[test]
fn an_answer_ends_a_refusal_at_once() {
    let mut argo = Argo::new();
    argo.later(10).looks(Some(REFUSED));
    argo.later(5).is_asked();
    argo.later(1).looks(None);
    assert_eq!(argo.judged(), (false, false));
}

#[test]
fn only_a_refusal_of_the_same_root_is_taken_back() {
    let now = Argo::new().cluster.now;
    let says = |message: Option<&str>, uid: &str| {
        let mut argo = Argo::new();
        argo.looks(message);
        argo.root().uid = uid.to_owned();
        argo.root().clone()
    };
    let away = "failed to list refs: dial tcp 10.0.0.1:22: connect: connection refused";
    for (before, after, uid, expected) in [
        (Some(REFUSED), None, "a", true),
        // That look did get as far as the network.
        (Some(REFUSED), Some(away), "a", false),
        (Some(REFUSED), Some(REFUSED), "a", false),
        (Some(away), None, "a", false),
        (None, None, "a", false),
        (Some(REFUSED), None, "b", false),
    ] {
        let told = taken_back(&says(before, "a"), &says(after, uid), now);
        assert_eq!(told.is_some(), expected, "{before:?} {after:?} {uid}");
    }
}

/// It was said before the look that may show that it is over.
#[test]
fn a_refusal_that_is_taken_back_is_told_as_one_of_before() {
    let mut argo = Argo::new();
    argo.later(10).looks(Some(REFUSED));
    argo.later(1).looks(None);
    let (now, id) = (argo.cluster.now, argo.cluster.install.sync.clone());
    let seen = Observed {
        taken_back: argo.taken_back.clone(),
        ..Observed::default()
    };
    let live = argo.root().clone();
    let text = format!("ComparisonError: {REFUSED}");
    let expected = Finding {
        recalled: true,
        ..Finding::new(Class::KeyRevoked, &id, text)
    };
    assert_eq!(found(now, &seen, (&id, &live)), Some(expected));
}

/// Who stops it, or takes it away, gets no answer of it.
#[test]
fn a_root_that_is_stopped_or_goes_owes_nothing() {
    let mut argo = Argo::new();
    argo.later(10).looks(Some(REFUSED));
    argo.later(1).looks(None);
    let now = argo.cluster.now;
    let seen = Observed {
        taken_back: argo.taken_back.clone(),
        ..Observed::default()
    };
    let live = argo.root().clone();
    assert!(asks(now, &seen, &live));
    let mut stopped = live.clone();
    stopped.fields["metadata"]["annotations"][SKIP] = json!("true");
    let mut dies = live.clone();
    dies.deleting = Some(now);
    let mut other = live;
    other.uid = "another".to_owned();
    for root in [stopped, dies, other] {
        assert!(!asks(now, &seen, &root), "{root:?}");
    }
}
