//! How many commits in a row broke an object (W20): the more there were, the longer it is held.

use super::*;
use crate::agent::plan::tests::{install, start};

/// What was broken by the commit `revision` so many seconds ago, the third in a row, and was given back since.
fn before(now: OffsetDateTime, revision: &str, seconds: i64, removal: bool) -> Hold {
    Hold {
        revision: revision.to_owned(),
        since: rfc3339(now - Duration::seconds(seconds)),
        reason: "first".to_owned(),
        attempt: 3,
        lifted: Some(rfc3339(now)),
        order: None,
        removal,
    }
}

/// Whether the clock went on meanwhile or was set back.
#[test]
fn what_the_same_commit_breaks_once_more_within_ten_minutes_is_broken_by_no_further_one() {
    let (now, policy) = (start(), install().policy);
    for (revision, seconds, same) in [
        ("2", 0, true),
        ("2", 599, true),
        ("2", 600, false),
        ("2", -599, true),
        ("2", -600, false),
        ("1", 0, false),
    ] {
        let first = before(now, revision, seconds, false);
        let expected = if same {
            Hold {
                lifted: None,
                ..first.clone()
            }
        } else {
            Hold {
                revision: "2".to_owned(),
                since: rfc3339(now),
                reason: "second".to_owned(),
                attempt: 4,
                lifted: None,
                order: None,
                removal: false,
            }
        };
        let why = ("2".to_owned(), "second".to_owned());
        let held = again(now, &policy, why, Some(first));
        assert_eq!(held, expected, "{revision} {seconds}");
    }
}

/// What the catalog no longer has was not broken, and is given back as soon as the catalog has it again.
#[test]
fn what_was_held_because_a_commit_removed_it_was_not_broken_before() {
    use Class::{BadEngineCommit, EngineRemovedByCommit};

    for (class, removal, attempt) in [
        (BadEngineCommit, false, 4),
        (BadEngineCommit, true, 1),
        (EngineRemovedByCommit, false, 1),
        (EngineRemovedByCommit, true, 1),
    ] {
        let mut cluster = owned();
        let (now, id) = (cluster.now, deployment("source-controller"));
        let note = before(now, "main@sha1:0", 60, removal).text();
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["metadata"]["annotations"] = json!({HELD: note});
        let finding = Finding::new(class, &id, "second");
        let done = holding(now, &cluster.install, &cluster.observed(), &finding);
        let notes = done.iter().filter_map(|(action, of)| match action {
            Action::Hold { note } => Some((of, serde_json::from_str(note).unwrap())),
            _ => None,
        });
        let expected = Hold {
            revision: "main@sha1:1".to_owned(),
            since: rfc3339(now),
            reason: "second".to_owned(),
            attempt,
            lifted: None,
            order: None,
            removal: class == EngineRemovedByCommit,
        };
        let all: Vec<(&ObjectId, Hold)> = notes.collect();
        assert_eq!(all, [(&id, expected)], "{class} {removal}");
    }
}

/// The kubelet's words are long; which commit it was, and what of it, is what people look for.
#[test]
fn a_reason_that_is_too_long_keeps_the_commit_and_its_fields() {
    let commit = "; commit main@sha1:2 changed /spec/template/spec/containers/0/image";
    let said = "x".repeat(600);
    let told = brief(&format!("{said}{commit}"));
    assert!(told.ends_with(&format!("x…{commit}")), "{told}");
    assert_eq!(told.chars().count(), MAX_REASON);
    let fits = format!("cannot be pulled{commit}");
    assert_eq!(brief(&fits), fits);
    assert_eq!(brief(&said), format!("{}…", "x".repeat(MAX_REASON - 1)));
}
