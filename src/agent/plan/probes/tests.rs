use serde_json::{Value, json};

use super::*;
use crate::agent::engine::REQUESTED_AT;
use crate::agent::engine::argocd::PROBED_AT;
use crate::agent::plan::state::{OwnLook, OwnRead};
use crate::agent::plan::tests::Cluster;
use crate::clock::rfc3339;

mod applications;
mod beside;
mod told;

const SECOND: Duration = Duration::SECOND;

/// A working Flux whose source and sync were asked so long ago, and whether they answered.
fn asked(source: (Duration, bool), sync: (Duration, bool)) -> Cluster {
    let mut cluster = Cluster::working();
    let roots = [cluster.install.source.clone(), cluster.install.sync.clone()];
    for (id, (ago, answered)) in roots.iter().zip([source, sync]) {
        let sent = rfc3339(cluster.now - ago);
        let live = cluster.objects.get_mut(id).unwrap();
        live.fields["metadata"]["annotations"][REQUESTED_AT] = json!(sent);
        let answer = if answered { json!(sent) } else { json!("") };
        live.fields["status"]["lastHandledReconcileAt"] = answer;
    }
    cluster
}

/// Whom it asks, and in how long it looks again.
fn next(cluster: &Cluster) -> (Vec<ObjectId>, Duration) {
    let observed = cluster.observed();
    let (steps, at) = probes(cluster.now, &cluster.install, &observed, &cluster.history);
    let asked = steps.into_iter().map(|step| {
        assert_eq!((step.action, step.cause), (Action::Nudge, None));
        step.target
    });
    (asked.collect(), at - cluster.now)
}

#[test]
fn each_root_is_asked_in_its_time_and_the_source_first() {
    let fresh = (SECOND * 10, true);
    let every = Cluster::working().install.policy.probe_every;
    let [source, sync] = {
        let install = Cluster::working().install;
        [install.source, install.sync]
    };
    let nobody = || Vec::<ObjectId>::new();
    let soon = every - SECOND / 2;
    for (of_source, of_sync, expected) in [
        (fresh, fresh, (nobody(), every - SECOND * 10)),
        (fresh, (SECOND * 20, true), (nobody(), every - SECOND * 20)),
        ((soon, true), fresh, (nobody(), SECOND)),
        ((every, true), fresh, (vec![source.clone()], SPACING)),
        ((every, true), (every, true), (vec![source], SPACING)),
        (fresh, (every, true), (vec![sync], SPACING)),
        // Nobody is asked twice; what was not fetched cannot be applied.
        (fresh, (every, false), (nobody(), SECOND)),
        ((every, false), (every, true), (nobody(), SPACING)),
        // Looked at again as soon as the silence says something.
        (fresh, (SECOND * 20, false), (nobody(), SECOND * 71)),
        ((SECOND * 20, false), fresh, (nobody(), SPACING)),
        (fresh, (SECOND * 90, false), (nobody(), SECOND)),
    ] {
        let cluster = asked(of_source, of_sync);
        assert_eq!(next(&cluster), expected, "{of_source:?} {of_sync:?}");
    }
}

/// Argo CD looks by itself every minute or two: that it has not nobody else tells.
#[test]
fn the_root_application_is_looked_at_just_after_its_own_look_is_due() {
    let mut cluster = Cluster::working_of(EngineKind::Argocd);
    let (begun, every) = (cluster.now, cluster.install.policy.probe_every);
    let live = cluster.objects.get_mut(&cluster.install.sync).unwrap();
    live.fields["metadata"]["annotations"][PROBED_AT] = json!(rfc3339(begun));
    live.fields["status"]["reconciledAt"] = json!(rfc3339(begun));
    let observed = cluster.observed();
    let due = argocd::AGAIN + SECOND;
    for (ago, expected) in [(Duration::ZERO, due), (due - SECOND, due), (due, every)] {
        let (install, history) = (&cluster.install, &cluster.history);
        let looks = soonest(begun + ago, install, &observed, history);
        assert_eq!(looks.map(|at| at - begun), Some(expected), "{ago}");
    }
}

