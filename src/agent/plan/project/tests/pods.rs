//! What is kept of a Pod.

use time::macros::datetime;

use super::*;
use crate::agent::plan::Pod;

/// F4, F5, F6: a Pod has containers beside the engine's own, as a mesh's, and some that ran before it.
#[test]
fn a_pod_tells_of_the_container_that_is_stopped() {
    let status = |image: &str, reason: Option<&str>, code: Option<i64>| {
        let state = match reason {
            Some(reason) => json!({"waiting": {"reason": reason, "message": image}}),
            None => json!({"running": {"startedAt": "2026-01-02T03:04:05Z"}}),
        };
        let ended = code.map(|code| json!({"exitCode": code, "reason": "Error"}));
        json!({
            "name": image, "image": image, "imageID": "", "ready": false, "restartCount": 1,
            "state": state, "lastState": {"terminated": ended},
        })
    };
    let creating = Some("ContainerCreating");
    for (before, containers, expected) in [
        (
            vec![status("init", None, Some(0))],
            vec![status("engine", Some("ImagePullBackOff"), None)],
            ("engine", "ImagePullBackOff", None),
        ),
        (
            vec![],
            vec![
                status("mesh", creating, Some(1)),
                status("engine", Some("CrashLoopBackOff"), Some(2)),
            ],
            ("engine", "CrashLoopBackOff", Some(2)),
        ),
        (
            vec![status("init", Some("CrashLoopBackOff"), Some(3))],
            vec![status("engine", Some("PodInitializing"), None)],
            ("init", "CrashLoopBackOff", Some(3)),
        ),
        (
            vec![],
            vec![status("engine", creating, None)],
            ("engine", "ContainerCreating", None),
        ),
    ] {
        let live = json!({
            "metadata": {"name": "x", "namespace": "flux-system"},
            "status": {"initContainerStatuses": before, "containerStatuses": containers},
        });
        let pod = pod(serde_json::from_value(live).unwrap());
        let (reason, message) = pod.waiting.unwrap();
        let code = pod.ended.map(|(code, _)| code);
        let (image, why, ended) = expected;
        assert_eq!((reason.as_str(), code), (why, ended));
        assert_eq!((pod.image.as_str(), message.as_str()), (image, image));
    }
}

/// What is kept of a Pod with this status.
fn kept(status: &Value) -> Pod {
    let live = json!({
        "metadata": {
            "name": "x", "namespace": "flux-system", "uid": "u", "creationTimestamp": "2026-01-02T03:04:00Z",
            "labels": {"app": "source-controller", "controller-revision-hash": "r"},
        },
        "status": status,
    });
    pod(serde_json::from_value(live).unwrap())
}

/// One that has nothing to say.
fn quiet() -> Pod {
    Pod {
        uid: "u".to_owned(),
        app: "source-controller".to_owned(),
        created: Some(datetime!(2026-01-02 03:04:00 UTC)),
        revision: "r".to_owned(),
        ..Pod::default()
    }
}

/// What a controller is asked before that is asked of the Pod before it.
#[test]
fn a_pod_runs_since_the_last_of_its_containers_started() {
    let started = |second: u8| {
        let at = format!("2026-01-02T03:04:{second:02}Z");
        json!({"running": {"startedAt": at}})
    };
    let creating = json!({"waiting": {"reason": "ContainerCreating"}});
    let waits = ("ContainerCreating".to_owned(), String::new());
    let last = Some(datetime!(2026-01-02 03:04:07 UTC));
    for (all, ready, running, waiting) in [
        ([started(5), started(7)], "True", last, None),
        ([started(7), started(5)], "False", last, None),
        ([started(7), creating], "False", None, Some(waits)),
    ] {
        let containers = all.map(|state| {
            json!({
                "name": "x", "image": "i", "imageID": "", "ready": true, "restartCount": 2, "state": state,
            })
        });
        let status = json!({
            "phase": "Running", "podIP": "10.0.0.1", "containerStatuses": containers,
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready}],
        });
        let expected = Pod {
            address: "10.0.0.1".to_owned(),
            running,
            ready: ready == "True",
            waiting,
            restarts: 4,
            image: "i".to_owned(),
            ..quiet()
        };
        assert_eq!(kept(&status), expected);
    }
}

/// Kubernetes adds the grace to when it was told to end.
#[test]
fn a_pod_that_goes_tells_by_when_it_has_to_be_gone() {
    let live = json!({
        "metadata": {
            "name": "x", "namespace": "flux-system", "uid": "u", "creationTimestamp": "2026-01-02T03:04:00Z",
            "deletionTimestamp": "2026-01-02T03:14:00Z", "deletionGracePeriodSeconds": 600,
            "labels": {"app": "source-controller", "controller-revision-hash": "r"},
        },
    });
    let expected = Pod {
        deleting: true,
        ends: Some(datetime!(2026-01-02 03:14:00 UTC)),
        ..quiet()
    };
    assert_eq!(pod(serde_json::from_value(live).unwrap()), expected);
}

/// No node takes it, or its node threw it out.
#[test]
fn a_pod_tells_why_it_does_not_begin_and_why_it_ended_for_good() {
    let scheduled = |said: Value| {
        let ready = json!({"type": "Ready", "status": "False", "message": "not ready"});
        json!({"phase": "Pending", "conditions": [ready, said]})
    };
    let unschedulable = |why: &str| Pod {
        unschedulable: Some(why.to_owned()),
        ..quiet()
    };
    let failed = |why: &str| Pod {
        failed: Some(why.to_owned()),
        ..quiet()
    };
    for (status, expected) in [
        (
            scheduled(json!({"type": "PodScheduled", "status": "False", "message": "0/3 nodes"})),
            unschedulable("0/3 nodes"),
        ),
        (
            scheduled(json!({"type": "PodScheduled", "status": "False"})),
            unschedulable("no node takes it"),
        ),
        (
            json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}),
            failed("Evicted: low on memory"),
        ),
        (json!({"phase": "Failed"}), failed("")),
        (json!({"phase": "Pending", "reason": "x"}), quiet()),
    ] {
        assert_eq!(kept(&status), expected, "{status}");
    }
}
