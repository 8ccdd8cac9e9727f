use super::*;

fn refusal(remote: &str, target: &str) -> Entry {
    Entry {
        actor: "agent:eu1".to_owned(),
        action: "line.open".to_owned(),
        cluster: Some("eu1".to_owned()),
        target: target.to_owned(),
        verdict: Verdict::Deny,
        reason: Some("the key is not registered".to_owned()),
        remote: remote.to_owned(),
        ..Entry::default()
    }
}

fn reasons(due: &[Entry]) -> Vec<(&str, &str)> {
    due.iter()
        .map(|entry| (entry.remote.as_str(), entry.reason.as_deref().unwrap()))
        .collect()
}

const AGAIN: &str = "the key is not registered (2 times since the record before; this is the last)";

#[test]
fn the_first_is_recorded_at_once_and_the_rest_by_the_minute() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut refusals = Refusals::new(Whose::Unknown, start);
    let first = refusal("192.0.2.7:1000", "k");
    assert_eq!(refusals.note(first.clone(), at(0)), Some(first));
    assert_eq!(refusals.note(refusal("192.0.2.7:1001", "k"), at(1)), None);
    assert_eq!(refusals.note(refusal("192.0.2.7:1002", "k"), at(2)), None);
    // Another key, and another address, are another refusal.
    for other in [refusal("192.0.2.7:1", "l"), refusal("192.0.2.8:1", "k")] {
        assert_eq!(refusals.note(other.clone(), at(3)), Some(other));
    }
    assert_eq!(refusals.due(at(59), false), []);
    assert_eq!(
        reasons(&refusals.due(at(60), false)),
        [("192.0.2.7:1002", AGAIN)]
    );
    assert_eq!(refusals.note(refusal("192.0.2.7:1003", "k"), at(61)), None);
    assert_eq!(refusals.due(at(119), false), []);
    assert_eq!(refusals.due(at(120), false).len(), 1);
    // After a minute without one it is the first again.
    assert_eq!(refusals.due(at(180), false), []);
    let later = refusal("192.0.2.7:1004", "k");
    assert_eq!(refusals.note(later.clone(), at(181)), Some(later));
}

#[test]
fn what_is_counted_is_told_at_the_end() {
    let start = Instant::now();
    let mut refusals = Refusals::new(Whose::Unknown, start);
    for port in 1..=3 {
        refusals.note(refusal(&format!("192.0.2.7:{port}"), "k"), start);
    }
    assert_eq!(
        reasons(&refusals.due(start, true)),
        [("192.0.2.7:3", AGAIN)]
    );
    assert_eq!(refusals.due(start, true), []);
}

#[test]
fn one_address_is_told_apart_in_so_many_ways_and_leaves_room_for_others() {
    let start = Instant::now();
    let mut refusals = Refusals::new(Whose::Unknown, start);
    let mut recorded = 0;
    for key in 0..1_000 {
        // 2^64 addresses are one network.
        let from = format!("[2001:db8::{key:x}]:1");
        recorded += usize::from(
            refusals
                .note(refusal(&from, &key.to_string()), start)
                .is_some(),
        );
    }
    assert_eq!((recorded, refusals.kinds.len()), (OF_ONE, OF_ONE));
    let other = refusal("192.0.2.7:1", "k");
    assert_eq!(refusals.note(other.clone(), start), Some(other));
    let beyond = refusals.due(start + EVERY, false);
    let text = "968 refusals of callers that nobody knows were too many to be told apart; the hub's log has each";
    assert_eq!(reasons(&beyond), [("", text)]);
}

#[test]
fn a_flood_from_everywhere_makes_few_records_and_each_is_counted() {
    let start = Instant::now();
    let (mut refusals, mut records, mut counted) = (Refusals::new(Whose::Unknown, start), 0_u64, 0);
    let count = |entries: Vec<Entry>| -> (u64, u64) {
        let numbers = entries.iter().map(|entry| {
            let reason = entry.reason.as_deref().unwrap();
            let mut digits = reason.split(|c: char| !c.is_ascii_digit());
            digits.find_map(|n| n.parse::<u64>().ok()).unwrap()
        });
        (entries.len() as u64, numbers.sum())
    };
    let mut sent = 0;
    for minute in 0..60_u32 {
        let now = start + EVERY * minute;
        for n in 0..2_000_u32 {
            let from = format!("10.{}.{}.{}:1", minute % 2, n / 250, n % 250);
            sent += 1;
            let first = refusals.note(refusal(&from, "k"), now);
            records += u64::from(first.is_some());
            counted += u64::from(first.is_some());
            assert!(refusals.kinds.len() <= MOST);
        }
        let (made, told) = count(refusals.due(now + EVERY, false));
        (records, counted) = (records + made, counted + told);
    }
    let (made, told) = count(refusals.due(start + EVERY * 61, true));
    (records, counted) = (records + made, counted + told);
    assert_eq!(counted, sent);
    let most = u64::from(AT_ONCE) + 61 * (EVERY.as_secs() / EARNED.as_secs() + 1);
    assert!(records <= most, "{records} of {most}");
}

fn of_user(name: &str, cluster: &str, port: u16) -> Entry {
    Entry {
        actor: format!("user:{name}"),
        action: "kube.get".to_owned(),
        cluster: Some(cluster.to_owned()),
        target: format!("/api/v1/namespaces/{port}"),
        verdict: Verdict::Deny,
        reason: Some(format!("{name} has no grant on cluster {cluster}")),
        remote: format!("192.0.2.7:{port}"),
        ..Entry::default()
    }
}

