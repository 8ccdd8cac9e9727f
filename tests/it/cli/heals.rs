//! Heals as an operator looks for them, however large they are and however many.

use super::Home;
use super::access::execute;
use super::hub::Hub;

fn id(number: u32) -> String {
    format!("01900000-0000-7000-8000-{number:012}")
}

/// Puts the heals from one number to another on record as the store has them, each with so much evidence.
fn put(hub: &Hub, cluster: &str, (first, last): (u32, u32), bytes: usize) {
    let half = bytes / 2;
    execute(
        hub.data(),
        format!(
            "WITH RECURSIVE
               n (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM n WHERE n < {last}),
               new (id) AS (SELECT printf('01900000-0000-7000-8000-%012d', n) FROM n)
             INSERT INTO heal (id, cluster_id, class, result, detected_at, record, created_at, updated_at)
             SELECT new.id, c.id, 'ObjectMissing', 'open', '2026-01-01T00:00:00.000Z',
               json_object('id', new.id, 'class', 'ObjectMissing', 'object', 'Deployment a/b',
                 'evidence', hex(zeroblob({half})), 'steps', json('[]'),
                 'detectedAt', '2026-01-01T00:00:00.000Z', 'result', 'open'), 1, 1
             FROM new JOIN cluster c ON c.name = '{cluster}'"
        ),
    );
}

fn hub_with_two(home: &Home) -> Hub {
    let hub = Hub::start(home);
    hub.log_in(home);
    Hub::import(home);
    for name in ["eu1", "us1"] {
        assert_eq!(home.run(&["cluster", "add", name]).code, 0);
    }
    hub
}

/// What one agent has told, more than an answer may have, hides no other cluster's heals.
#[test]
fn large_heals_of_one_cluster_hide_none_of_another() {
    const LARGE: u32 = 20;
    let home = Home::new();
    let hub = hub_with_two(&home);
    put(&hub, "us1", (1, 1), 10);
    put(&hub, "eu1", (2, LARGE + 1), 900 << 10);
    let listed = home.run(&["heal", "list", "-o", "name"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    let ids: Vec<String> = (1..=LARGE + 1).rev().map(id).collect();
    assert_eq!(listed.out.lines().collect::<Vec<_>>(), ids);
    let shown = home.run(&["heal", "show", "000000000001"]);
    assert!(shown.code == 0 && shown.out.contains("us1"), "{shown:?}");
    let closed = home.run(&["heal", "close", "000000000001", "--reason", "seen"]);
    assert_eq!(closed.code, 0, "{closed:?}");
}

/// Among many a part of an id is looked for so far; the whole one names the heal, be it the oldest.
#[test]
fn an_old_heal_is_found_by_its_whole_id() {
    let home = Home::new();
    let hub = hub_with_two(&home);
    put(&hub, "us1", (1, 1), 10);
    put(&hub, "eu1", (2, 5_001), 10);
    for verb in [&["show"][..], &["close", "--reason", "seen"]] {
        let part = [&["heal"][..], verb, &["000000000001"]].concat();
        home.run(&part)
            .fails(3, "no heal '000000000001' among the newest 5000");
        let id = id(1);
        let whole = home.run(&[&["heal"][..], verb, &[id.as_str()]].concat());
        assert_eq!(whole.code, 0, "{whole:?}");
        let told = format!("{}{}", whole.out, whole.err);
        assert!(told.contains("us1"), "{whole:?}");
    }
    home.run(&["heal", "show", &id(9_999)])
        .fails(3, "show a heal");
}

/// What is open for long is not hidden by what was mended since, and a list that leaves something out says so.
#[test]
fn an_open_heal_is_found_behind_more_than_a_list_shows() {
    let home = Home::new();
    let hub = hub_with_two(&home);
    put(&hub, "us1", (1, 1), 10);
    put(&hub, "eu1", (2, 52), 10);
    execute(
        hub.data(),
        format!(
            "UPDATE heal SET result = 'healed', restored_at = '2026-01-01T00:00:09.000Z',
               record = json_set(record, '$.result', 'healed', '$.restoredAt', '2026-01-01T00:00:09.000Z')
             WHERE id <> '{}'",
            id(1)
        ),
    );
    let ids = |args: &[&str]| {
        let ran = home.run(&[&["heal", "list", "-o", "name"][..], args].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        let listed: Vec<String> = ran.out.lines().map(str::to_owned).collect();
        (listed, ran.err)
    };
    let newest: Vec<String> = (3..=52).rev().map(id).collect();
    let cut = "there are more than the newest 50: see them with a higher --limit\n";
    assert_eq!(ids(&[]), (newest, cut.to_owned()));
    let all: Vec<String> = (1..=52).rev().map(id).collect();
    assert_eq!(ids(&["--limit", "52"]), (all, String::new()));
    assert_eq!(ids(&["--open"]), (vec![id(1)], String::new()));
    assert_eq!(ids(&["--open", "eu1"]), (Vec::new(), String::new()));
}
