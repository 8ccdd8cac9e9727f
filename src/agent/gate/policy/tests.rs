use super::*;
use time::{Date, Month, Time};

const NOW: &str = "2026-11-21T12:00:00Z";

fn parse(rows: &[(&str, &str)]) -> Result<Policy, PolicyError> {
    let owned = rows.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    Policy::parse(&owned.collect(), parse_rfc3339(NOW).unwrap())
}

#[test]
fn no_config_map_means_what_the_hub_grants() {
    assert_eq!(parse(&[]), Ok(Policy::default()));
    assert_eq!(
        parse(&[("line", "on"), ("heal", "on"), ("readOnly", "false")]),
        Ok(Policy::default())
    );
}

#[test]
fn each_key_narrows() {
    let policy = parse(&[
        ("line", "off"),
        ("readOnly", "true"),
        ("maxGroups", "3"),
        ("namespaces", "a, b"),
        ("nodeProxy", "deny"),
        ("ownNamespace", "deny"),
    ]);
    let expected = Policy {
        line: false,
        read_only: true,
        max_groups: 3,
        namespaces: Some(["a".to_owned(), "b".to_owned()].into()),
        hours: None,
        node_proxy: false,
        own_namespace: false,
        mending: Mending::default(),
    };
    assert_eq!(policy, Ok(expected));
    let open = Policy {
        own_namespace: true,
        ..Policy::default()
    };
    assert_eq!(parse(&[("ownNamespace", "allow")]), Ok(open));
}

#[test]
fn what_cannot_be_read_makes_the_policy_invalid() {
    for row in [
        ("Line", "on"),
        ("line", "yes"),
        ("readOnly", "True"),
        ("maxGroups", "33"),
        ("maxGroups", "-1"),
        ("namespaces", ""),
        ("namespaces", "a,,b"),
        ("namespaces", "A"),
        ("hours", "always"),
        ("hours", "Mon 25:00-26:00"),
        ("hours", "Mon-Foo 08:00-09:00"),
        ("nodeProxy", "on"),
        ("ownNamespace", "true"),
        ("heal", "Off"),
        ("heal", "false"),
        ("heal", ""),
        ("pausedUntil", ""),
        ("pausedUntil", "2h"),
        ("pausedUntil", "2026-11-21"),
        ("pausedUntil", "2026-11-21T18:00:00"),
        ("pausedUntil", "2026-11-22T12:00:01Z"),
    ] {
        assert!(parse(&[row]).is_err(), "{row:?}");
    }
}

#[test]
fn the_owner_says_how_far_the_agent_mends_and_until_when_not() {
    let at = |text| Some(parse_rfc3339(text).unwrap());
    for (rows, heal, paused_until) in [
        (&[("heal", "on")][..], Heal::On, None),
        (&[("heal", " safe ")], Heal::Safe, None),
        (&[("heal", "off"), ("line", "on")], Heal::Off, None),
        (
            &[("pausedUntil", "2026-11-21T18:00:00Z")],
            Heal::On,
            at("2026-11-21T18:00:00Z"),
        ),
        (
            &[("pausedUntil", "2026-11-22T13:00:00+01:00")],
            Heal::On,
            at("2026-11-22T12:00:00Z"),
        ),
        // It is over, and no mistake.
        (
            &[("pausedUntil", "2020-01-01T00:00:00Z"), ("heal", "off")],
            Heal::Off,
            at("2020-01-01T00:00:00Z"),
        ),
    ] {
        let mending = Mending { heal, paused_until };
        let expected = Policy {
            mending,
            ..Policy::default()
        };
        assert_eq!(parse(rows), Ok(expected), "{rows:?}");
    }
}

#[test]
fn hours_are_windows_of_the_week_in_utc() {
    let hours = parse(&[("hours", "Mon-Fri 08:00-18:00, Sat 22:00-02:00")])
        .unwrap()
        .hours
        .unwrap();
    // 2026-11-16 is a Monday.
    let at = |day: u8, hour: u8, minute: u8| {
        let date = Date::from_calendar_date(2026, Month::November, day).unwrap();
        hours.contain(
            date.with_time(Time::from_hms(hour, minute, 0).unwrap())
                .assume_utc(),
        )
    };
    assert!(at(16, 8, 0) && at(20, 17, 59) && at(21, 23, 0) && at(22, 1, 59));
    assert!(!at(16, 7, 59) && !at(20, 18, 0) && !at(21, 12, 0) && !at(22, 2, 0) && !at(21, 1, 0));
    let nightly = parse(&[("hours", "22:00-06:00")]).unwrap().hours.unwrap();
    let date = Date::from_calendar_date(2026, Month::November, 16).unwrap();
    assert!(
        nightly.contain(
            date.with_time(Time::from_hms(23, 0, 0).unwrap())
                .assume_utc()
        )
    );
    assert!(
        !nightly.contain(
            date.with_time(Time::from_hms(12, 0, 0).unwrap())
                .assume_utc()
        )
    );
}