/// What a kubectl and a controller of a user are refused: somebody may ask for each by its id.
#[test]
fn a_user_has_a_record_of_each_refusal() {
    let start = Instant::now();
    let mut counted = Counted::new(start);
    for n in 0..2_000_u16 {
        let now = start + Duration::from_secs(3 * u64::from(n));
        let entry = of_user("eve", "eu1", n);
        assert_eq!(counted.user(entry.clone(), now), Some(entry));
        assert_eq!(counted.due(now, false), []);
    }
}

/// The first ones are a record each, and so is what is refused for the first time meanwhile; the rest is counted by the minute, and
/// others have their own.
#[test]
fn the_flood_of_a_user_is_counted_and_hides_nothing_else() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut counted = Counted::new(start);
    let flood = 0..1_000_u16;
    let recorded = flood.filter(|n| counted.user(of_user("eve", "eu1", *n), start).is_some());
    // Those before the reserve is begun, and the first one that is counted from then on.
    let own = usize::try_from(AT_ONCE - RESERVE).unwrap() + 1;
    assert_eq!(recorded.count(), own);
    for other in [of_user("eve", "eu2", 1), of_user("ada", "eu1", 1)] {
        assert_eq!(counted.user(other.clone(), at(1)), Some(other));
    }
    assert_eq!(counted.due(at(59), false), []);
    let told = counted.due(at(60), false);
    let rest = 1_000 - own;
    let again = format!(
        "eve has no grant on cluster eu1 ({rest} times since the record before; this is the last)"
    );
    assert_eq!(reasons(&told), [("192.0.2.7:999", again.as_str())]);
    assert_eq!(told[0].actor, "user:eve");
    // When it is over, each is a record again, and nothing is kept of it.
    let later = of_user("eve", "eu1", 7);
    assert_eq!(counted.user(later.clone(), at(3_600)), Some(later));
    assert_eq!(counted.due(at(3_600), false), []);
    assert_eq!(counted.due(at(7_200), false), []);
    assert!(counted.users.is_empty(), "{:?}", counted.users);
}

/// Whatever they think of: in 400 days one user alone makes fewer records than are kept.
#[test]
fn a_user_who_asks_for_something_else_each_time_makes_few_records_and_each_is_counted() {
    const MINUTES: u32 = 60;
    const EACH: u32 = 2_000;
    let start = Instant::now();
    let (mut counted, mut records, mut sum) = (Counted::new(start), 0_u64, 0_u64);
    let told = |due: Vec<Entry>| -> (u64, u64) {
        let numbers = due.iter().map(|entry| {
            assert_eq!(entry.actor, "user:eve");
            let reason = entry.reason.as_deref().unwrap();
            let times = reason.rsplit_once('(').map_or(reason, |(_, times)| times);
            let number = times.split(' ').next().unwrap();
            number.parse::<u64>().unwrap()
        });
        (due.len() as u64, numbers.sum())
    };
    for minute in 0..MINUTES {
        let now = start + EVERY * minute;
        for n in 0..EACH {
            let cluster = format!("eu{}", minute * EACH + n);
            let first = counted.user(of_user("eve", &cluster, 1), now);
            records += u64::from(first.is_some());
            sum += u64::from(first.is_some());
        }
        let (made, number) = told(counted.due(now + EVERY, false));
        (records, sum) = (records + made, sum + number);
    }
    let (made, number) = told(counted.due(start + EVERY * (MINUTES + 1), true));
    (records, sum) = (records + made, sum + number);
    assert_eq!(sum, u64::from(MINUTES * EACH));
    let minutes = u64::from(MINUTES + 1);
    let most = u64::from(AT_ONCE) + minutes * (EVERY.as_secs() / EARNED.as_secs() + 1);
    assert!(records <= most, "{records} of {most}");
}

/// A rollout that is broken, of more programs than are looked at alone: the first refusal of one is a record, and the rest is counted.
#[test]
fn users_for_whom_alone_there_is_no_room_are_counted_together() {
    let start = Instant::now();
    let mut counted = Counted::new(start);
    for n in 0..USERS {
        let entry = of_user(&format!("alone{n}"), "eu1", 1);
        assert_eq!(counted.user(entry.clone(), start), Some(entry));
    }
    let mut recorded = Vec::new();
    for port in 0..10 {
        for n in 0..300 {
            let entry = of_user(&format!("beyond{n}"), "eu1", port);
            recorded.extend(counted.user(entry, start));
        }
    }
    // One of each that can be told apart, which is no more than of callers that nobody knows.
    let first: Vec<Entry> = (0..MOST)
        .map(|n| of_user(&format!("beyond{n}"), "eu1", 0))
        .collect();
    assert_eq!(recorded, first);
    let due = counted.due(start + EVERY, false);
    let one = due.iter().find(|entry| entry.actor == "user:beyond7");
    let again =
        "beyond7 has no grant on cluster eu1 (9 times since the record before; this is the last)";
    assert_eq!(one.and_then(|entry| entry.reason.as_deref()), Some(again));
    let rest = due.iter().find(|entry| entry.actor == "anyone");
    let text = "440 refusals were too many to be told apart, of users beyond the 4096 who were refused at the same time";
    assert_eq!(rest.and_then(|entry| entry.reason.as_deref()), Some(text));
    assert_eq!(due.len(), MOST + 1);
    assert_eq!(counted.users.len(), 0);
}
