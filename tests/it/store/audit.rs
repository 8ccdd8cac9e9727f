//! The audit's rows as they are stored; the chain itself has its own tests.

use futures_util::future::join_all;
use linesman::hub::audit::chain::{self, Hashed};
use linesman::hub::store::{Anchor, AuditQuery, AuditRow, LOOKED_AT, OfRequest, Replica, Store};

use super::{Place, at, on_both};

on_both! {
    records_come_back_as_they_were_and_as_they_were_hashed,
    of_two_records_with_one_number_one_is_stored,
    what_several_write_is_one_chain,
    what_a_forgotten_replica_left_open_is_abandoned,
    a_query_narrows_by_all_that_it_names,
    a_query_finds_all_of_a_time,
    a_query_finds_what_one_request_left,
    a_record_of_a_wrong_clock_makes_none_before_it_old,
    what_is_pruned_leaves_an_anchor,
    what_runs_is_carried_on_for_its_replica,
    a_sink_goes_on_where_it_was,
}

/// A chain of records, as the hub makes them.
fn chained(count: i64) -> Vec<AuditRow> {
    let mut head = chain::genesis("hub-1").hash;
    let mut rows = Vec::new();
    for seq in 1..=count {
        let text = [
            "",
            "/api/v1/pods",
            "\"\\/'`\u{1f}\n\u{7f}\u{2028}\u{1f6a2}%s{}",
        ];
        let text = text[usize::try_from(seq).unwrap() % 3];
        let mut row = AuditRow {
            seq,
            at: 1_790_000_000_000 + seq,
            stage: ["open", "close", "event"][usize::try_from(seq).unwrap() % 3].to_owned(),
            actor: format!("user:{}", seq % 4),
            action: "kube.get".to_owned(),
            acted_as: (seq % 5 == 0).then(|| text.to_owned()),
            cluster: (seq % 2 == 0).then(|| "eu1".to_owned()),
            target: text.to_owned(),
            request_id: format!("r{seq}"),
            verdict: ["allow", "deny"][usize::from(seq % 7 == 0)].to_owned(),
            reason: (seq % 7 == 0).then(|| text.to_owned()),
            opened: (seq % 3 == 1).then_some(seq - 1),
            code: (seq % 3 == 1).then_some(u16::MAX),
            bytes: (seq % 3 == 1).then_some(i64::MAX.unsigned_abs()),
            exit: (seq % 4 == 1).then_some(-1),
            millis: (seq % 3 == 1).then_some(0),
            remote: "192.0.2.1".to_owned(),
            prev: head,
            hash: [0; 32],
        };
        row.hash = chain::hash(&row);
        head = row.hash;
        rows.push(row);
    }
    rows
}

async fn stored(store: &Store, count: i64) -> Vec<AuditRow> {
    let rows = chained(count);
    for batch in rows.chunks(100) {
        store.append_audit(batch).await.unwrap();
    }
    rows
}

async fn records_come_back_as_they_were_and_as_they_were_hashed(store: Store) {
    assert_eq!(store.audit_head().await.unwrap(), None);
    assert!(store.audit_lines(0, 9).await.unwrap().is_empty());
    let rows = stored(&store, 500).await;
    assert_eq!(store.audit(0, None, 1_000).await.unwrap(), rows);
    assert_eq!(store.audit_head().await.unwrap().as_ref(), rows.last());
    assert_eq!(store.audit_tail(None, 7).await.unwrap(), rows[493..]);
    let lines = store.audit_lines(0, 1_000).await.unwrap();
    let read = Hashed::read(&lines).expect("each line is what its hash was made of");
    assert_eq!((read.len(), read.last()), (500, Some(500)));
    let one = store.audit_lines(498, 1).await.unwrap();
    assert_eq!(Hashed::read(&one).unwrap().last(), Some(499));
    let open: Vec<i64> = store
        .audit_open()
        .await
        .unwrap()
        .iter()
        .map(|r| r.seq)
        .collect();
    assert!(open.is_empty(), "{open:?}");
}

