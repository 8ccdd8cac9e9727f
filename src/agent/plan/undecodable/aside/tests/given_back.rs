//! When Git may apply one of the catalog's again, and when it waits.

use super::*;

/// The root tries another commit.
fn another_commit(cluster: &mut Cluster) {
    let sync = cluster.install.sync.clone();
    let root = cluster.objects.get_mut(&sync).unwrap();
    root.fields["status"]["lastAttemptedRevision"] = json!("main@sha1:2");
}

/// F18: until then nothing is written to what somebody corrected by hand, and is at work.
#[test]
fn one_that_is_corrected_by_hand_is_given_back_with_another_commit() {
    let mut cluster = Cluster::working();
    let id = from_git(&mut cluster);
    rest(&mut cluster);
    write(&mut cluster, &id, "/spec/interval", json!("5m"));
    rest(&mut cluster);
    assert_eq!(asides(&cluster.plan()), []);
    another_commit(&mut cluster);
    assert_eq!(asides(&cluster.plan()), [("lift", "a")]);
}

/// F18: the clock was ahead when it was set aside. What waits for no commit has no wait that would begin anew.
#[test]
fn a_beginning_that_is_ahead_is_set_right_only_for_one_that_waits() {
    for (lifted, fenced, again) in [
        (false, true, true),
        (true, true, false),
        (false, false, false),
    ] {
        let mut cluster = Cluster::working();
        let id = from_git(&mut cluster);
        rest(&mut cluster);
        let mut aside = said(&cluster, &id).unwrap();
        aside.hold.attempt = 2;
        aside.hold.lifted = lifted.then(|| rfc3339(cluster.now));
        aside.fenced = fenced;
        let mut marks = json!({HELD: aside.text()});
        if fenced && !lifted {
            marks[RECONCILE] = json!("disabled");
        }
        write(&mut cluster, &id, "/metadata/annotations", marks);
        cluster.now -= Duration::days(1);
        cluster.history.set_back(cluster.now);
        let expected = again.then_some(("set-aside", "a"));
        let plan = cluster.plan();
        let asides = asides(&plan);
        assert!(
            asides.iter().eq(expected.iter()),
            "{lifted} {fenced}: {asides:?}"
        );
    }
}

/// W24, F18: each of both keeps the agent from it by itself.
#[test]
fn nothing_is_given_back_in_a_window_or_where_the_owner_did_not_let_the_agent_in() {
    let all: [(&str, Put); 2] = [
        ("a window of its own", |cluster, id| {
            let until = rfc3339(cluster.now + Duration::hours(1));
            let object = cluster.applications.get_mut(id).unwrap();
            object["metadata"]["annotations"][MAINTENANCE] = json!(until);
        }),
        ("another namespace's", |cluster, _| {
            cluster.covered = Some(["shop".to_owned()].into());
        }),
    ];
    for (what, put) in all {
        let mut cluster = Cluster::working();
        let id = from_git(&mut cluster);
        rest(&mut cluster);
        another_commit(&mut cluster);
        assert_eq!(asides(&cluster.plan()), [("lift", "a")]);
        put(&mut cluster, &id);
        assert_eq!(asides(&cluster.plan()), [], "{what}");
    }
}
