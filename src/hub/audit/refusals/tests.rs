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
    let mut refusals = Refusals::new(start);
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
    let mut refusals = Refusals::new(start);
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
    let mut refusals = Refusals::new(start);
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
    let (mut refusals, mut records, mut counted) = (Refusals::new(start), 0_u64, 0);
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
