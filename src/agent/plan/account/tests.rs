use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::agent::plan::Action;
use crate::agent::plan::tests::Cluster;

fn account() -> ObjectId {
    ObjectId::new(Kind::ServiceAccount, "flux-system", "source-controller")
}

/// F2: its token is of the one that was there before.
#[test]
fn a_pod_that_is_older_than_its_service_account_holds_a_void_token() {
    let id = account();
    for (made, pod, told) in [(0, -1, true), (0, 0, false), (0, 1, false), (1, -1, false)] {
        let mut cluster = Cluster::working();
        let at = |seconds| cluster.now + Duration::seconds(seconds);
        let (made, pod) = (at(made), at(pod));
        cluster.objects.get_mut(&id).unwrap().created = Some(made);
        let of_pod = cluster.pods.get_mut("source-controller").unwrap();
        (of_pod.created, of_pod.ready) = (Some(pod), true);
        let expected: &[_] = if told {
            &[(Class::ServiceAccountMissing, id.clone())]
        } else {
            &[]
        };
        let (observed, mut found) = (cluster.observed(), Vec::new());
        let (install, history) = (&cluster.install, &cluster.history);
        outlived(cluster.now, install, &observed, history, &mut found);
        let found: Vec<_> = found.into_iter().map(|f| (f.class, f.object)).collect();
        assert_eq!(found, expected, "{made} {pod}");
    }
}

/// F2: scanners advise it, and the engine ends with its next Pod.
#[test]
fn an_account_that_gives_no_token_is_told_of_where_pods_need_one() {
    let id = account();
    let controller = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    for (gives, of_pods, by_git, told) in [
        (json!(false), None, false, true),
        (json!(false), Some(true), false, false),
        (json!(false), Some(false), false, false),
        (json!(false), None, true, false),
        (json!(true), None, false, false),
        (Value::Null, None, false, false),
    ] {
        let mut cluster = Cluster::working();
        let applier = cluster.install.traits.applier;
        let writer = if by_git { applier } else { "kubectl" };
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["automountServiceAccountToken"] = gives.clone();
        writer.clone_into(&mut live.writer);
        let all = &mut cluster.install.wanted;
        all.get_mut(&id).unwrap().git_owned = by_git;
        let wanted = all.get_mut(&controller).unwrap();
        let mut expect = wanted.expect.as_ref().clone();
        if let Some(asks) = of_pods {
            expect["spec"]["template"]["spec"]["automountServiceAccountToken"] = json!(asks);
        }
        wanted.expect = Arc::new(expect);
        let (observed, mut found) = (cluster.observed(), Vec::new());
        let (install, history) = (&cluster.install, &cluster.history);
        outlived(cluster.now, install, &observed, history, &mut found);
        let text = "differs at /automountServiceAccountToken; its next Pods get no token";
        let found: Vec<_> = found
            .iter()
            .map(|f| (f.class, &f.object, f.evidence.as_str()))
            .collect();
        let expected: &[_] = if told {
            &[(Class::ObjectAltered, &id, text)]
        } else {
            &[]
        };
        assert_eq!(found, expected, "{gives} {of_pods:?} {by_git}");
    }
}

/// Who has both say so, as scanners advise it, has a controller that works.
#[test]
fn an_account_that_gives_no_token_is_left_alone_where_the_pods_ask_for_theirs() {
    let id = account();
    let controller = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    for (asks, told) in [(true, false), (false, true)] {
        let mut cluster = Cluster::working();
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["automountServiceAccountToken"] = json!(false);
        let live = cluster.objects.get_mut(&controller).unwrap();
        live.fields["spec"]["template"]["spec"]["automountServiceAccountToken"] = json!(asks);
        let (observed, mut found) = (cluster.observed(), Vec::new());
        let (install, history) = (&cluster.install, &cluster.history);
        outlived(cluster.now, install, &observed, history, &mut found);
        assert_eq!(!found.is_empty(), told, "{asks}");
    }
}

/// F2: made within one second, the Pod may hold a token of the account before.
#[test]
fn a_pod_as_old_as_its_account_that_does_not_work_is_told_from_one_that_does() {
    let cluster = Cluster::working();
    let made = cluster.observed().objects[&account()].created.unwrap();
    let second = Duration::SECOND;
    let pod = |uid: &str, created, ready, running: i64, restarts| Pod {
        uid: uid.to_owned(),
        app: "source-controller".to_owned(),
        created: Some(created),
        ready,
        running: Some(made + Duration::seconds(running)),
        restarts,
        ..Pod::default()
    };
    let good = pod("good", made, true, 5, 0);
    // One that waits for the Lease of the Pod before has not failed yet.
    let (slow, waits) = (
        pod("slow", made, false, 5, 0),
        pod("waits", made, false, 14, 0),
    );
    let ended = pod("ended", made, false, 59, 1);
    let before = pod("before", made - second, true, 5, 0);
    let after = pod("after", made + second, false, 5, 3);
    // Two API servers' clocks differ.
    let later = made + second * 2;
    let ahead = pod("ahead", later, true, 5, 0);
    let none: &[&str] = &[];
    for (pods, voided, sound) in [
        (vec![&good], none, None),
        (vec![&waits], none, None),
        (vec![&after], none, None),
        (vec![&slow], none, Some(made + second)),
        (vec![&ended], none, Some(made + second)),
        (vec![&before, &good], none, Some(made)),
        (vec![&before, &ended], none, Some(made + second)),
        // It was there when the account was not, whatever it looks like.
        (vec![&waits], &["waits"], Some(made + second)),
        (vec![&good], &["good", "gone"], Some(made + second)),
        (vec![&good, &ahead], &["ahead"], Some(later + second)),
        (vec![&good, &after], &["gone"], None),
    ] {
        let mut observed = cluster.observed();
        let named = pods
            .iter()
            .map(|pod| (pod.uid.clone(), Arc::new((*pod).clone())));
        observed.pods = named.collect();
        let mut history = History::default();
        let voided: BTreeSet<String> = voided.iter().map(|&uid| uid.to_owned()).collect();
        history.voided.insert(account(), voided);
        let now = made + Duration::seconds(60);
        let told = sound_from(now, &account(), &observed, &history);
        assert_eq!(told, sound, "{pods:?} {history:?}");
        let early = sound_from(made - second, &account(), &observed, &history);
        assert_eq!(early, None, "the clocks differ");
    }
}

/// F2: the agent makes the account within the second of its Pod, which it has seen without one.
#[test]
fn a_pod_that_was_there_without_its_account_is_restarted_at_once() {
    let mut cluster = Cluster::working();
    let id = account();
    let began = cluster.now;
    let pod = cluster.pods.get_mut("source-controller").unwrap();
    (pod.created, pod.running) = (Some(began), Some(began));
    let void = pod.uid.clone();
    cluster.objects.remove(&id);
    for _ in 0..10 {
        cluster.round();
    }
    let before = began + Duration::SECOND;
    let done = cluster.steps.iter().filter(|(_, step)| step.target == id);
    let done: Vec<_> = done.map(|(at, step)| (*at, step.action.clone())).collect();
    let [(made, Action::Create), (at, restart)] = &done[..] else {
        panic!("{done:?}");
    };
    assert_eq!(*restart, Action::RestartPods { before });
    assert!(
        *made == began && *at - began <= Duration::seconds(5),
        "{done:?}"
    );
    assert_ne!(cluster.pods["source-controller"].uid, void);
    let pods: BTreeSet<String> = [void].into();
    assert_eq!(cluster.history.voided, [(id, pods)].into());
}
