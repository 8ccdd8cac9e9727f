use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::agent::engine::REQUESTED_AT;
use crate::agent::engine::argocd::{PROBED_AT, REFRESH};
use crate::agent::plan::tests::Cluster;
use crate::agent::plan::{Class, Plan};

const SECOND: Duration = Duration::SECOND;
/// The longest time without a look.
const LOOK: Duration = Duration::seconds(60);

/// A working engine whose controller of the sync object answers when it is told to.
struct Mute {
    cluster: Cluster,
    id: ObjectId,
    status: Value,
    /// The question that is answered next.
    read: String,
}

impl Mute {
    fn of(engine: EngineKind) -> Self {
        let cluster = Cluster::working_of(engine);
        let id = cluster.install.sync.clone();
        let status = cluster.objects[&id].fields["status"].clone();
        let mut mute = Self {
            cluster,
            id,
            status,
            read: String::new(),
        };
        mute.begin();
        mute
    }

    fn question(&self) -> String {
        let live = &self.cluster.objects[&self.id];
        let name = match self.id.kind {
            Kind::Application => PROBED_AT,
            _ => REQUESTED_AT,
        };
        live.annotation(name).unwrap_or_default().to_owned()
    }

    /// The controller reads the object and begins with it.
    fn begin(&mut self) {
        self.read = self.question();
    }

    /// It is done with what it read, and says so.
    fn end(&mut self) {
        if self.id.kind == Kind::Application {
            self.status["reconciledAt"] = json!(crate::clock::rfc3339(self.cluster.now));
        } else {
            self.status["lastHandledReconcileAt"] = json!(self.read);
            let done = crate::clock::rfc3339(self.cluster.now);
            self.status["history"] = json!([{"lastReconciled": done}]);
        }
        let asked_since = self.read != self.question();
        let live = self.cluster.objects.get_mut(&self.id).unwrap();
        live.fields["status"] = self.status.clone();
        if !asked_since && self.id.kind == Kind::Application {
            let annotations = live.fields["metadata"]["annotations"].as_object_mut();
            annotations.unwrap().remove(REFRESH);
        }
        self.begin();
    }

    /// A Service goes, and is written again.
    fn damage(&mut self) {
        let services = |id: &&ObjectId| id.kind == Kind::Service;
        let id = self.cluster.install.wanted.keys().find(services).unwrap();
        self.cluster.objects.remove(&id.clone());
    }

    /// One round at this time, then the next one no later than `until`.
    fn round(&mut self, until: OffsetDateTime) -> Plan {
        let asked = self.question();
        let refresh = self.cluster.objects[&self.id].annotation(REFRESH).is_some();
        let plan = self.cluster.round();
        let again = self.question() != asked;
        let live = self.cluster.objects.get_mut(&self.id).unwrap();
        live.fields["status"] = self.status.clone();
        if self.id.kind == Kind::Application && (refresh || again) {
            live.fields["metadata"]["annotations"][REFRESH] = json!("normal");
        }
        self.cluster.now = self.cluster.now.min(until);
        plan
    }

    /// When its controller is called wedged first, of what happens in turn.
    fn named(&mut self, events: impl Iterator<Item = (Duration, Event)>) -> Option<OffsetDateTime> {
        for (gap, event) in events {
            let at = self.cluster.now + gap;
            while self.cluster.now < at {
                let now = self.cluster.now;
                let plan = self.round(at);
                let mut found = plan.findings.iter();
                if found.any(|f| f.class == Class::QueueWedged && f.object == self.id) {
                    return Some(now);
                }
            }
            match event {
                Event::Write => self.damage(),
                Event::Answer => self.end(),
            }
        }
        None
    }

    /// When a question was asked first after this many writes; all is answered until then.
    fn first(&mut self) -> OffsetDateTime {
        self.damage();
        let before = self.question();
        while self.question() == before {
            self.round(self.cluster.now + LOOK);
        }
        self.begin();
        crate::clock::parse_rfc3339(&self.question()).unwrap()
    }
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Write,
    Answer,
}

const ENGINES: [EngineKind; 2] = [EngineKind::Flux, EngineKind::Argocd];

