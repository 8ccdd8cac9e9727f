//! Logins that are under way: kept for any replica, once, within bounds and for a while.

use std::time::Duration;

use futures_util::future::join_all;
use linesman::address;
use linesman::hub::login::pending::{
    self, Bounds, Goal, Login, Polled, Ready, WRONG, WRONG_OF_ALL, Wrong, challenge,
};
use linesman::hub::login::seal::Seal;
use linesman::hub::login::waiting::Pending;
use linesman::hub::store::{
    Arrival, Asked, Decision, Session, Store, UserRow, Waiting, WaitingKind,
};
use linesman::keys;
use linesman::secret::Secret;
use time::OffsetDateTime;

use super::access::{pair, session};
use super::{api_token, at as ms, on_both, user};

on_both! {
    a_login_comes_back_once_and_to_its_own_browser,
    a_code_is_fetched_once_by_who_holds_the_verifier,
    a_device_waits_slows_down_and_hears_the_answer_once,
    a_device_hears_a_no_and_does_not_wait_for_ever,
    places_are_bounded_and_who_floods_them_loses_his_own,
    guessing_ends_for_the_address_that_guesses,
    guesses_that_are_dated_ahead_keep_nobody_out,
    of_those_who_come_at_once_one_gets_it,
    one_at_a_time_has_its_turn_at_a_session,
    holders_of_tokens_are_asked_about_by_their_newest_session,
    a_session_that_is_dated_ahead_is_due_and_hides_no_other,
}

const ISSUER: &str = "https://id.invalid";

fn at(seconds: i64) -> OffsetDateTime {
    ms(seconds * 1_000)
}

fn seal() -> Seal {
    Seal::new(&Secret::new([1; 32]))
}

fn ready(user: &str) -> Ready {
    Ready {
        user_id: user.to_owned(),
        refresh: Some(Secret::new("the provider's".to_owned())),
        until: at(0),
    }
}

fn login(state: &str, browser: u8) -> Login {
    Login {
        state: state.to_owned(),
        browser: [browser; 32],
        from: "192.0.2.1".to_owned(),
        nonce: "nonce".to_owned(),
        verifier: Secret::new("verifier".to_owned()),
        goal: Goal::Device([0; 32]),
        until: at(0) + pending::LOGIN,
    }
}

fn word(polled: &Polled) -> String {
    match polled {
        Polled::Pending => "pending".to_owned(),
        Polled::SlowDown => "slow down".to_owned(),
        Polled::Denied(why) => format!("denied: {why}"),
        Polled::Expired => "expired".to_owned(),
        Polled::Ready(ready) => format!("ready: {}", ready.user_id),
    }
}

async fn offer(pending: &Pending<'_>, code: &str) {
    let (challenge, ready) = (challenge("v"), ready("ada"));
    let offered = pending.offer(code, &challenge, &ready, at(0)).await;
    offered.unwrap();
}

/// H31
async fn a_login_comes_back_once_and_to_its_own_browser(store: Store) {
    let seal = seal();
    let pending = Pending::new(&store, &seal);
    let back = async |state: &str, browser: u8, second| {
        let found = pending.come_back(state, &[browser; 32], at(second)).await;
        found
            .unwrap()
            .map(|l| (l.nonce, l.verifier.into_inner(), l.goal))
    };
    pending.begin(login("s1", 1), at(0)).await.unwrap();
    assert_eq!(back("s1", 2, 1).await, None);
    assert_eq!(back("s2", 1, 1).await, None);
    let whole = (
        "nonce".to_owned(),
        "verifier".to_owned(),
        Goal::Device([0; 32]),
    );
    assert_eq!(back("s1", 1, 1).await, Some(whole));
    assert_eq!(back("s1", 1, 1).await, None);
    pending.begin(login("s3", 1), at(0)).await.unwrap();
    assert_eq!(back("s3", 1, 600).await, None);
    // Whoever has another key than the hub's has nothing.
    pending.begin(login("s4", 1), at(0)).await.unwrap();
    let other = Seal::new(&Secret::new([2; 32]));
    let other = Pending::new(&store, &other);
    let found = other.come_back("s4", &[1; 32], at(1)).await.unwrap();
    assert!(found.is_none());
}

async fn a_code_is_fetched_once_by_who_holds_the_verifier(store: Store) {
    let seal = seal();
    let pending = Pending::new(&store, &seal);
    for code in ["one", "two", "three"] {
        offer(&pending, code).await;
    }
    let fetch = async |code: &str, verifier: &str, second| {
        let found = pending.fetch(code, verifier, at(second)).await.unwrap();
        found.map(|r| (r.user_id, r.refresh.unwrap().into_inner()))
    };
    let whole = ("ada".to_owned(), "the provider's".to_owned());
    assert_eq!(fetch("one", "v", 59).await, Some(whole));
    assert_eq!(fetch("one", "v", 59).await, None);
    // A thief's try spends it.
    assert_eq!(fetch("two", "x", 1).await, None);
    assert_eq!(fetch("two", "v", 1).await, None);
    assert_eq!(fetch("three", "v", 60).await, None);
}

