use super::*;

fn at(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + Duration::seconds(seconds)
}

fn counts(of: &[(&str, i64)]) -> Vec<(String, i64)> {
    of.iter().map(|(a, n)| ((*a).to_owned(), *n)).collect()
}

#[test]
fn who_floods_the_places_makes_room_himself() {
    let bounds = Bounds {
        of_one: 3,
        most: 10,
    };
    for (there, own, makes_room) in [
        (&[][..], "a", None),
        (&[("a", 2)], "a", None),
        (&[("a", 3)], "a", Some("a")),
        (&[("a", 3)], "b", None),
        (&[("a", 2), ("b", 3), ("c", 2), ("d", 2)], "e", None),
        (&[("a", 3), ("b", 2), ("c", 2), ("d", 3)], "a", Some("a")),
        (
            &[("a", 2), ("b", 3), ("c", 2), ("d", 2), ("f", 1)],
            "e",
            Some("b"),
        ),
        (
            &[("a", 2), ("b", 3), ("c", 2), ("d", 2), ("f", 1)],
            "f",
            Some("b"),
        ),
    ] {
        let there = counts(there);
        assert_eq!(crowded(&there, own, bounds), makes_room, "{there:?} {own}");
    }
}

#[test]
fn a_device_waits_slows_down_and_hears_what_was_decided() {
    let asking = |decided, asked: Option<i64>, interval| Asking {
        decided,
        asked: asked.map(at),
        interval,
        until: at(600),
    };
    for (device, now, told) in [
        (asking(false, None, 5), 0, Next::Wait),
        (asking(false, Some(0), 5), 5, Next::Wait),
        (asking(false, Some(5), 5), 7, Next::Slower(10)),
        (asking(false, Some(7), 10), 12, Next::Slower(15)),
        (asking(false, Some(12), 15), 27, Next::Wait),
        (asking(true, Some(27), 15), 28, Next::Tell),
        (asking(true, None, 5), 599, Next::Tell),
        (asking(true, None, 5), 600, Next::Over),
        (asking(false, None, 5), 600, Next::Over),
    ] {
        assert_eq!(next(&device, at(now)), told, "{device:?} {now}");
    }
}

#[test]
fn a_code_is_found_however_it_is_typed() {
    let code = user_code([0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(code, "BCDF-GHJK");
    for same in ["BCDF-GHJK", "bcdf ghjk", " bcdfghjk\n"] {
        assert_eq!(typed(same), typed(&code), "{same:?}");
    }
    assert_ne!(typed("BCDF-GHJL"), typed(&code));
}

#[test]
fn what_is_kept_opens_to_what_it_was() {
    let goals = [
        Goal::Device([7; 32]),
        Goal::Loopback {
            redirect: "http://127.0.0.1:1/".to_owned(),
            challenge: "c".to_owned(),
            state: "s".to_owned(),
        },
    ];
    for goal in goals {
        let login = Login {
            state: "s".to_owned(),
            browser: [1; 32],
            from: String::new(),
            nonce: "n".to_owned(),
            verifier: Secret::new("v".to_owned()),
            goal: goal.clone(),
            until: at(0),
        };
        let (nonce, verifier, same) = Login::opened(&login.kept()).unwrap();
        assert_eq!(
            (nonce.as_str(), verifier.expose().as_str(), same),
            ("n", "v", goal)
        );
    }
    let ready = Ready {
        user_id: "ada".to_owned(),
        refresh: Some(Secret::new("r".to_owned())),
        until: at(9),
    };
    let same = |opened: &Ready| {
        let refresh = opened.refresh.as_ref().map(|r| r.expose().clone());
        (opened.user_id.clone(), refresh, opened.until)
    };
    assert_eq!(same(&Ready::opened(&ready.kept()).unwrap()), same(&ready));
    let (challenge, opened) = Ready::opened_for(&ready.kept_for("c")).unwrap();
    assert_eq!((challenge.as_str(), same(&opened)), ("c", same(&ready)));
    assert!(Ready::opened(&Secret::new("{}".to_owned())).is_none());
}
