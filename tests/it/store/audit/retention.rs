//! Retention: what is old, and what is left of what goes.

use linesman::hub::audit::chain;
use linesman::hub::store::{Anchor, AuditRow, Store};

use super::super::{at, on_both};
use super::{loose, one_more, open, replica, stored};

on_both! {
    a_record_of_a_wrong_clock_makes_none_before_it_old,
    what_is_pruned_leaves_an_anchor,
    what_runs_is_carried_on_for_its_replica,
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
