use super::*;
use crate::hub::audit::chain::{Broken, Follower, genesis, link};
use crate::hub::store::sqlite::Sqlite;
use crate::keys::{KeyPair, hex};

const DAY: i64 = 24 * 3_600_000;

fn keys() -> HubKeys {
    HubKeys::new(KeyPair::from_seed(&[5; 32]))
}

/// As a hub of before signed it.
fn before(row: &AuditRow, start: bool) -> Anchor {
    let input = format!(
        "linesman/audit-anchor/v1\nhub-1\n{}\n{}\n9",
        row.seq,
        hex(&row.hash)
    );
    Anchor {
        seq: row.seq,
        hash: row.hash,
        at: 9,
        sig: keys().sign(input.as_bytes()).to_vec(),
        start,
    }
}

/// A record of four, the first two of them removed by a hub of before.
async fn pruned(name: &str) -> (std::path::PathBuf, Store, Vec<AuditRow>) {
    let data = std::env::temp_dir().join(format!("linesman-begin-{name}-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&data));
    std::fs::create_dir_all(&data).unwrap();
    let store = Store::Sqlite(Sqlite::open(&data).await.unwrap());
    let mut rows = vec![AuditRow::event(9); 4];
    let mut head = genesis("hub-1");
    for row in &mut rows {
        head = link(head, row);
    }
    store.append_audit(&rows).await.unwrap();
    store.prune_audit(&before(&rows[1], true)).await.unwrap();
    (data, store, rows)
}

/// Signs as [`super::super::start`] does, with the last record so much later than the last signature.
async fn vouched(store: &Store, last: &AuditRow, later: i64) -> Vec<Anchor> {
    let anchors = store.audit_anchors().await.unwrap();
    let last = AuditRow {
        at: last.at + later,
        ..last.clone()
    };
    let of = (anchors.as_slice(), Some(&last));
    vouch(store, "hub-1", &keys(), of).await.unwrap();
    store.audit_anchors().await.unwrap()
}

fn follower(anchors: &[Anchor], row: &AuditRow) -> Result<i64, Broken> {
    let head = Head {
        seq: row.seq,
        hash: row.hash,
    };
    let input = anchor_input("hub-1", head, 10, false);
    let now = Anchor {
        seq: row.seq,
        hash: row.hash,
        at: 10,
        sig: keys().sign(input.as_bytes()).to_vec(),
        start: false,
    };
    let anchors = anchors.iter().cloned().chain([now]).collect();
    Follower::new("hub-1", anchors, &[keys().public()]).map(|follower| follower.seq())
}

#[tokio::test]
async fn a_beginning_of_before_is_signed_anew_once() {
    let (data, store, rows) = pruned("anew").await;
    let old = store.audit_anchors().await.unwrap();
    assert_eq!(follower(&old, &rows[3]), Err(Broken::Start(2)));
    let anew = vouched(&store, &rows[3], 60_000).await;
    assert_eq!(follower(&anew, &rows[3]), Ok(2));
    assert_eq!(vouched(&store, &rows[3], 60_000).await, anew);
    std::fs::remove_dir_all(data).unwrap();
}

/// Somebody took the signatures of now away, so that the hub would sign what it did not do.
#[tokio::test]
async fn a_beginning_is_not_signed_where_the_hubs_signatures_are_missing() {
    let (data, store, rows) = pruned("gone").await;
    let old = store.audit_anchors().await.unwrap();
    assert_eq!(vouched(&store, &rows[3], 2 * DAY).await, old);
    std::fs::remove_dir_all(data).unwrap();
}