/// W12: something is fought over, and mended once a minute; each time the engine is asked anew.
#[test]
fn a_controller_that_hangs_is_named_although_it_is_asked_ever_anew() {
    for engine in ENGINES {
        let mut mute = Mute::of(engine);
        let first = mute.first();
        let writes = std::iter::repeat_n((SECOND * 60, Event::Write), 30);
        let named = mute.named(writes).map(|at| at - first);
        let within = health::WEDGED..=health::WEDGED + LOOK;
        assert!(named.is_some_and(|at| within.contains(&at)), "{named:?}");
    }
}

/// An answer to a question is one, although there is another since.
#[test]
fn an_answer_to_an_earlier_question_is_a_sign_of_life() {
    let mut mute = Mute::of(EngineKind::Flux);
    mute.first();
    let turns = [(SECOND * 40, Event::Write), (SECOND * 40, Event::Answer)];
    let named = mute.named(turns.into_iter().cycle().take(40));
    assert_eq!(named, None);
}

/// W12: what it could not answer while it was away is no silence, and the time that it was asked in before it was is.
#[test]
fn the_time_in_which_no_answer_could_be_given_does_not_count() {
    let mut mute = Mute::of(EngineKind::Argocd);
    let first = mute.first();
    let away = |mute: &mut Mute, is_away: bool| {
        let live = mute.cluster.objects.get_mut(&mute.id).unwrap();
        live.fields["metadata"]["annotations"][SKIP] = json!(is_away.to_string());
    };
    let mut owed = Vec::new();
    for (at, is_away) in [(30, true), (200, false), (220, false)] {
        let observed = mute.cluster.observed();
        let (now, install) = (first + SECOND * at, &mute.cluster.install);
        mute.cluster.history.saw_silence(now, install, &observed);
        owed.push(mute.cluster.history.silent[&mute.id].since - first);
        away(&mut mute, is_away);
        let observed = mute.cluster.observed();
        let install = &mute.cluster.install;
        mute.cluster.history.saw_silence(now, install, &observed);
    }
    assert_eq!(owed, [Duration::ZERO, SECOND * 170, SECOND * 170]);
}

/// A new Pod was asked nothing before it was there, and other objects have nothing to do with those before them.
#[test]
fn another_pod_and_another_object_owe_nothing_of_before() {
    let mut mute = Mute::of(EngineKind::Flux);
    let first = mute.first();
    let controller = mute.cluster.install.controller(&mute.id);
    let see = |mute: &mut Mute, at: i32| {
        let observed = mute.cluster.observed();
        let (now, install) = (first + SECOND * at, &mute.cluster.install);
        mute.cluster.history.saw_silence(now, install, &observed);
        mute.cluster.history.silent[&mute.id].since - first
    };
    assert_eq!(see(&mut mute, 50), Duration::ZERO);
    let available = |mute: &mut Mute, replicas: i64| {
        let live = mute.cluster.objects.get_mut(&controller).unwrap();
        live.fields["status"]["availableReplicas"] = json!(replicas);
    };
    // A blip of the Deployment with the Pod in place is none of the controller.
    available(&mut mute, 0);
    assert_eq!(see(&mut mute, 51), Duration::ZERO);
    available(&mut mute, 1);
    assert_eq!(see(&mut mute, 52), SECOND);
    mute.cluster.pods.get_mut(&controller.name).unwrap().running = Some(first + SECOND * 60);
    available(&mut mute, 0);
    assert_eq!(see(&mut mute, 70), SECOND * 70);
    available(&mut mute, 1);
    assert_eq!(see(&mut mute, 80), SECOND * 80);
    assert_eq!(see(&mut mute, 90), SECOND * 80);
    "other".clone_into(&mut mute.cluster.objects.get_mut(&mute.id).unwrap().uid);
    assert_eq!(see(&mut mute, 91), Duration::ZERO, "by its own question");
}

