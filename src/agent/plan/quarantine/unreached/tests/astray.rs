//! Who goes on with a fetch at the address that a held source-controller told.

use serde_json::json;

use super::*;

/// A fetch that began before source-controller was held, and goes on although the mended one serves: when, in seconds before now.
#[derive(Clone, Copy)]
struct Fetch {
    since: i64,
    held: i64,
    up: i64,
    /// Where the source says that its artifact is.
    at: &'static str,
    fetcher: i64,
    lifted: bool,
}

const ASTRAY: Fetch = Fetch {
    since: 60,
    held: 12,
    up: 8,
    at: "http://sc.flux-system.svc./gitrepository",
    fetcher: 3600,
    lifted: false,
};

fn while_astray(fetch: Fetch) -> Cluster {
    let mut cluster = changed(EngineKind::Flux);
    fetches(&mut cluster, fetch.since);
    let at = |seconds| ago(&cluster, seconds);
    let [held, up, asks] = [fetch.held, fetch.up, fetch.fetcher].map(at);
    let word = json!({
        "revision": "main@sha1:1", "since": rfc3339(held), "reason": "", "attempt": 1,
        "lifted": fetch.lifted.then(|| rfc3339(held)),
    });
    for pod in cluster.pods.values_mut() {
        let serves = pod.app == SOURCE;
        pod.running = Some(if serves { up } else { asks });
    }
    let live = cluster.objects.get_mut(&deployment(SOURCE)).unwrap();
    let marked = json!({ quarantine::HELD: word.to_string() });
    live.fields["metadata"]["annotations"] = marked;
    let args = json!(["--storage-adv-addr=sc.$(RUNTIME_NAMESPACE).svc."]);
    live.fields["spec"]["template"]["spec"]["containers"][0]["args"] = args;
    let source = cluster.install.source.clone();
    let live = cluster.objects.get_mut(&source).unwrap();
    live.fields["status"]["artifact"] = json!({ "url": fetch.at });
    cluster
}

fn fetched_astray(fetch: Fetch) -> Option<Finding> {
    let cluster = while_astray(fetch);
    let observed = cluster.observed();
    let id = &cluster.install.sync;
    let root = &observed.objects[id];
    astray(cluster.now, &cluster.install, &observed, (id, root))
}

/// W18, F10: who fetches at the address of the held version is started anew, once; a download that another change cut off is left
/// to its next try.
#[test]
fn a_fetch_at_the_address_of_a_held_version_is_not_waited_for() {
    for (what, fetch, expected) in [
        ("as it is", ASTRAY, true),
        (
            "begun since",
            Fetch {
                since: 46,
                held: 47,
                ..ASTRAY
            },
            false,
        ),
        (
            "for a moment",
            Fetch {
                since: 45,
                ..ASTRAY
            },
            false,
        ),
        (
            "given back",
            Fetch {
                lifted: true,
                ..ASTRAY
            },
            false,
        ),
        ("the Pod of before", Fetch { up: 13, ..ASTRAY }, false),
        (
            "started anew",
            Fetch {
                fetcher: 59,
                ..ASTRAY
            },
            false,
        ),
        (
            "not told yet",
            Fetch {
                at: "http://nowhere/gitrepository",
                ..ASTRAY
            },
            false,
        ),
        (
            "told otherwise",
            Fetch {
                held: 40,
                up: 31,
                at: "http://10.0.0.7:9090/gitrepository",
                ..ASTRAY
            },
            true,
        ),
    ] {
        assert_eq!(fetched_astray(fetch).is_some(), expected, "{what}");
    }
}

/// W18
#[test]
fn a_fetch_that_leads_nowhere_is_called_by_the_root_and_since_when() {
    let found = fetched_astray(ASTRAY).unwrap();
    let began = changed(EngineKind::Flux);
    let (since, up) = (rfc3339(ago(&began, 60)), rfc3339(ago(&began, 8)));
    let text = format!(
        "{TEXT}, since {since}; Deployment flux-system/source-controller was mended meanwhile and runs since {up}"
    );
    assert_eq!(
        (found.class, found.object, found.evidence),
        (Class::QueueWedged, began.install.sync, text)
    );
    // It is looked for, too.
    let cluster = while_astray(ASTRAY);
    let (now, install) = (cluster.now, &cluster.install);
    let all = find(now, install, &cluster.observed(), &cluster.history);
    let is_it = |f: &Finding| {
        f.class == Class::QueueWedged && f.object == install.sync && f.evidence.starts_with(FETCHES)
    };
    assert!(all.iter().any(is_it), "{all:#?}");
}
