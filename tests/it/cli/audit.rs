//! The record as programs read it: followed over the hub's end, narrowed, and verified where it is long (a figure, not a
//! test of `make test`).

use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use linesman::hub::audit::chain::{self, Head};
use linesman::hub::audit::retain::{self, Retention};
use linesman::hub::store::sqlite::Sqlite;
use linesman::hub::store::{AuditRow, Store};
use serde_json::{Value, json};

use super::hub::Hub;
use super::{Home, Ran};
use crate::hub::support::TestHub;

const PATIENCE: Duration = Duration::from_secs(30);

/// The lines of a program's output as they come.
fn lines_of(pipe: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (send, lines) = mpsc::sync_channel(1_000);
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// H37: as a service that starts with the machine.
#[test]
fn a_follower_that_is_started_while_the_hub_is_away_waits_for_it() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    let port = hub.crash();
    let mut follower = home
        .linesman(&["audit", "tail", "--follow", "--last", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let records = lines_of(follower.stdout.take().unwrap());
    let said = lines_of(follower.stderr.take().unwrap());
    let away = said.recv_timeout(PATIENCE).unwrap();
    assert!(away.ends_with("; asking again until it answers"), "{away}");
    let hub = Hub::start_at(&home, port);
    assert_eq!(said.recv_timeout(PATIENCE).unwrap(), "the hub answers");
    assert!(records.recv_timeout(PATIENCE).is_ok());
    follower.kill().unwrap();
    follower.wait().unwrap();
    drop(hub);
}

/// H37: who follows the record goes on over a crash of the hub: each record once, in order, and the silence is told once.
#[test]
fn a_follower_goes_on_over_a_crash_of_the_hub() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    let mut follower = home
        .linesman(&["audit", "tail", "--follow", "--after", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let records = lines_of(follower.stdout.take().unwrap());
    let said = lines_of(follower.stderr.take().unwrap());
    let mut seen: Vec<i64> = Vec::new();
    let mut until_made = |name: &str| {
        assert_eq!(home.run(&["user", "add", name]).code, 0);
        loop {
            let line = records.recv_timeout(PATIENCE).unwrap();
            let record: Value = serde_json::from_str(&line).unwrap();
            seen.push(record["seq"].as_i64().unwrap());
            let target = record["target"].as_str().unwrap();
            if record["action"] == "user.add" && target.starts_with(name) {
                return;
            }
        }
    };
    until_made("ada");
    let port = hub.crash();
    let away = said.recv_timeout(PATIENCE).unwrap();
    assert!(away.ends_with("; asking again until it answers"), "{away}");
    let hub = Hub::start_at(&home, port);
    until_made("bob");
    until_made("cid");
    follower.kill().unwrap();
    follower.wait().unwrap();
    drop(hub);
    let last = *seen.last().unwrap();
    assert_eq!(seen, (1..=last).collect::<Vec<_>>());
    let more: Vec<String> = said.iter().collect();
    assert_eq!(more, ["the hub answers again"]);
}

/// The table says why, and a request is found by the id that its refusal names.
#[test]
fn a_refusal_is_listed_with_its_reason() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    assert_eq!(home.run(&["user", "add", "eve"]).code, 0);
    let create = ["token", "create", "--user", "eve", "--title", "laptop"];
    let made = home.run(&create);
    assert_eq!(made.code, 0, "{made:?}");
    let url = format!("{}/clusters/eu1/version", hub.url);
    let (code, status) = hub.get(&url, made.out.trim());
    assert_eq!(code, 403);
    let message = status["message"].as_str().unwrap();
    let (_, id) = message.rsplit_once("(request ").unwrap();
    let id = id.trim_end_matches(')');
    for format in ["table", "wide"] {
        let listed = home.run(&["audit", "list", "--request", id, "-o", format]);
        let lines: Vec<&str> = listed.out.lines().collect();
        assert!(
            listed.code == 0
                && lines.len() == 2
                && lines[0].ends_with(" REASON")
                && lines[1].ends_with(" eve has no grant on cluster eu1"),
            "{listed:?}"
        );
    }
    home.run(&["audit", "list", "--request", "eve"])
        .fails(2, "is not the id of a request");
}

/// What ended goes on where it was, also for those who do not wait.
#[test]
fn records_behind_a_number_are_printed_and_no_others() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    for name in ["ada", "bob", "cid"] {
        assert_eq!(home.run(&["user", "add", name]).code, 0);
    }
    let seqs = |args: &[&str]| -> Vec<i64> {
        let ran = home.run(args);
        assert_eq!(ran.code, 0, "{ran:?}");
        let records = ran.out.lines().map(serde_json::from_str::<Value>);
        records
            .map(|r| r.unwrap()["seq"].as_i64().unwrap())
            .collect()
    };
    let after = ["--after", "1", "--user", "admin"];
    let tail = seqs(&[&["audit", "tail"][..], &after].concat());
    assert_eq!(tail[..2], [2, 3]);
    let export = seqs(&[&["audit", "export"][..], &after].concat());
    assert_eq!(export[..2], [2, 3]);
    let both = home.run(&["audit", "tail", "--after", "1", "--last", "2"]);
    assert_eq!((both.code, both.out.as_str()), (2, ""), "{both:?}");
    drop(hub);
}

/// By their names and beginnings; what can be neither is refused.
#[test]
fn records_of_an_action_are_printed_and_no_others() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    assert_eq!(home.run(&["user", "add", "ada"]).code, 0);
    let named = ["--action", "user.*", "--action", "token.create"];
    let tail = home.run(&[&["audit", "tail"][..], &named].concat());
    assert_eq!(tail.code, 0, "{tail:?}");
    let actions = tail.out.lines().map(|line| {
        let mut record: Value = serde_json::from_str(line).unwrap();
        record["action"].take()
    });
    assert_eq!(actions.collect::<Vec<_>>(), [json!("user.add")]);
    let wide = home.run(&["audit", "list", "--action", "user.add", "-o", "wide"]);
    let head = wide.out.lines().next().unwrap_or_default();
    let columns: Vec<&str> = head.split_whitespace().collect();
    let last = ["CONTAINER", "PORTS", "COMMAND", "REASON"];
    assert!(columns.ends_with(&last), "{wide:?}");
    let none = home.run(&["audit", "list", "--action", "user"]);
    let told = (none.code, none.err.as_str());
    assert_eq!(told, (0, "no audit records\n"), "{none:?}");
    home.run(&["audit", "list", "--action", "User.*"])
        .fails(2, "is not one to 32 actions");
    home.run(&["audit", "export", "--namespace", "a_b"])
        .fails(2, "is not the name of a namespace");
    drop(hub);
}

