//! The audit's rows as they are stored; the chain itself has its own tests.

use futures_util::future::join_all;
use linesman::hub::audit::chain::{self, Hashed};
use linesman::hub::store::{AuditRow, Replica, Store, StoreError};

use super::{Place, on_both};

mod queries;
mod retention;

on_both! {
    records_come_back_as_they_were_and_as_they_were_hashed,
    of_two_records_with_one_number_one_is_stored,
    what_several_write_is_one_chain,
    what_a_forgotten_replica_left_open_is_abandoned,
    a_close_is_of_its_own_request_and_stored_once,
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
            container: (seq % 6 == 0).then(|| "web".to_owned()),
            command: (seq % 6 < 2).then(|| text.to_owned()),
            ports: (seq % 8 == 0).then(|| text.to_owned()),
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

/// A server that crashed, or the standby that took its place, has less than it had said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_follows_on_a_record_that_a_server_has_lost_is_not_stored() {
    let at = Place::server().await;
    let store = at.open().await;
    let rows = stored(&store, 3).await;
    let next = chained(4).remove(3);
    for gone in ["DELETE FROM audit WHERE seq > 1", "DELETE FROM audit"] {
        at.execute(gone).await;
        let refused = store.append_audit(std::slice::from_ref(&next)).await;
        assert!(
            matches!(refused, Err(StoreError::OtherEnd(_))),
            "{refused:?}"
        );
    }
    // Nor what follows on another one of that number.
    let other = AuditRow {
        hash: [9; 32],
        ..rows[0].clone()
    };
    store.append_audit(&[other]).await.unwrap();
    let refused = store.append_audit(&rows[1..]).await;
    assert!(
        matches!(refused, Err(StoreError::OtherEnd(_))),
        "{refused:?}"
    );
    at.execute("DELETE FROM audit").await;
    store.append_audit(&rows).await.unwrap();
    store.append_audit(&[next]).await.unwrap();
    assert_eq!(store.audit(0, None, 9).await.unwrap(), chained(4));
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

/// A server that crashed has lost what some replicas stored, and the others gave its numbers to records of their own by then.
async fn a_close_is_of_its_own_request_and_stored_once(store: Store) {
    let floor = chain::genesis("hub-1");
    let of = |request: &str, stage: &str, opened: Option<i64>| AuditRow {
        request_id: request.to_owned(),
        ..loose(stage, opened)
    };
    let mut begun = [of("kept", "open", None)];
    store.extend_audit(floor, &mut begun, "r2").await.unwrap();
    let broke = AuditRow {
        reason: Some("it broke".to_owned()),
        ..of("lost", "close", Some(1))
    };
    let mut closes = [
        broke,
        of("beyond the end", "close", Some(9)),
        of("kept", "close", Some(1)),
        // Owed by a try of before as well.
        of("kept", "close", Some(1)),
    ];
    store.extend_audit(floor, &mut closes, "r1").await.unwrap();
    // What has its number now is no open.
    let mut late = [of("lost", "close", Some(2))];
    store.extend_audit(floor, &mut late, "r1").await.unwrap();
    let rows = store.audit(0, None, 9).await.unwrap();
    let why = "the database lost the record of its beginning";
    let both = format!("it broke; {why}");
    let told = rows.iter().map(|row| {
        let AuditRow {
            request_id, reason, ..
        } = row;
        (row.seq, request_id.as_str(), row.opened, reason.as_deref())
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            (1, "kept", None, None),
            (2, "lost", None, Some(both.as_str())),
            (3, "beyond the end", None, Some(why)),
            (4, "kept", Some(1), None),
            (5, "lost", None, Some(why)),
        ]
    );
    assert_eq!(closes[3].seq, 0);
    assert_eq!(chain::verify(floor.hash, 0, &rows), Ok(()));
    assert_eq!(open(&store).await, [0_i64; 0]);
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