async fn of_two_records_with_one_number_one_is_stored(store: Store) {
    let rows = stored(&store, 3).await;
    let next = chained(4).remove(3);
    let other = AuditRow {
        actor: "user:else".to_owned(),
        ..next.clone()
    };
    let both = [
        store.append_audit(std::slice::from_ref(&next)),
        store.append_audit(std::slice::from_ref(&other)),
    ];
    let stored = join_all(both).await.into_iter().flatten();
    assert_eq!(stored.count(), 1);
    let now = store.audit(0, None, 9).await.unwrap();
    assert_eq!(now[..3], rows);
    assert!(now[3..] == [next] || now[3..] == [other]);
}

/// A record that is not chained yet.
fn loose(stage: &str, opened: Option<i64>) -> AuditRow {
    AuditRow {
        stage: stage.to_owned(),
        opened,
        ..chained(3).remove(2)
    }
}

async fn what_several_write_is_one_chain(store: Store) {
    let floor = chain::genesis("hub-1");
    let write = async |writer: &'static str| {
        for _ in 0..10 {
            let mut rows = vec![loose("open", None), loose("event", None)];
            store.extend_audit(floor, &mut rows, writer).await.unwrap();
            let mut close = [loose("close", Some(rows[0].seq))];
            store.extend_audit(floor, &mut close, writer).await.unwrap();
            assert_eq!(rows[1].seq, rows[0].seq + 1);
        }
    };
    tokio::join!(write("r1"), write("r2"), write("r3"));
    let rows = store.audit(0, None, 1_000).await.unwrap();
    assert_eq!(rows.len(), 90);
    assert_eq!(chain::verify(floor.hash, 0, &rows), Ok(()));
    assert_eq!(open(&store).await, [0_i64; 0]);
    // A second close is left out, and what comes with it is stored.
    let opened = rows.iter().find(|r| r.stage == "open").unwrap().seq;
    let mut both = [loose("close", Some(opened)), loose("event", None)];
    store.extend_audit(floor, &mut both, "r1").await.unwrap();
    assert_eq!(both.each_ref().map(|row| row.seq), [0, 91]);
    let rows = store.audit(0, None, 1_000).await.unwrap();
    assert_eq!(chain::verify(floor.hash, 0, &rows), Ok(()));
    assert_eq!(rows.last(), Some(&both[1]));
}

async fn what_a_forgotten_replica_left_open_is_abandoned(store: Store) {
    let floor = chain::genesis("hub-1");
    for id in ["r1", "r2"] {
        let mut row = [loose("open", None)];
        store.extend_audit(floor, &mut row, id).await.unwrap();
        // A lease that is over is not forgotten yet.
        let over = std::time::Duration::ZERO;
        store.renew_replica(&replica(id), over).await.unwrap();
    }
    assert_eq!(store.audit_abandoned().await.unwrap(), []);
    assert_eq!(open(&store).await, [1, 2]);
    store.leave_replica("r1").await.unwrap();
    let abandoned = store.audit_abandoned().await.unwrap();
    assert_eq!(abandoned.iter().map(|r| r.seq).collect::<Vec<_>>(), [1]);
    let mut close = [loose("close", Some(1))];
    store.extend_audit(floor, &mut close, "r2").await.unwrap();
    assert_eq!(store.audit_abandoned().await.unwrap(), []);
    assert_eq!(open(&store).await, [2]);
}