/// What has no answer got none, which looked like an answer.
#[test]
fn a_question_without_an_answer_is_told_as_such() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    home.run(&["audit", "list", "--since", "1h", "--until", "2h"])
        .fails(2, "lies before --since");
    for verb in ["tail", "export"] {
        let ran = home.run(&["audit", verb, "--after", "99999"]);
        let told = "there is no record 99999 yet, the newest is ";
        let found = ran.code == 0 && ran.out.is_empty() && ran.err.contains(told);
        assert!(found, "{ran:?}");
    }
    let unknown = |ran: &Ran, name: &str| {
        assert_eq!(ran.code, 0, "{ran:?}");
        let told = format!("warning: there is no cluster '{name}' now");
        ran.err.contains(&told)
    };
    for verb in ["list", "tail", "export"] {
        let ran = home.run(&["audit", verb, "--cluster", "nope"]);
        assert!(unknown(&ran, "nope"), "{ran:?}");
    }
    Hub::import(&home);
    assert_eq!(home.run(&["cluster", "add", "eu1"]).code, 0);
    let list = ["audit", "list", "--cluster", "eu1"];
    let ran = home.run(&list);
    assert!(!unknown(&ran, "eu1"), "{ran:?}");
    // Its records are there still.
    assert_eq!(home.run(&["cluster", "remove", "eu1", "--yes"]).code, 0);
    let ran = home.run(&list);
    let found = unknown(&ran, "eu1") && ran.out.contains(" cluster.add ");
    assert!(found, "{ran:?}");
    // Who reads the record alone may not look clusters up, and is not refused on record.
    let create = ["token", "create", "--title", "siem", "--scope", "auditor"];
    let made = home.run(&[&create[..], &["--file", "siem.token"]].concat());
    assert_eq!(made.code, 0, "{made:?}");
    let narrow = ["--cluster", "nope", "--token-file", "siem.token"];
    let ran = home.run(&[&["audit", "list"][..], &narrow].concat());
    assert!(!unknown(&ran, "nope"), "{ran:?}");
    let denied = home.run(&["audit", "list", "--verdict", "deny"]);
    let told = (denied.code, denied.err.as_str());
    assert_eq!(told, (0, "no audit records\n"), "{denied:?}");
    drop(hub);
}