/// W12: whether it has answered meanwhile is seen when the API server tells of it again.
#[test]
fn what_cannot_be_seen_owes_on_and_what_is_gone_owes_nothing() {
    let mut mute = Mute::of(EngineKind::Flux);
    let now = mute.first();
    let observed = mute.cluster.observed();
    let install = mute.cluster.install.clone();
    mute.cluster.history.saw_silence(now, &install, &observed);
    let before = mute.cluster.history.silent.clone();
    assert!(before.contains_key(&mute.id));
    for known in [false, true] {
        let mut observed = observed.clone();
        observed.objects.remove(&mute.id);
        if !known {
            observed.scopes.remove(&mute.id.kind);
        }
        let mut history = mute.cluster.history.clone();
        history.saw_silence(now, &install, &observed);
        let owes = history.silent.get(&mute.id);
        let expected = before.get(&mute.id).filter(|_| !known);
        assert_eq!(owes, expected, "{known}");
    }
}

/// W18: of the moment of the change it is not known which version was asked.
#[test]
fn only_a_question_from_after_a_change_is_owed_for_it() {
    let mut mute = Mute::of(EngineKind::Flux);
    let sent = mute.first();
    let (live, history) = (&mute.cluster.objects[&mute.id], &mute.cluster.history);
    let now = sent + SECOND * 90;
    for (changed, owed) in [
        (None, true),
        (Some(sent - SECOND), true),
        (Some(sent), false),
        (Some(sent + SECOND), false),
    ] {
        let since = history.owed_after(now, (&mute.id, live), changed);
        assert_eq!(since.is_some(), owed, "{changed:?}");
    }
}

/// Bounded by the install, however many there were.
#[test]
fn what_is_answered_or_gone_or_of_no_install_is_forgotten() {
    let mut mute = Mute::of(EngineKind::Flux);
    mute.first();
    mute.round(mute.cluster.now);
    let silence = mute.cluster.history.silent[&mute.id].clone();
    let others = (0..100).map(|n| {
        let id = ObjectId::new(Kind::Kustomization, "apps", &n.to_string());
        (id, silence.clone())
    });
    mute.cluster.history.silent.extend(others);
    mute.round(mute.cluster.now);
    let silent: Vec<&ObjectId> = mute.cluster.history.silent.keys().collect();
    assert_eq!(silent, [&mute.id]);
    mute.end();
    let observed = mute.cluster.observed();
    let (now, install) = (mute.cluster.now, mute.cluster.install.clone());
    mute.cluster.history.saw_silence(now, &install, &observed);
    assert_eq!(mute.cluster.history.silent, [].into());
}

fn engines() -> impl Strategy<Value = EngineKind> {
    prop::sample::select(&ENGINES[..])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// W12: whatever is written meanwhile.
    #[test]
    fn a_controller_that_never_answers_is_named_in_time(
        engine in engines(), gaps in prop::collection::vec(1_i32..120, 1..20),
    ) {
        let mut mute = Mute::of(engine);
        let first = mute.first();
        let ever = gaps.iter().cycle().take(100);
        let named = mute.named(ever.map(|gap| (SECOND * *gap, Event::Write)));
        let took = named.map(|at| at - first);
        let within = health::WEDGED..=health::WEDGED + LOOK;
        prop_assert!(took.is_some_and(|at| within.contains(&at)), "{took:?}");
    }

    /// W12: one that takes less than the patience for each turn, and answers what was asked when that began.
    #[test]
    fn a_controller_that_answers_is_never_named(
        engine in engines(), turns in prop::collection::vec(1_i32..85, 1..12), gaps in prop::collection::vec(1_i32..90, 1..40),
    ) {
        let mut mute = Mute::of(engine);
        mute.first();
        let mut next = [turns[0], gaps[0]];
        let (mut ended, mut written) = (0, 0);
        let events = std::iter::from_fn(|| {
            let gap = next[0].min(next[1]);
            let event = if next[0] == gap { Event::Answer } else { Event::Write };
            next = next.map(|at| at - gap);
            match event {
                Event::Answer => {
                    ended += 1;
                    next[0] = turns[ended % turns.len()];
                }
                Event::Write => {
                    written += 1;
                    next[1] = gaps[written % gaps.len()];
                }
            }
            Some((SECOND * gap, event))
        });
        let named = mute.named(events.take(60));
        prop_assert_eq!(named, None);
    }
}