async fn a_query_narrows_by_all_that_it_names(store: Store) {
    let rows = stored(&store, 100).await;
    let query = AuditQuery {
        after: Some(10),
        before: Some(90),
        actor: Some("user:2".to_owned()),
        cluster: Some("eu1".to_owned()),
        verdict: Some("allow".to_owned()),
        request: None,
        since: Some(1_790_000_000_020),
        until: Some(1_790_000_000_080),
        newest: true,
        limit: 5,
    };
    let wanted = rows.iter().rev().filter(|r| {
        r.seq % 4 == 2 && r.verdict == "allow" && (20..80).contains(&(r.at - 1_790_000_000_000))
    });
    let wanted: Vec<AuditRow> = wanted.take(5).cloned().collect();
    assert_eq!(wanted.len(), 5);
    assert_eq!(store.audit_query(&query).await.unwrap().rows, wanted);
    assert_eq!(store.audit_before(at(50)).await.unwrap(), 49);
    assert_eq!(store.audit_before(at(-5)).await.unwrap(), 0);
}

/// Its beginning and its end, however many are between.
async fn a_query_finds_what_one_request_left(store: Store) {
    let floor = chain::genesis("hub-1");
    let request = |row: AuditRow| AuditRow {
        request_id: "asked".to_owned(),
        ..row
    };
    let mut rows = vec![
        loose("event", None),
        request(loose("open", None)),
        loose("event", None),
        request(loose("close", Some(2))),
        loose("event", None),
    ];
    store.extend_audit(floor, &mut rows, "r1").await.unwrap();
    let at = rows[0].at;
    let found = async |id: &str, from: i64, newest| {
        let query = AuditQuery {
            request: Some(OfRequest {
                id: id.to_owned(),
                from,
            }),
            newest,
            limit: 9,
            ..AuditQuery::default()
        };
        let page = store.audit_query(&query).await.unwrap();
        page.rows.iter().map(|row| row.seq).collect::<Vec<_>>()
    };
    for from in [0, at - 1, at] {
        assert_eq!(found("asked", from, false).await, [2, 4]);
        assert_eq!(found("asked", from, true).await, [4, 2]);
    }
    assert_eq!(found("ask", at, true).await, [0_i64; 0]);
    assert_eq!(found("asked", at + 1, true).await, [0_i64; 0]);
}

/// A record of some other time at the chain's end.
async fn one_more(store: &Store, rows: &mut Vec<AuditRow>, later: i64) {
    let last = rows.last().unwrap();
    let mut row = AuditRow {
        seq: last.seq + 1,
        at: 1_790_000_000_000 + later,
        opened: None,
        prev: last.hash,
        ..last.clone()
    };
    row.hash = chain::hash(&row);
    store
        .append_audit(std::slice::from_ref(&row))
        .await
        .unwrap();
    rows.push(row);
}

/// Numbers are no times: a clock may have been ahead.
async fn a_query_finds_all_of_a_time(store: Store) {
    let mut rows = stored(&store, 100).await;
    for later in [500, 110] {
        one_more(&store, &mut rows, later).await;
    }
    let of_since = async |since: i64, after, newest| {
        let query = AuditQuery {
            after,
            since: Some(1_790_000_000_000 + since),
            newest,
            limit: 200,
            ..AuditQuery::default()
        };
        let found = store.audit_query(&query).await.unwrap();
        found.rows.into_iter().map(|r| r.seq).collect::<Vec<_>>()
    };
    let of_rows = |since: i64| -> Vec<i64> {
        let late = rows.iter().filter(|r| r.at >= 1_790_000_000_000 + since);
        late.map(|r| r.seq).collect()
    };
    for since in [0, 1, 57, 100, 105, 200, 501] {
        assert_eq!(of_since(since, None, false).await, of_rows(since));
        assert_eq!(of_since(since, Some(0), false).await, of_rows(since));
        let falling: Vec<i64> = of_rows(since).into_iter().rev().collect();
        assert_eq!(of_since(since, None, true).await, falling);
    }
    assert_eq!(of_since(57, Some(98), false).await, [99, 100, 101, 102]);
}