/// H31 (RFC 8628 §3.5)
async fn a_device_waits_slows_down_and_hears_the_answer_once(store: Store) {
    let seal = seal();
    let pending = Pending::new(&store, &seal);
    let key = keys::sha256(b"d");
    let remote = "192.0.2.1:5".to_owned();
    let code = pending.device(key, [0, 1, 2, 3, 4, 5, 6, 7], remote, at(0));
    assert_eq!(code.await.unwrap(), "BCDF-GHJK");
    let poll = async |code: &str, second| word(&pending.poll(code, at(second)).await.unwrap());
    for (second, code, said) in [
        (0, "d", "pending"),
        (5, "d", "pending"),
        (7, "d", "slow down"),
        (12, "d", "slow down"),
        (27, "d", "pending"),
        (28, "x", "expired"),
    ] {
        assert_eq!(poll(code, second).await, said, "{second}");
    }
    let typed = async |code: &str| {
        let found = pending.by_user_code(code, "192.0.2.9:4000", at(30)).await;
        found.unwrap()
    };
    assert_eq!(
        typed("bcdf ghjk").await,
        Ok((key, "192.0.2.1:5".to_owned()))
    );
    let decide = async |who: &str| {
        let decided = pending.decide(&key, Ok(ready(who)), at(30)).await;
        decided.unwrap()
    };
    assert!(decide("ada").await);
    assert!(!decide("eve").await);
    assert_eq!(typed("BCDF-GHJK").await, Err(Wrong::Unknown));
    assert_eq!(poll("d", 31).await, "ready: ada");
    assert_eq!(poll("d", 60).await, "expired");
}

async fn a_device_hears_a_no_and_does_not_wait_for_ever(store: Store) {
    let seal = seal();
    let pending = Pending::new(&store, &seal);
    for n in [1, 2] {
        let device = pending.device(keys::sha256(&[n]), [n; 8], String::new(), at(0));
        device.await.unwrap();
    }
    let (one, two) = (keys::sha256(&[1]), keys::sha256(&[2]));
    let no = pending.decide(&one, Err("no".to_owned()), at(1));
    assert!(no.await.unwrap());
    let poll = async |code: &str, second| word(&pending.poll(code, at(second)).await.unwrap());
    assert_eq!(poll("\u{1}", 5).await, "denied: no");
    assert_eq!(poll("\u{2}", 600).await, "expired");
    let late = pending.decide(&two, Ok(ready("ada")), at(600));
    assert!(!late.await.unwrap());
}

async fn places_are_bounded_and_who_floods_them_loses_his_own(store: Store) {
    const BOUNDS: Bounds = Bounds {
        of_one: 4,
        most: 12,
    };
    let begin = async |n: usize, address: &str, second| {
        for kind in [WaitingKind::Login, WaitingKind::Device] {
            let waiting = Waiting {
                kind,
                key: keys::sha256(&n.to_be_bytes()),
                address: address.to_owned(),
                remote: String::new(),
                browser: None,
                user_code: None,
                sealed: vec![1],
                until: at(600),
            };
            store
                .add_waiting(waiting, BOUNDS, at(second))
                .await
                .unwrap();
        }
    };
    begin(0, "192.0.2.9", 0).await;
    for n in 1..=9 {
        begin(n, "198.51.100.1", 1).await;
    }
    // From many addresses: whoever has the most makes room.
    for n in 10..=17 {
        begin(n, &format!("10.0.0.{n}"), 2).await;
    }
    let mut there = Vec::new();
    for n in 0..=17_usize {
        let key = keys::sha256(&n.to_be_bytes());
        let login = store
            .take_waiting(WaitingKind::Login, key, None, at(3))
            .await;
        let device = store.ask_device(key, at(3)).await.unwrap();
        assert_eq!(login.unwrap().is_some(), device == Asked::Pending, "{n}");
        if device == Asked::Pending {
            there.push(n);
        }
    }
    assert_eq!(there.len(), 12);
    assert!(there.contains(&0) && there.contains(&17), "{there:?}");
    assert_eq!(there.iter().filter(|n| (1..=9).contains(*n)).count(), 3);
    // What is over takes nobody's place.
    for n in 20..=31 {
        begin(n, &format!("10.0.1.{n}"), 601).await;
    }
    let key = keys::sha256(&17_usize.to_be_bytes());
    assert_eq!(store.ask_device(key, at(3)).await.unwrap(), Asked::Expired);
}