#[test]
fn nobody_is_asked_who_was_asked_a_moment_ago_or_cannot_answer() {
    let every = Cluster::working().install.policy.probe_every;
    let cluster = || asked((every, true), (every, true));
    for (ago, due) in [(SPACING - SECOND, false), (SPACING, true)] {
        let mut cluster = cluster();
        let source = cluster.install.source.clone();
        cluster
            .history
            .nudged
            .insert(source.clone(), cluster.now - ago);
        // While the source waits, the sync is next.
        let first = if due {
            source
        } else {
            cluster.install.sync.clone()
        };
        assert_eq!(next(&cluster), (vec![first], SPACING), "{ago}");
    }
    let mut down = cluster();
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let live = down.objects.get_mut(&id).unwrap();
    live.fields["status"]["availableReplicas"] = json!(0);
    assert_eq!(next(&down), (vec![], SPACING));
    // That the catalog moved is said to one that comes up, too.
    down.history.head = Some(("2".to_owned(), down.now));
    assert_eq!(next(&down), (vec![down.install.source.clone()], SPACING));
    let mut gone = cluster();
    gone.objects.remove(&gone.install.sync.clone());
    assert_eq!(next(&gone), (vec![], every));
    let mut unready = asked((SECOND, true), (every, true));
    let source = unready.install.source.clone();
    unready.objects.get_mut(&source).unwrap().fields["status"]["conditions"] = json!([]);
    assert_eq!(next(&unready), (vec![], SPACING));
}

/// F12, W14: a Git host that is away may be so for hours, and nobody but source-controller waits for it.
#[test]
fn a_kustomize_controller_is_asked_also_while_the_source_cannot_fetch() {
    let every = Cluster::working().install.policy.probe_every;
    let sync = Cluster::working().install.sync;
    for (status, answered, of_sync, expected) in [
        ("False", true, every, vec![sync.clone()]),
        ("False", true, SECOND, vec![]),
        ("False", false, every, vec![]),
        ("Unknown", true, every, vec![]),
    ] {
        let mut cluster = asked((SECOND * 10, answered), (of_sync, true));
        let source = cluster.install.source.clone();
        let live = cluster.objects.get_mut(&source).unwrap();
        live.fields["status"]["conditions"] = json!([{
            "type": "Ready", "status": status, "reason": "GitOperationFailed",
            "message": "dial tcp 10.0.0.1:22: connect: connection refused",
        }]);
        assert_eq!(next(&cluster), (expected, SPACING), "{status} {answered}");
    }
}

/// A write that a question does not know of is asked about.
#[test]
fn what_was_written_after_a_question_is_asked_about() {
    for (ago, due) in [(SECOND * 10, false), (SECOND * 9, true)] {
        let mut cluster = asked((SECOND * 10, true), (SECOND, true));
        cluster.history.last_write = Some(cluster.now - ago);
        let source = cluster.install.source.clone();
        let expected = if due { vec![source] } else { vec![] };
        assert_eq!(next(&cluster).0, expected, "{ago}");
    }
}

/// W13, W14: an engine that was refused, or found nobody, for long tries again much later by itself.
#[test]
fn a_source_that_could_not_read_is_asked_once_the_agent_can() {
    let refused = (
        "False",
        "ssh: handshake failed: ssh: unable to authenticate",
    );
    let away = ("False", "dial tcp 10.0.0.1:22: connect: connection refused");
    let asked_ago = SECOND * 20;
    for (said, answered, reads, due) in [
        (refused, true, Some(19), true),
        (away, true, Some(19), true),
        // It was asked since, or has not answered yet.
        (refused, true, Some(20), false),
        (refused, true, Some(21), false),
        (refused, false, Some(19), false),
        (refused, true, None, false),
        (("True", "stored artifact"), true, Some(19), false),
    ] {
        let mut cluster = asked((asked_ago, answered), (SECOND, true));
        let source = cluster.install.source.clone();
        let live = cluster.objects.get_mut(&source).unwrap();
        let (status, message) = said;
        live.fields["status"]["conditions"] = json!([
            {"type": "Ready", "status": status, "reason": "GitOperationFailed", "message": message}
        ]);
        let mut observed = cluster.observed();
        let read = reads.map(|ago| OwnRead {
            since: cluster.now - SECOND * ago,
            last: cluster.now,
        });
        observed.own_look = read.map_or(OwnLook::Failed, OwnLook::Read);
        let (steps, _) = probes(cluster.now, &cluster.install, &observed, &cluster.history);
        let expected = if due { vec![nudge(&source)] } else { vec![] };
        assert_eq!(steps, expected, "{said:?} {answered} {reads:?}");
    }
}

/// W13, F26: the engine is asked what it meets before the hub is asked to register the key again.
#[test]
fn a_source_is_asked_once_the_agent_itself_is_refused() {
    for (answered, refused, due) in [
        (true, Some(19), true),
        (true, Some(20), false),
        (true, Some(21), false),
        (false, Some(19), false),
        (true, None, false),
    ] {
        let cluster = asked((SECOND * 20, answered), (SECOND, true));
        let source = cluster.install.source.clone();
        let mut observed = cluster.observed();
        observed.own_look = refused.map_or(OwnLook::Failed, |ago| {
            OwnLook::Refused(cluster.now - SECOND * ago)
        });
        let (steps, _) = probes(cluster.now, &cluster.install, &observed, &cluster.history);
        let expected = if due { vec![nudge(&source)] } else { vec![] };
        assert_eq!(steps, expected, "{answered} {refused:?}");
    }
}