/// H37: a hub that starts before its clock is set writes a record of years ago behind those of today; what is young keeps all that
/// is behind it, and only what is before all that is young is old.
async fn a_record_of_a_wrong_clock_makes_none_before_it_old(store: Store) {
    const YEARS: i64 = 5 * 365 * 86_400_000;
    let old = async |than: i64| store.audit_before(at(than)).await.unwrap();
    assert_eq!(old(0).await, 0);
    let mut rows = stored(&store, 100).await;
    one_more(&store, &mut rows, -YEARS).await;
    assert_eq!(old(-5).await, 0);
    assert_eq!(old(50).await, 49);
    assert_eq!(old(100).await, 99);
    assert_eq!(old(101).await, 101);
    // One of years ahead is never old, and those behind it wait for it.
    one_more(&store, &mut rows, YEARS).await;
    one_more(&store, &mut rows, 110).await;
    assert_eq!(old(50).await, 49);
    assert_eq!(old(200).await, 101);
    assert_eq!(old(YEARS + 1).await, 103);
}

async fn what_is_pruned_leaves_an_anchor(store: Store) {
    let rows = stored(&store, 100).await;
    let sizes: Vec<u64> = rows.iter().map(chain::size).collect();
    let newest: u64 = sizes[60..].iter().sum();
    assert_eq!(store.audit_over(newest).await.unwrap(), 60);
    assert_eq!(store.audit_over(newest - 1).await.unwrap(), 61);
    assert_eq!(store.audit_over(u64::MAX).await.unwrap(), 0);
    let anchor = |seq: i64, start| Anchor {
        seq,
        hash: rows[usize::try_from(seq).unwrap() - 1].hash,
        at: 7,
        sig: vec![1, 2],
        start,
    };
    store.add_audit_anchor(&anchor(40, false)).await.unwrap();
    store.add_audit_anchor(&anchor(80, false)).await.unwrap();
    let pruned = store.prune_audit(&anchor(60, true)).await.unwrap();
    assert_eq!(pruned.removed, 60);
    let anchors = store.audit_anchors().await.unwrap();
    assert_eq!(anchors, [anchor(60, true), anchor(80, false)]);
    let between = store.audit_anchors_between(60, 80, 9).await.unwrap();
    assert_eq!(between, [anchor(80, false)]);
    assert_eq!(
        store.audit_anchors_between(0, 79, 9).await.unwrap(),
        anchors[..1]
    );
    assert_eq!(pruned.carried, []);
    assert_eq!(store.audit(0, None, 200).await.unwrap(), rows[60..]);
    assert_eq!(store.audit_over(newest).await.unwrap(), 60);
}

/// The close of a replica finds its open wherever retention has carried that, and the open stays its replica's.
async fn what_runs_is_carried_on_for_its_replica(store: Store) {
    let floor = chain::genesis("hub-1");
    for id in ["r1", "r2"] {
        let mut row = [loose("open", None)];
        store.extend_audit(floor, &mut row, id).await.unwrap();
    }
    let mut rest = [loose("event", None), loose("event", None)];
    store.extend_audit(floor, &mut rest, "r1").await.unwrap();
    let prune = async |last: &AuditRow| {
        let anchor = Anchor {
            seq: last.seq,
            hash: last.hash,
            at: 9,
            sig: vec![1],
            start: true,
        };
        store.prune_audit(&anchor).await.unwrap()
    };
    let pruned = prune(&rest[0]).await;
    let places = |rows: &[AuditRow]| {
        rows.iter()
            .map(|r| (r.seq, r.opened, r.at))
            .collect::<Vec<_>>()
    };
    assert_eq!(pruned.removed, 3);
    assert_eq!(places(&pruned.carried), [(5, Some(1), 9), (6, Some(2), 9)]);
    let mut more = [loose("event", None)];
    store.extend_audit(floor, &mut more, "r1").await.unwrap();
    let pruned = prune(&pruned.carried[0]).await;
    assert_eq!(pruned.removed, 2);
    assert_eq!(places(&pruned.carried), [(8, Some(1), 9)]);
    assert_eq!(open(&store).await, [6, 8]);
    let rows = store.audit(0, None, 99).await.unwrap();
    let start = rows[0].prev;
    assert_eq!(chain::verify(start, 5, &rows), Ok(()));
    // Twice, as where the first answer got lost.
    for seq in [9, 0] {
        let mut close = [loose("close", Some(1))];
        store.extend_audit(floor, &mut close, "r1").await.unwrap();
        assert_eq!((close[0].seq, close[0].opened), (seq, Some(8)));
    }
    assert_eq!(open(&store).await, [6]);
    store
        .renew_replica(&replica("r1"), std::time::Duration::ZERO)
        .await
        .unwrap();
    let abandoned = store.audit_abandoned().await.unwrap();
    assert_eq!(places(&abandoned), [(6, Some(2), 9)]);
}

