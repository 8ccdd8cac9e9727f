use futures_util::FutureExt as _;

use super::*;

fn by(user: &str, token: &str, grant: &str) -> By {
    By {
        user_id: user.to_owned(),
        token_id: token.to_owned(),
        cluster_id: Some("c1".to_owned()),
        grants: vec![grant.to_owned()],
        until: None,
    }
}

fn revoked<'a>(id: &'a str, by: Option<&'a str>) -> Gone<'a> {
    Gone::Grant { id, by }
}

#[tokio::test]
async fn requests_end_with_what_they_run_by() {
    let requests = Arc::new(Requests::default());
    let seats = [
        by("ada", "t1", "g1"),
        by("ada", "t2", "g2"),
        by("bob", "t3", "g2"),
    ]
    .map(|by| requests.enter(by, requests.now()));
    let over = || {
        seats
            .each_ref()
            .map(|seat| seat.over().now_or_never().is_some())
    };
    assert_eq!(
        (requests.end(Gone::Token("t1")), over()),
        (1, [true, false, false])
    );
    assert_eq!(
        (requests.end(revoked("g2", None)), over()),
        (2, [true, true, true])
    );
    assert_eq!(
        (
            requests.end(Gone::User("ada")),
            requests.end(Gone::User("eve"))
        ),
        (2, 0)
    );
    let both = ["g1".to_owned(), "g2".to_owned()];
    let reach = |cluster| {
        requests.end(Gone::Reach {
            cluster,
            grants: &both,
        })
    };
    assert_eq!((reach("c1"), reach("c2")), (3, 0));
    // The first word counts.
    assert_eq!(
        seats.each_ref().map(|seat| seat.why().unwrap()),
        [
            "the token or session was ended",
            "grant g2 was revoked",
            "grant g2 was revoked",
        ]
    );
    assert_eq!(requests.tokens().len(), 3);
    assert_eq!(requests.users().len(), 2);
    drop(seats);
    assert!(requests.seats.lock().unwrap().taken.is_empty());
}

/// Of several grants the one is named that is gone; what was taken away while it was judged is named, too.
#[tokio::test]
async fn who_is_cut_hears_by_what() {
    let requests = Arc::new(Requests::default());
    let two = || By {
        grants: vec!["g1".to_owned(), "g2".to_owned()],
        ..by("ada", "t1", "")
    };
    let (lost, judged) = (["g2".to_owned(), "g9".to_owned()], requests.now());
    let grants = &lost[..];
    let held = requests.enter(two(), requests.now());
    assert_eq!(held.why(), None);
    let user = "ada";
    assert_eq!(requests.end(Gone::Held { user, grants }), 1);
    let why = "grant g2 was revoked, or is not the user's any more";
    assert_eq!(held.why().as_deref(), Some(why));
    assert_eq!(requests.enter(two(), judged).why().unwrap(), why);
    let moved = requests.enter(two(), requests.now());
    let cluster = "c1";
    requests.end(Gone::Reach { cluster, grants });
    let reach = "grant g2 does not take in the cluster any more";
    assert_eq!(moved.why().as_deref(), Some(reach));
    // By whom, where it was somebody, also to whom was being judged then.
    let (taken, judged) = (requests.enter(two(), requests.now()), requests.now());
    requests.end(revoked("g1", Some("bob")));
    let late = requests.enter(two(), judged);
    let by_bob = Some("grant g1 was revoked by bob".to_owned());
    assert_eq!((taken.why(), late.why()), (by_bob.clone(), by_bob));
    let gone = requests.enter(two(), requests.now());
    requests.end(Gone::User("ada"));
    assert_eq!(gone.why().unwrap(), "the user was removed");
}

/// Between the look at the token and the seat, the token may go.
#[tokio::test]
async fn what_goes_while_a_request_is_judged_ends_it_too() {
    let requests = Arc::new(Requests::default());
    let over = |by: By, judged| requests.enter(by, judged).over().now_or_never().is_some();
    let judged = requests.now();
    requests.end(Gone::Token("t1"));
    requests.end(revoked("g9", None));
    let grants = ["g2".to_owned()];
    requests.end(Gone::Held {
        user: "bob",
        grants: &grants,
    });
    assert!(over(by("bob", "t3", "g2"), judged));
    assert!(!over(by("ada", "t3", "g2"), judged));
    assert!(over(by("ada", "t1", "g1"), judged));
    assert!(over(by("ada", "t2", "g9"), judged));
    assert!(!over(by("ada", "t2", "g1"), judged));
    assert!(!over(by("ada", "t1", "g1"), requests.now()));
    // Whoever had no grant loses none, however often that is said.
    let (lately, grants) = (requests.now(), &[][..]);
    for user in (0..=RECENT).map(|n| n.to_string()) {
        let user = &user;
        assert_eq!(requests.end(Gone::Held { user, grants }), 0);
        let cluster = user;
        assert_eq!(requests.end(Gone::Reach { cluster, grants }), 0);
    }
    assert!(!over(by("ada", "t2", "g1"), lately));
    // More than anyone remembers is as good as everything.
    for _ in 0..RECENT {
        requests.end(Gone::User("eve"));
    }
    assert!(over(by("ada", "t2", "g1"), judged));
}

#[tokio::test]
async fn one_that_was_judged_before_a_look_and_came_after_it_is_late() {
    let requests = Arc::new(Requests::default());
    let judged = requests.now();
    let _ada = requests.enter(by("ada", "t1", "g1"), judged);
    let _again = requests.enter(by("ada", "t1", "g1"), judged);
    assert!(!requests.late());
    assert_eq!(requests.look(), [by("ada", "t1", "g1")]);
    assert!(!requests.late());
    let _fresh = requests.enter(by("bob", "t2", "g1"), requests.now());
    assert!(!requests.late());
    let _late = requests.enter(by("bob", "t2", "g1"), judged);
    assert!(requests.late());
    assert_eq!(requests.look().len(), 2);
    assert!(!requests.late());
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_with_its_grant() {
    let requests = Arc::new(Requests::default());
    let until = Some(clock::now() + time::Duration::seconds(30));
    let seat = requests.enter(
        By {
            until,
            ..By::default()
        },
        requests.now(),
    );
    assert!(seat.over().now_or_never().is_none());
    seat.over().await;
}

/// A wait goes on by another clock than the one that says when access ends: one that was set forward is seen by who looks at it.
#[tokio::test(start_paused = true)]
async fn what_is_over_at_a_look_ends_however_long_its_own_wait_is() {
    let requests = Arc::new(Requests::default());
    let end = clock::now() + time::Duration::hours(8);
    let [first, later, never] =
        [Some(end), Some(end + time::Duration::hours(1)), None].map(|until| {
            let by = By {
                until,
                ..By::default()
            };
            requests.enter(by, requests.now())
        });
    let moment = time::Duration::milliseconds(1);
    assert_eq!(requests.end_over(end - moment), 0);
    assert!(first.over().now_or_never().is_none());
    assert_eq!(requests.end_over(end), 1);
    assert!(first.over().now_or_never().is_some());
    assert_eq!(first.why(), None, "nobody took it away");
    // Once is enough.
    assert_eq!(requests.end_over(end + moment), 0);
    assert!(later.over().now_or_never().is_none());
    assert!(never.over().now_or_never().is_none());
}
