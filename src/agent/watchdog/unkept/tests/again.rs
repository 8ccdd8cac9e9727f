//! Which failures are kept in mind, how each is told, and when it is tried again.

use super::*;

/// The record was written: it is not written once more.
#[tokio::test(start_paused = true)]
async fn an_inventory_that_is_not_kept_is_told_and_nothing_is_tried_again_for_it() {
    let mut watchdog = watchdog();
    let crd = crd("kustomizations.kustomize.toolkit.fluxcd.io");
    let told = |text: &str| Some(text.to_owned());
    let bare = Told {
        bare: told("the inventories of 1 objects"),
        unrecorded: None,
    };
    watchdog.tell_of(&crd, &bare);
    assert_eq!(watchdog.unkept, Unkept::default());
    let both = Told {
        unrecorded: told("1 objects are known to this process alone"),
        ..bare
    };
    watchdog.tell_of(&crd, &both);
    assert!(watchdog.unkept.next().is_some());
}

#[test]
fn a_first_try_waits_for_a_few_writes_or_seconds_and_no_longer() {
    let start = Instant::now();
    let at = |second| start + Duration::from_secs(second);
    let crd = crd("a");
    // When each write begins and ends, whether it is done, and whether the first try is made then.
    let rows: [&[(u64, u64, bool, bool)]; 6] = [
        &[(0, 0, true, true)],
        &[(0, 0, false, false), (2, 2, true, true)],
        &[
            (0, 0, false, false),
            (2, 2, false, false),
            (4, 4, false, true),
        ],
        &[(0, 10, false, true)],
        &[(0, 3, false, false), (5, 10, false, true)],
        &[(0, 0, false, false), (60, 61, false, true)],
    ];
    for row in rows {
        let mut unkept = Unkept::default();
        for (begun, end, written, goes_on) in row {
            let took = (at(*begun), at(*end));
            let said = unkept.lets_go(&crd, *written, took);
            assert_eq!(said, *goes_on, "{row:?}");
        }
        assert_eq!(unkept, Unkept::default(), "{row:?}");
    }
    let mut unkept = Unkept::default();
    assert_eq!(unkept.patience(&crd, start), PATIENCE);
    unkept.lets_go(&crd, false, (start, start));
    let patience = [0, 4, 9, 10, 600].map(|second| unkept.patience(&crd, at(second)).as_secs());
    assert_eq!(patience, [10, 6, 1, 1, 1]);
}

#[test]
fn what_is_given_up_is_named_as_far_as_it_can_be_read() {
    let crd = crd("helmreleases.helm.toolkit.fluxcd.io");
    let many: Vec<Saved> = (0..25).map(|n| saved(&n.to_string())).collect();
    let one = told(&crd, &many[..1]);
    assert!(
        one.starts_with("1 objects") && one.ends_with(": team-a/0"),
        "{one}"
    );
    assert!(one.contains("two days"), "{one}");
    let tried = Saved {
        tried: Some(clock::now()),
        ..saved("a")
    };
    let of_tried = told(&crd, &[tried]);
    assert!(of_tried.contains("for a day"), "{of_tried}");
    let all = told(&crd, &many);
    assert!(all.ends_with("team-a/18, team-a/19 and 5 more"), "{all}");
}

#[test]
fn a_failure_is_told_once_in_a_row_and_tried_again_ever_later() {
    let mut unkept = Unkept::default();
    let now = Instant::now();
    let (one, other) = (crd("a"), crd("b"));
    let mut told = Vec::new();
    for (crd, kept) in [
        (&one, true),
        (&one, false),
        (&one, false),
        (&other, false),
        (&one, false),
        (&one, true),
        (&one, false),
    ] {
        let tell = unkept.note(crd, kept, 1.0, now);
        let due = unkept
            .again
            .get(crd)
            .map(|again| (again.due - now).as_secs());
        told.push((tell, due));
    }
    assert_eq!(
        told,
        [
            (false, None),
            (true, Some(1)),
            (false, Some(2)),
            (true, Some(1)),
            (false, Some(4)),
            (false, None),
            (true, Some(1)),
        ]
    );
    for _ in 0..100 {
        unkept.note(&one, false, 1.0, now);
    }
    assert_eq!(unkept.again[&one].due, now + RETRY.cap);
    assert_eq!(unkept.due(now + Duration::from_secs(1)), [other]);
}

#[test]
fn no_more_are_kept_in_mind_than_an_install_has() {
    let mut unkept = Unkept::default();
    for n in 0..1_000 {
        unkept.note(&crd(&n.to_string()), false, 0.5, Instant::now());
    }
    assert_eq!(unkept.again.len(), MOST);
}