fn replica(id: &str) -> Replica {
    Replica {
        id: id.to_owned(),
        peer: "192.0.2.1:8444".to_owned(),
        cert_sha256: [1; 32],
    }
}

async fn open(store: &Store) -> Vec<i64> {
    let open = store.audit_open().await.unwrap();
    open.iter().map(|row| row.seq).collect()
}

async fn a_sink_goes_on_where_it_was(store: Store) {
    assert_eq!(store.audit_position("siem").await.unwrap(), None);
    for seq in [3, 9] {
        store.set_audit_position("siem", seq).await.unwrap();
        assert_eq!(store.audit_position("siem").await.unwrap(), Some(seq));
    }
    // The one who sent before, and whose word on it comes late.
    store.set_audit_position("siem", 3).await.unwrap();
    assert_eq!(store.audit_position("siem").await.unwrap(), Some(9));
    // Under another name, and never behind what it is known to have.
    for (there, then) in [(None, 9), (Some(4), 9), (Some(12), 12)] {
        if let Some(there) = there {
            store.set_audit_position("other", there).await.unwrap();
        }
        store.rename_audit_sink("siem", "other").await.unwrap();
        assert_eq!(store.audit_position("siem").await.unwrap(), None);
        assert_eq!(store.audit_position("other").await.unwrap(), Some(then));
        assert_eq!(store.audit_sinks().await.unwrap(), ["other"]);
        store.set_audit_position("siem", 9).await.unwrap();
    }
    store.rename_audit_sink("siem", "siem").await.unwrap();
    store.rename_audit_sink("none", "siem").await.unwrap();
    assert_eq!(store.audit_sinks().await.unwrap(), ["other", "siem"]);
    assert_eq!(store.audit_position("siem").await.unwrap(), Some(9));
}

/// 300,000 records as of a hub that runs for long, nine seconds apart: only the first five are refusals, of cluster `eu9`.
async fn of_long_ago(place: &Place) -> Store {
    const SQLITE: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000)
        INSERT INTO audit (seq, at, stage, actor, action, cluster, target, request_id, verdict, remote, prev, hash)
        SELECT i, i * 9000, 'event', 'user:ada', 'a', CASE WHEN i <= 5 THEN 'eu9' ELSE 'eu1' END, 't', 'r',
          CASE WHEN i <= 5 THEN 'deny' ELSE 'allow' END, '', zeroblob(32), zeroblob(32) FROM n";
    const POSTGRES: &str = "INSERT INTO audit (seq, at, stage, actor, action, cluster, target, request_id, verdict, remote, prev, hash)
        SELECT i, i * 9000, 'event', 'user:ada', 'a', CASE WHEN i <= 5 THEN 'eu9' ELSE 'eu1' END, 't', 'r',
          CASE WHEN i <= 5 THEN 'deny' ELSE 'allow' END, '', decode(repeat('00', 32), 'hex'), decode(repeat('00', 32), 'hex')
        FROM generate_series(1::bigint, 300000::bigint) AS n (i); ANALYZE audit";
    let store = place.open().await;
    let filled = match place {
        Place::File(_) => SQLITE,
        Place::Server(_) => POSTGRES,
    };
    place.execute(filled).await;
    store
}

