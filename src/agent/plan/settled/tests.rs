use serde_json::json;

use super::*;
use crate::agent::engine::REQUESTED_AT;
use crate::agent::plan::tests::{Cluster, source};
use crate::clock::rfc3339;

/// The roots have answered what they were asked at that time.
fn proven(cluster: &mut Cluster, at: OffsetDateTime) {
    for root in [cluster.install.source.clone(), cluster.install.sync.clone()] {
        let fields = &mut cluster.objects.get_mut(&root).unwrap().fields;
        fields["metadata"]["annotations"][REQUESTED_AT] = json!(rfc3339(at));
        fields["status"]["lastHandledReconcileAt"] = json!(rfc3339(at));
    }
}

fn due(cluster: &Cluster, looked: Option<Duration>) -> bool {
    let observed = cluster.observed();
    let looked = looked.map(|ago| cluster.now - ago);
    let plan = cluster.plan();
    let seen = (&cluster.install, &observed);
    is_due(cluster.now, seen, &cluster.history, &plan, looked)
}

/// So a commit that does harm later than that is none of it, and a new agent, which remembers nothing, changes nothing.
#[test]
fn a_snapshot_follows_the_last_change_by_whomever_it_was() {
    let after = Duration::minutes(10);
    for (what, adopted, written, wrote, asked, expected) in [
        ("nothing was changed", true, None, None, 0, true),
        (
            "Git changed it just now",
            true,
            Some(after - Duration::SECOND),
            None,
            0,
            false,
        ),
        ("Git changed it long ago", true, Some(after), None, 0, true),
        (
            "we changed it just now",
            true,
            None,
            Some(after - Duration::SECOND),
            0,
            false,
        ),
        (
            "we changed it long ago",
            true,
            Some(after * 2),
            Some(after),
            0,
            true,
        ),
        (
            "it was not asked since",
            true,
            Some(after),
            None,
            601,
            false,
        ),
        (
            "the first one",
            false,
            Some(Duration::SECOND),
            None,
            0,
            true,
        ),
    ] {
        let mut cluster = Cluster::working();
        cluster.now += Duration::hours(1);
        let now = cluster.now;
        cluster.history.adopted = adopted;
        cluster.history.last_write = wrote.map(|ago| now - ago);
        let live = cluster.objects.get_mut(&source()).unwrap();
        live.written = written.map(|ago| now - ago);
        proven(&mut cluster, now - Duration::seconds(asked));
        assert_eq!(due(&cluster, None), expected, "{what}");
    }
}

#[test]
fn nothing_is_kept_while_something_is_wrong_or_a_moment_after_the_last_look() {
    let mut cluster = Cluster::working();
    cluster.now += Duration::hours(1);
    let now = cluster.now;
    proven(&mut cluster, now);
    assert!(due(&cluster, Some(Duration::minutes(10))));
    assert!(!due(&cluster, Some(Duration::minutes(9))));
    cluster.objects.get_mut(&source()).unwrap().fields["spec"]["replicas"] = json!(0);
    assert!(!due(&cluster, None));
}

/// What is in a Secret, and what is no part of the install, is in no snapshot.
#[test]
fn only_what_a_snapshot_holds_counts_as_a_change() {
    let mut cluster = Cluster::working();
    let now = cluster.now;
    let (secret, root) = (cluster.install.secret.clone(), cluster.install.sync.clone());
    for id in [secret, root] {
        cluster.objects.get_mut(&id).unwrap().written = Some(now);
    }
    cluster.objects.get_mut(&source()).unwrap().written = Some(now - Duration::HOUR);
    let observed = cluster.observed();
    let said = changed(&cluster.install, &observed, &cluster.history);
    assert_eq!(said, Some(now - Duration::HOUR));
}