async fn guessing_ends_for_the_address_that_guesses(store: Store) {
    let seal = seal();
    let pending = Pending::new(&store, &seal);
    let wrong = async |from: &str, second| {
        let found = pending.by_user_code("AAAA-AAAA", from, at(second)).await;
        found.unwrap().unwrap_err()
    };
    for _ in 0..WRONG {
        assert_eq!(wrong("198.51.100.1:7", 1).await, Wrong::Unknown);
    }
    assert_eq!(wrong("198.51.100.1:8", 2).await, Wrong::TooMany);
    assert_eq!(wrong("192.0.2.9:4000", 2).await, Wrong::Unknown);
    let mut heard = WRONG + 1;
    while wrong(&format!("10.0.{}.{}:5", heard / 200, heard % 200), 3).await == Wrong::Unknown {
        heard += 1;
    }
    assert_eq!(heard, WRONG_OF_ALL);
    assert_eq!(wrong("198.51.100.1:7", 70).await, Wrong::Unknown);
    assert_eq!(address::of("198.51.100.1:7"), "198.51.100.1");
}

/// The hub's clock was an hour ahead when codes were guessed, and is right again.
async fn guesses_that_are_dated_ahead_keep_nobody_out(store: Store) {
    let seal = seal();
    let pending = Pending::new(&store, &seal);
    let wrong = async |from: &str, second| {
        let found = pending.by_user_code("AAAA-AAAA", from, at(second)).await;
        found.unwrap().unwrap_err()
    };
    for _ in 0..WRONG {
        assert_eq!(wrong("198.51.100.1:7", 3_700).await, Wrong::Unknown);
    }
    assert_eq!(wrong("198.51.100.1:7", 3_700).await, Wrong::TooMany);
    for _ in 0..WRONG {
        assert_eq!(wrong("198.51.100.1:7", 100).await, Wrong::Unknown);
    }
    // By the clock of another replica, which is a moment behind, they count as well.
    assert_eq!(wrong("198.51.100.1:7", 90).await, Wrong::TooMany);
}

async fn of_those_who_come_at_once_one_gets_it(store: Store) {
    let seal = seal();
    let pending = Pending::new(&store, &seal);
    offer(&pending, "one").await;
    let all = join_all((0..8).map(|_| pending.fetch("one", "v", at(1)))).await;
    let got = all
        .into_iter()
        .filter(|found| found.as_ref().unwrap().is_some());
    assert_eq!(got.count(), 1);
    let key = keys::sha256(b"d");
    let device = pending.device(key, [1; 8], String::new(), at(0));
    device.await.unwrap();
    let decide = |n: u8| store.decide_device(key, Decision::Ready(vec![n]), at(1));
    let all = join_all((0..8).map(decide)).await;
    assert_eq!(all.into_iter().filter(|d| *d.as_ref().unwrap()).count(), 1);
    let all = join_all((0..8).map(|_| store.ask_device(key, at(2)))).await;
    let told = all.into_iter().filter(|asked| {
        let asked = asked.as_ref().unwrap();
        matches!(asked, Asked::Decided(Decision::Ready(_)))
    });
    assert_eq!(told.count(), 1);
    // Nor are there more guesses than one after another.
    let guess = |_| pending.by_user_code("AAAA-AAAA", "192.0.2.9:1", at(2));
    let all = join_all((0..2 * WRONG).map(guess)).await;
    let heard = all
        .into_iter()
        .filter(|g| *g.as_ref().unwrap() == Err(Wrong::Unknown));
    assert_eq!(i64::try_from(heard.count()).unwrap(), WRONG);
}

async fn one_at_a_time_has_its_turn_at_a_session(store: Store) {
    let ada = user(&store, "ada", "viewer").await;
    let added = store.add_session(session(&ada), "192.0.2.1", pair(1), at(0));
    added.await.unwrap();
    let names: Vec<String> = (0..8).map(|n| format!("replica-{n}")).collect();
    // By the database's clock alone: those of two replicas may be apart.
    let take = async |by: &str, lasts| store.take_turn("s1", by, lasts).await.unwrap();
    let minute = Duration::from_mins(1);
    let all = join_all(names.iter().map(|by| take(by, minute))).await;
    let mut had = names.iter().zip(&all).filter(|(_, taken)| **taken);
    let (first, other) = (had.next().unwrap().0, had.next());
    assert_eq!(other, None);
    // Who has it not does not end it.
    store.end_turn("s1", "somebody else").await.unwrap();
    assert!(!take("next", minute).await);
    store.end_turn("s1", first).await.unwrap();
    // One who died has it for a while, and not for longer.
    assert!(take("dead", Duration::ZERO).await);
    assert!(take("next", minute).await);
    store.end_turn("s1", "dead").await.unwrap();
    assert!(!take("third", minute).await);
    store.end_turn("s1", "next").await.unwrap();
    assert!(take("third", minute).await);
}