/// The program at a hub that is in the test's hands.
fn at(hub: &TestHub, home: &Home, args: &[&str]) -> Command {
    let mut command = home.linesman(args);
    command
        .env("LINESMAN_HUB", &hub.hub.config.url)
        .env("LINESMAN_TOKEN_FILE", hub.data().join("admin.token"))
        .env("LINESMAN_CA_FILE", hub.data().join("ca.crt"));
    command
}

async fn users(hub: &TestHub, names: &[&str]) {
    for name in names {
        assert_eq!(hub.post("/v1/users", &json!({"name": name})).await.0, 201);
    }
}

fn numbers(ran: &Ran) -> Vec<i64> {
    let records = ran.out.lines().map(serde_json::from_str::<Value>);
    records
        .map(|record| record.unwrap()["seq"].as_i64().unwrap())
        .collect()
}

/// H37: who goes on behind a record is told which retention took since then, beside the others: a file of these stays JSON lines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_retention_took_before_they_were_read_are_named() {
    let hub = TestHub::start("cli-audit-gap").await;
    let home = Home::new();
    let run = |args: &[&str]| Ran::of(&at(&hub, &home, args).output().unwrap());
    users(&hub, &["ada", "bob"]).await;
    let before = run(&["audit", "export"]);
    assert_eq!((before.code, before.err.as_str()), (0, ""), "{before:?}");
    let last = *numbers(&before).last().unwrap();
    users(&hub, &["cid", "dan", "eve", "fay", "gil"]).await;
    let keep = Retention {
        records: 2,
        ..Retention::default()
    };
    let (store, audit) = (&hub.hub.store, &hub.hub.audit);
    let now = linesman::clock::now();
    let round = retain::round(store, audit, keep, Some(now)).await;
    round.unwrap();
    let kept = [*audit.head().borrow() - 1, *audit.head().borrow()];
    let (first, gone) = (last + 1, kept[0] - 1);
    let after = last.to_string();
    let behind = gone.to_string();
    let missing =
        format!("records {first} to {gone} are missing: the hub's retention removed them");
    let some = format!(
        "the hub's retention removed records {first} to {gone}: those that the filter asks for are missing"
    );
    let rows: [(&[&str], &str); 7] = [
        (&["export", "--after", &after], &missing),
        (&["tail", "--after", &after], &missing),
        (&["export", "--after", &after, "--user", "admin"], &some),
        (&["tail", "--after", &after, "--user", "admin"], &some),
        // Whoever asks for all that there is misses nothing of it, nor does whoever has seen what is gone.
        (&["export"], ""),
        (&["export", "--user", "admin"], ""),
        (&["export", "--after", &behind], ""),
    ];
    for (args, said) in rows {
        let ran = run(&[&["audit"][..], args].concat());
        assert_eq!((ran.code, ran.err.trim_end()), (0, said), "{args:?}");
        assert_eq!(numbers(&ran)[..2], kept, "{args:?}");
    }
    let follow = ["audit", "tail", "--follow", "--after", &after];
    let mut follower = at(&hub, &home, &follow)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let records = lines_of(follower.stdout.take().unwrap());
    let said = lines_of(follower.stderr.take().unwrap());
    assert_eq!(said.recv_timeout(PATIENCE).unwrap(), missing);
    let record: Value = serde_json::from_str(&records.recv_timeout(PATIENCE).unwrap()).unwrap();
    assert_eq!(record["seq"].as_i64(), Some(kept[0]));
    follower.kill().unwrap();
    follower.wait().unwrap();
    hub.stop().await;
}

