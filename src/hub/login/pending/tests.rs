use super::*;

fn at(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + Duration::seconds(seconds)
}

fn ready(user: &str) -> Ready {
    Ready {
        user_id: user.to_owned(),
        refresh: None,
        until: at(0),
        how: "test",
    }
}

fn login(state: &str, browser: u8) -> Login {
    Login {
        state: state.to_owned(),
        browser: [browser; 32],
        nonce: String::new(),
        verifier: Secret::new(String::new()),
        goal: Goal::Device([0; 32]),
        until: at(0) + LOGIN,
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

#[test]
fn a_login_comes_back_once_and_to_its_own_browser() {
    let mut pending = Pending::default();
    pending.begin(login("s1", 1), at(0));
    assert!(pending.come_back("s1", &[2; 32], at(1)).is_none());
    assert!(pending.come_back("s2", &[1; 32], at(1)).is_none());
    assert!(pending.come_back("s1", &[1; 32], at(1)).is_some());
    assert!(pending.come_back("s1", &[1; 32], at(1)).is_none());
    pending.begin(login("s3", 1), at(0));
    assert!(pending.come_back("s3", &[1; 32], at(600)).is_none());
}

#[test]
fn a_code_is_fetched_once_by_who_holds_the_verifier() {
    let mut pending = Pending::default();
    let mut offer = |code: &str, now| {
        pending.offer(code, challenge("v"), ready("ada"), now);
    };
    offer("one", at(0));
    offer("two", at(0));
    offer("three", at(0));
    let mut fetch = |code, verifier, now| pending.fetch(code, verifier, now).map(|r| r.user_id);
    assert_eq!(fetch("one", "v", at(59)), Some("ada".to_owned()));
    assert_eq!(fetch("one", "v", at(59)), None);
    // A thief's try spends it.
    assert_eq!(fetch("two", "x", at(1)), None);
    assert_eq!(fetch("two", "v", at(1)), None);
    assert_eq!(fetch("three", "v", at(60)), None);
}

#[test]
fn a_device_waits_slows_down_and_hears_the_answer_once() {
    let mut pending = Pending::default();
    let hash = keys::sha256(b"d");
    let code = pending.device(
        hash,
        [0, 1, 2, 3, 4, 5, 6, 7],
        "192.0.2.1:5".to_owned(),
        at(0),
    );
    assert_eq!(code, "BCDF-GHJK");
    let said: Vec<String> = [
        (0, "d"),
        (5, "d"),
        (7, "d"),
        (12, "d"),
        (27, "d"),
        (28, "x"),
    ]
    .map(|(second, code)| word(&pending.poll(code, at(second))))
    .to_vec();
    assert_eq!(
        said,
        [
            "pending",
            "pending",
            "slow down",
            "slow down",
            "pending",
            "expired"
        ]
    );
    let found = pending.by_user_code("bcdf ghjk", at(30));
    assert_eq!(found, Ok((hash, "192.0.2.1:5".to_owned())));
    assert!(pending.decide(&hash, Ok(ready("ada")), at(30)));
    assert!(!pending.decide(&hash, Ok(ready("eve")), at(30)));
    assert_eq!(
        pending.by_user_code("BCDF-GHJK", at(30)),
        Err(Wrong::Unknown)
    );
    assert_eq!(word(&pending.poll("d", at(31))), "ready: ada");
    assert_eq!(word(&pending.poll("d", at(60))), "expired");
}

#[test]
fn a_device_hears_a_no_and_does_not_wait_for_ever() {
    let mut pending = Pending::default();
    for n in [1, 2] {
        pending.device(keys::sha256(&[n]), [n; 8], String::new(), at(0));
    }
    assert!(pending.decide(&keys::sha256(&[1]), Err("no".to_owned()), at(1)));
    assert_eq!(word(&pending.poll("\u{1}", at(5))), "denied: no");
    assert_eq!(word(&pending.poll("\u{2}", at(600))), "expired");
    assert!(!pending.decide(&keys::sha256(&[2]), Ok(ready("ada")), at(600)));
}

#[test]
fn tables_are_bounded_and_guessing_ends() {
    let mut pending = Pending::default();
    for n in 0..MOST + 5 {
        pending.begin(login(&n.to_string(), 1), at(0));
        pending.device(
            keys::sha256(n.to_string().as_bytes()),
            [9; 8],
            String::new(),
            at(0),
        );
        pending.offer(&n.to_string(), String::new(), ready("ada"), at(0));
    }
    let sizes = (
        pending.logins.len(),
        pending.devices.len(),
        pending.codes.len(),
    );
    assert_eq!(sizes, (MOST, MOST, MOST));
    assert!(pending.come_back("0", &[1; 32], at(0)).is_none());
    let wrong = |pending: &mut Pending, now| pending.by_user_code("AAAA-AAAA", now).unwrap_err();
    for _ in 0..WRONG {
        assert_eq!(wrong(&mut pending, at(1)), Wrong::Unknown);
    }
    assert_eq!(wrong(&mut pending, at(2)), Wrong::TooMany);
    assert_eq!(wrong(&mut pending, at(70)), Wrong::Unknown);
}