/// The answers after a commit to the engine are waited for: silence is what shows that it did harm.
#[test]
fn after_a_commit_to_the_engine_its_new_pod_is_asked_and_watched() {
    let id = ObjectId::new(Kind::Deployment, "flux-system", "kustomize-controller");
    let every = Cluster::working().install.policy.probe_every;
    for (changed, source, sync, asks, look) in [
        // Before its Pod can be new.
        (15, (10, true), (10, true), false, SPACING),
        (20, (0, true), (0, true), false, SPACING),
        (21, (0, true), (0, true), false, every),
        // The old Pod may have answered this.
        (20, (1, true), (1, true), true, SPACING),
        (21, (0, true), (0, false), false, SPACING),
        (299, (0, true), (0, false), false, SPACING),
        (300, (0, true), (0, false), false, LATE),
    ] {
        let ago = |(seconds, answered)| (SECOND * seconds, answered);
        let mut cluster = asked(ago(source), ago(sync));
        let applier = cluster.install.traits.applier;
        cluster.install.wanted.get_mut(&id).unwrap().git_owned = true;
        let live = cluster.objects.get_mut(&id).unwrap();
        live.written = Some(cluster.now - SECOND * changed);
        applier.clone_into(&mut live.writer);
        let source = cluster.install.source.clone();
        let expected = if asks { vec![source] } else { vec![] };
        assert_eq!(next(&cluster), (expected, look), "{changed}");
    }
}

/// A Pod mounts what was written a moment later, or in a minute or two.
#[test]
fn a_question_without_an_answer_is_asked_again_while_host_keys_arrive() {
    let fresh = (SECOND, true);
    for (written, asked_ago, due) in [(119, 5, true), (119, 4, false), (120, 5, false)] {
        let mut cluster = asked((SECOND * asked_ago, false), fresh);
        cluster.history.host_keys = Some(cluster.now - SECOND * written);
        let source = cluster.install.source.clone();
        let expected = if due { vec![source] } else { vec![] };
        assert_eq!(next(&cluster).0, expected, "{written} {asked_ago}");
    }
    let mut cluster = asked(fresh, fresh);
    cluster.history.host_keys = Some(cluster.now);
    assert_eq!(
        next(&cluster),
        (vec![], SPACING),
        "looked at until they are there"
    );
}

/// One that is not guarded may carry the word; one that is being deleted keeps it.
#[test]
fn only_guarded_objects_are_locked_and_only_before_they_are_deleted() {
    let locked = |id: &ObjectId, deleting: bool, word: Value| {
        let mut cluster = Cluster::working();
        let live = cluster.objects.get_mut(id).unwrap();
        live.fields["metadata"]["annotations"][ALLOW_DELETE] = word;
        live.deleting = deleting.then_some(cluster.now);
        let steps = locks(cluster.now, &cluster.install, &cluster.observed());
        let expected = Step {
            action: Action::Lock,
            target: id.clone(),
            cause: None,
        };
        assert!(steps.is_empty() || steps == [expected]);
        !steps.is_empty()
    };
    let install = Cluster::working().install;
    let namespace = ObjectId::new(Kind::Namespace, "", "flux-system");
    let service = ObjectId::new(Kind::Service, "flux-system", "source-controller");
    assert!(locked(&namespace, false, json!("for ever")));
    assert!(locked(&install.source, false, json!("for ever")));
    assert!(!locked(&namespace, true, json!("for ever")));
    assert!(!locked(&service, false, json!("for ever")));
    assert!(!locked(&namespace, false, Value::Null));
    let ahead = rfc3339(Cluster::working().now + Duration::HOUR);
    assert!(!locked(&namespace, false, json!(ahead)));
}

/// Else nobody knows why a deletion is refused as before. What is over was of use.
#[test]
fn a_word_that_never_allowed_anything_is_told_of() {
    let mut cluster = Cluster::working();
    let id = ObjectId::new(Kind::Namespace, "", "flux-system");
    let now = cluster.now;
    let mut told = |word: String| {
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["metadata"]["annotations"][ALLOW_DELETE] = json!(word);
        refused_word(now, &id, live)
    };
    let far = rfc3339(now + Duration::hours(25));
    let said = |word: &str, why: &str| {
        let text = format!(
            "Namespace flux-system: {ALLOW_DELETE}={word} {why}; it allows nothing and was taken away"
        );
        Some(text)
    };
    assert_eq!(told(far.clone()), said(&far, "is more than a day ahead"));
    let none = said("2h", "is no time as in RFC 3339 (UTC)");
    assert_eq!(told("2h".to_owned()), none);
    assert_eq!(told(rfc3339(now - Duration::HOUR)), None);
}