const RECORDS: i64 = 1_000_000;
/// hub.md §9, of the built program: this one is built for debugging.
const BAR: Duration = Duration::from_secs(10);

/// Requests of many users on many clusters, each with its open and its close.
async fn fill(data: &Path) {
    let store = Store::Sqlite(Sqlite::open(data).await.unwrap());
    let id = store.hub_id().await.unwrap();
    let last = store.audit_head().await.unwrap();
    let mut head = last.map_or_else(
        || chain::genesis(&id),
        |row| Head {
            seq: row.seq,
            hash: row.hash,
        },
    );
    while head.seq < RECORDS {
        let mut batch = Vec::with_capacity(10_000);
        while batch.len() < 10_000 && head.seq < RECORDS {
            let row = next(head);
            head = Head {
                seq: row.seq,
                hash: row.hash,
            };
            batch.push(row);
        }
        store.append_audit(&batch).await.unwrap();
    }
}

fn next(head: Head) -> AuditRow {
    let seq = head.seq + 1;
    let closes = seq % 2 == 0;
    let mut row = AuditRow {
        seq,
        at: 1_790_000_000_000 + seq * 7,
        stage: if closes { "close" } else { "open" }.to_owned(),
        actor: format!("user:person-{}@example.org", seq / 2 % 97),
        action: "kube.list".to_owned(),
        acted_as: None,
        cluster: Some(format!("cluster-{}", seq / 2 % 41)),
        target: format!("/api/v1/namespaces/team-{}/pods", seq / 2 % 13),
        container: None,
        command: None,
        ports: None,
        request_id: format!("0197a1b2-c3d4-7e5f-8a9b-{:012x}", seq / 2),
        verdict: "allow".to_owned(),
        reason: None,
        opened: closes.then_some(head.seq),
        code: closes.then_some(200),
        bytes: closes.then_some(12_345),
        exit: None,
        millis: closes.then_some(17),
        remote: "192.0.2.17:40512".to_owned(),
        prev: head.hash,
        hash: [0; 32],
    };
    row.hash = chain::hash(&row);
    row
}

fn size(data: &Path) -> u64 {
    let files = ["hub.db", "hub.db-wal"];
    let sizes = files.map(|name| std::fs::metadata(data.join(name)).map_or(0, |m| m.len()));
    sizes.iter().sum()
}

/// hub.md §9: a million records are verified within 10 s, in the database and through the hub.
#[test]
#[ignore = "a figure: cargo test --test it -- --ignored --nocapture a_million"]
fn a_million_records_are_verified() {
    let home = Home::new();
    let data = {
        let hub = Hub::start(&home);
        hub.data().to_owned()
    };
    let begun = Instant::now();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(fill(&data));
    println!(
        "{RECORDS} records made in {:.1?}, {} bytes on disk",
        begun.elapsed(),
        size(&data)
    );
    let verify = |how: &str, args: &[&str]| {
        let begun = Instant::now();
        let ran = home.run(&[&["audit", "verify"], args].concat());
        let took = begun.elapsed();
        assert!(
            ran.code == 0 && ran.out.starts_with("the audit is whole: "),
            "{ran:?}"
        );
        println!(
            "figure | audit verify, {how} | ≤ {} s | {:.1} s",
            BAR.as_secs(),
            took.as_secs_f64()
        );
    };
    verify("the database", &["--data", data.to_str().unwrap()]);
    let hub = Hub::start(&home);
    hub.log_in(&home);
    verify("through the hub", &[]);
}
