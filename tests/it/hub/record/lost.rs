//! A server that crashed, or the standby that took its place, has less of the record than it had said.

use linesman::hub::audit::Entry;
use linesman::hub::store::AuditRow;

use super::verified;
use crate::hub::support::TestHub;
use crate::postgres;

fn of(action: &str) -> Entry {
    Entry {
        actor: "user:ada".to_owned(),
        action: action.to_owned(),
        ..Entry::default()
    }
}

type Shown = (String, String, String, Option<i64>, Option<String>);

fn shown(row: AuditRow) -> Shown {
    let AuditRow {
        action,
        stage,
        target,
        opened,
        reason,
        ..
    } = row;
    (action, stage, target, opened, reason)
}

/// Behind that number.
async fn lose(url: &str, end: i64) {
    postgres::execute(url, &format!("DELETE FROM audit WHERE seq > {end}")).await;
}

/// Nothing that is written after is lost, and a close names no record of another request that has its number by then.
#[tokio::test]
async fn a_record_of_which_the_server_lost_the_end_goes_on_without_a_hole_and_says_so() {
    let (hub, url) = TestHub::on_postgres("record-lost").await;
    let (store, audit) = (&hub.hub.store, &hub.hub.audit);
    let kept = audit.open(of("kept")).await.unwrap();
    let gone = audit.open(of("gone")).await.unwrap();
    audit.event(of("gone-too")).await.unwrap();
    let end = kept.seq();
    lose(&url, end).await;
    let anew = audit.open(of("anew")).await.unwrap();
    assert_eq!(anew.seq(), gone.seq());
    gone.close(200, 0, 0);
    kept.close(200, 0, 0);
    anew.close(200, 0, 0);
    audit.event(of("after")).await.unwrap();
    let (_, last) = verified(&hub).await;
    let rows = store.audit(end, None, 99).await.unwrap();
    let plain = |action: &str, stage: &str, opened| {
        let [action, stage] = [action, stage].map(str::to_owned);
        (action, stage, String::new(), opened, None)
    };
    let said = "records that the database had stored and lost: 2";
    let missed: Shown = (
        "audit.lost".to_owned(),
        "event".to_owned(),
        format!("{}-{}", end + 1, end + 2),
        None,
        Some(said.to_owned()),
    );
    let orphan = "the database lost the record of its beginning";
    let orphan: Shown = (
        "gone".to_owned(),
        "close".to_owned(),
        String::new(),
        None,
        Some(orphan.to_owned()),
    );
    assert_eq!(
        rows.into_iter().map(shown).collect::<Vec<_>>(),
        [
            plain("anew", "open", None),
            missed,
            orphan,
            plain("kept", "close", Some(end)),
            plain("anew", "close", Some(end + 1)),
            plain("after", "event", None),
        ]
    );
    assert_eq!((last, store.audit_open().await.unwrap()), (end + 6, vec![]));
    hub.stop().await;
}

/// The hub signs nothing that is not there, and retention leaves what the next record is chained to.
#[tokio::test]
async fn what_is_signed_and_removed_after_a_loss_is_what_the_server_has() {
    let (hub, url) = TestHub::on_postgres("record-lost-end").await;
    let (store, audit) = (&hub.hub.store, &hub.hub.audit);
    audit.event(of("kept")).await.unwrap();
    let (first, mut end) = verified(&hub).await;
    for prune in [false, true] {
        for _ in 0..3 {
            audit.event(of("gone")).await.unwrap();
        }
        lose(&url, end).await;
        if prune {
            audit.prune(i64::MAX).await.unwrap();
        } else {
            audit.anchor().await.unwrap();
        }
        audit.event(of("after")).await.unwrap();
        let begins = if prune { end } else { first };
        assert_eq!(verified(&hub).await, (begins, end + 2));
        let rows = store.audit(end, None, 9).await.unwrap();
        let actions: Vec<&str> = rows.iter().map(|row| row.action.as_str()).collect();
        assert_eq!(actions, ["after", "audit.lost"]);
        assert_eq!(rows[1].target, format!("{}-{}", end + 1, end + 3));
        end += 2;
    }
    hub.stop().await;
}
