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
        from: String::new(),
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
    let found = pending.by_user_code("bcdf ghjk", HOME, at(30));
    assert_eq!(found, Ok((hash, "192.0.2.1:5".to_owned())));
    assert!(pending.decide(&hash, Ok(ready("ada")), at(30)));
    assert!(!pending.decide(&hash, Ok(ready("eve")), at(30)));
    assert_eq!(
        pending.by_user_code("BCDF-GHJK", HOME, at(30)),
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

const HOME: &str = "192.0.2.9:4000";

/// An address of its own for each number, with a port.
fn address(n: usize) -> String {
    format!("10.{}.{}.1:5", n / 200, n % 200)
}

#[test]
fn tables_are_bounded_and_who_floods_them_loses_his_own() {
    let mut pending = Pending::default();
    let begin = |pending: &mut Pending, state: &str, remote: &str| {
        let login = Login {
            from: address::of(remote),
            ..login(state, 1)
        };
        pending.begin(login, at(0));
        let hash = keys::sha256(state.as_bytes());
        pending.device(hash, [9; 8], remote.to_owned(), at(0));
    };
    begin(&mut pending, "ada", HOME);
    for n in 0..2 * MOST {
        begin(&mut pending, &format!("flood{n}"), "198.51.100.1:7");
        pending.offer(&n.to_string(), String::new(), ready("ada"), at(0));
    }
    let sizes = |pending: &Pending| (pending.logins.len(), pending.devices.len());
    assert_eq!(sizes(&pending), (OF_ONE + 1, OF_ONE + 1));
    assert_eq!(pending.codes.len(), MOST);
    // From many addresses: whoever has the most makes room.
    for n in 0..MOST - 1 {
        begin(&mut pending, &format!("n{n}"), &address(n));
    }
    assert_eq!(sizes(&pending), (MOST, MOST));
    assert!(pending.come_back("flood1998", &[1; 32], at(0)).is_none());
    assert!(pending.come_back("ada", &[1; 32], at(0)).is_some());
    assert_eq!(word(&pending.poll("ada", at(1))), "pending");
}

#[test]
fn guessing_ends_for_the_address_that_guesses() {
    let mut pending = Pending::default();
    let wrong = |pending: &mut Pending, from: &str, now| {
        pending.by_user_code("AAAA-AAAA", from, now).unwrap_err()
    };
    for _ in 0..WRONG {
        assert_eq!(wrong(&mut pending, "198.51.100.1:7", at(1)), Wrong::Unknown);
    }
    assert_eq!(wrong(&mut pending, "198.51.100.1:8", at(2)), Wrong::TooMany);
    assert_eq!(wrong(&mut pending, HOME, at(2)), Wrong::Unknown);
    let mut heard = usize::try_from(WRONG).unwrap() + 1;
    while wrong(&mut pending, &address(heard), at(3)) == Wrong::Unknown {
        heard += 1;
    }
    assert_eq!(heard, usize::try_from(WRONG_OF_ALL).unwrap());
    assert_eq!(
        wrong(&mut pending, "198.51.100.1:7", at(70)),
        Wrong::Unknown
    );
}