fn arrival() -> Arrival {
    Arrival {
        id: "id-ada".to_owned(),
        issuer: ISSUER.to_owned(),
        subject: "42".to_owned(),
        name: "ada".to_owned(),
        groups: ["dev".to_owned()].into(),
    }
}

/// The n-th session of a user, about which the provider was asked then.
async fn open(store: &Store, of: &UserRow, n: u8, asked_at: OffsetDateTime) {
    let session = Session {
        id: format!("s{n}"),
        asked_at,
        ..session(of)
    };
    let added = store.add_session(session, "192.0.2.1", pair(n), ms(0));
    added.await.unwrap();
}

/// H32: and of a refusal the last session's counts.
async fn holders_of_tokens_are_asked_about_by_their_newest_session(store: Store) {
    store.arrive(arrival(), ms(0)).await.unwrap();
    let ada = store.user("ada").await.unwrap().unwrap();
    let due = async |asked_before, now| {
        let due = store.sessions_due(ISSUER, asked_before, now, 10).await;
        due.unwrap()
    };
    open(&store, &ada, 1, ms(1)).await;
    open(&store, &ada, 2, ms(2)).await;
    // Who holds nothing need not be asked about; nor a local user.
    assert_eq!(due(ms(5), ms(5)).await, [""; 0]);
    store.add_api_token(api_token(&ada, 1), None).await.unwrap();
    assert_eq!(due(ms(5), ms(5)).await, ["s2"]);
    assert_eq!(due(ms(1), ms(5)).await, [""; 0]);
    assert_eq!(due(ms(5), ms(10_000)).await, [""; 0]);
    let other = store.sessions_due("https://other.invalid", ms(5), ms(5), 9);
    assert_eq!(other.await.unwrap(), [""; 0]);
    // Before the session ends that was asked by: what counts is whether another one is left.
    let refuse = async |session: &str, at| {
        let last = store.is_last_to_ask_by(session, at).await.unwrap();
        assert_eq!(store.refuse_user(session, at).await.unwrap(), last);
        last
    };
    assert!(!refuse("s2", ms(6)).await);
    assert!(store.end_session("s2", "refused", ms(6)).await.unwrap());
    assert_eq!(due(ms(6), ms(6)).await, ["s1"]);
    assert!(!refuse("s2", ms(6)).await);
    assert!(refuse("s1", ms(7)).await);
    assert!(!refuse("s1", ms(8)).await);
    assert!(store.end_session("s1", "refused", ms(8)).await.unwrap());
    assert!(!refuse("s1", ms(8)).await);
    let refused = async || {
        let user = store.user("ada").await.unwrap().unwrap();
        user.provider.unwrap().refused
    };
    assert!(refused().await);
    store.arrive(arrival(), ms(9)).await.unwrap();
    assert!(!refused().await);
    // A local user is nobody else's word.
    let bob = user(&store, "bob", "viewer").await;
    let own = Session {
        id: "s3".to_owned(),
        ..session(&bob)
    };
    let added = store.add_session(own, "192.0.2.1", pair(3), ms(9));
    added.await.unwrap();
    assert!(!refuse("s3", ms(9)).await);
    assert!(!refuse("nobody's", ms(9)).await);
}

/// H32: the hub's clock was an hour ahead when it asked, and is right again.
async fn a_session_that_is_dated_ahead_is_due_and_hides_no_other(store: Store) {
    store.arrive(arrival(), ms(0)).await.unwrap();
    let ada = store.user("ada").await.unwrap().unwrap();
    store.add_api_token(api_token(&ada, 1), None).await.unwrap();
    let due = async |asked_before, now| {
        let due = store.sessions_due(ISSUER, asked_before, now, 10).await;
        due.unwrap()
    };
    let ahead = ms(5) + time::Duration::hours(1);
    open(&store, &ada, 2, ahead).await;
    assert_eq!(due(ms(4), ms(5)).await, ["s2"]);
    // Of two such, one is enough.
    open(&store, &ada, 3, ahead + time::Duration::hours(1)).await;
    assert_eq!(due(ms(4), ms(5)).await, ["s3"]);
    // One that is dated right says more, be it due or not.
    open(&store, &ada, 1, ms(3)).await;
    assert_eq!(due(ms(4), ms(5)).await, ["s1"]);
    assert_eq!(due(ms(2), ms(5)).await, [""; 0]);
    assert!(store.end_session("s1", "logout", ms(5)).await.unwrap());
    assert_eq!(due(ms(2), ms(5)).await, ["s3"]);
    // Asked by the clock that is right, it is as any other.
    store
        .asked_provider("s3", Some(vec![1]), ms(6))
        .await
        .unwrap();
    assert_eq!(due(ms(5), ms(7)).await, [""; 0]);
    assert_eq!(due(ms(6), ms(7)).await, ["s3"]);
}