/// What a query finds, page by page, and how many records were looked at for each page.
async fn looked_through(store: &Store, mut query: AuditQuery) -> (Vec<i64>, Vec<i64>) {
    let (mut found, mut steps) = (Vec::new(), Vec::new());
    let mut from = if query.newest { 300_001 } else { 0 };
    loop {
        let page = store.audit_query(&query).await.unwrap();
        found.extend(page.rows.iter().map(|row| row.seq));
        let Some(looked) = page.looked else {
            return (found, steps);
        };
        steps.push((looked - from).abs());
        from = looked;
        if query.newest {
            query.before = Some(looked);
        } else {
            query.after = Some(looked);
        }
    }
}

/// Of a request, what came since it was made: a third of all, in which the hub looks for others of it to the end.
async fn of_a_request(store: &Store, query: impl Fn(bool) -> AuditQuery) {
    for newest in [true, false] {
        let query = AuditQuery {
            request: Some(OfRequest {
                id: "none".to_owned(),
                from: 200_000 * 9000,
            }),
            after: (!newest).then_some(199_999),
            ..query(newest)
        };
        let (found, steps) = looked_through(store, query).await;
        assert_eq!((found, steps.len() <= 2), (vec![], true), "{steps:?}");
    }
}

async fn a_page_looks_at_a_bounded_number_of_records(place: Place) {
    let store = of_long_ago(&place).await;
    let text = |text: &str| Some(text.to_owned());
    let query = |newest| AuditQuery {
        newest,
        limit: 100,
        ..AuditQuery::default()
    };
    let five = |newest: bool| -> Vec<i64> {
        if newest {
            (1..=5).rev().collect()
        } else {
            (1..=5).collect()
        }
    };
    for newest in [true, false] {
        // By an index alone: found at once, and nothing else is looked at.
        for query in [
            AuditQuery {
                verdict: text("deny"),
                ..query(newest)
            },
            AuditQuery {
                cluster: text("eu9"),
                ..query(newest)
            },
        ] {
            let found = looked_through(&store, query).await;
            assert_eq!(found, (five(newest), vec![]), "{newest}");
        }
        // Two conditions of which the index knows one, and a time that no number goes by.
        for query in [
            AuditQuery {
                actor: text("user:ada"),
                verdict: text("deny"),
                ..query(newest)
            },
            AuditQuery {
                until: Some(5 * 9000 + 1),
                ..query(newest)
            },
        ] {
            let (found, steps) = looked_through(&store, query).await;
            assert_eq!((found, steps.len() <= 6), (five(newest), true), "{newest}");
            assert!(steps.iter().all(|step| *step <= LOOKED_AT), "{steps:?}");
        }
    }
    of_a_request(&store, query).await;
    // What there is plenty of fills its page at the first look.
    let allowed = AuditQuery {
        verdict: text("allow"),
        ..query(true)
    };
    let page = store.audit_query(&allowed).await.unwrap();
    let newest: Vec<i64> = page.rows.iter().map(|row| row.seq).collect();
    assert_eq!(newest, (299_901..=300_000).rev().collect::<Vec<_>>());
    assert_eq!(page.looked, None);
    // From a time on, in order: the first of them is far behind the beginning.
    let since = AuditQuery {
        since: Some(200_000 * 9000),
        ..query(false)
    };
    let mut since = since;
    let mut looks = 1;
    let first = loop {
        let page = store.audit_query(&since).await.unwrap();
        match page.rows.first() {
            Some(row) => break row.seq,
            None => since.after = Some(page.looked.unwrap()),
        }
        looks += 1;
    };
    assert!(first == 200_000 && looks <= 5, "{first} {looks}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_sqlite_looks_at_a_bounded_number_of_records() {
    let place = Place::file("audit-looked-sqlite");
    a_page_looks_at_a_bounded_number_of_records(place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_postgres_looks_at_a_bounded_number_of_records() {
    a_page_looks_at_a_bounded_number_of_records(Place::server().await).await;
}
