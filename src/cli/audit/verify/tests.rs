use std::cell::Cell;

use super::*;
use crate::hub::audit::chain::anchor_input;
use crate::hub::store::{Anchor, AuditRow};

#[test]
fn a_record_that_was_kept_is_a_number_and_a_hash() {
    let hash = keys::hex(&[7; 32]);
    let head = Head {
        seq: 9,
        hash: [7; 32],
    };
    assert_eq!(kept_record(&format!("9:{hash}")).ok(), Some(head));
    assert!(kept_record("9").is_err() && kept_record("9:07").is_err());
}

#[test]
fn what_is_told_of_the_way_names_its_end_where_that_is_known() {
    for (seq, last, told) in [
        (4_000, Some(9_000), "record 4000 of 9000"),
        (9_000, Some(9_000), "record 9000 of 9000"),
        (9_003, Some(9_000), "record 9003"),
        (4_000, None, "record 4000"),
    ] {
        assert_eq!(reached(seq, last), told);
    }
}

/// A store with a chain of so many records, gone at its end.
struct Chain {
    data: PathBuf,
    store: Store,
    rows: Vec<AuditRow>,
}

const KEY: [u8; 32] = [5; 32];

impl Chain {
    async fn new(name: &str, records: i64) -> Self {
        let name = format!("linesman-verify-{name}-{}", std::process::id());
        let data = std::env::temp_dir().join(name);
        drop(std::fs::remove_dir_all(&data));
        std::fs::create_dir_all(&data).unwrap();
        let store = Store::Sqlite(Sqlite::open(&data).await.unwrap());
        let mut head = chain::genesis("hub-1");
        let mut rows: Vec<AuditRow> = (0..records).map(AuditRow::event).collect();
        for row in &mut rows {
            head = chain::link(head, row);
        }
        store.append_audit(&rows).await.unwrap();
        Self { data, store, rows }
    }

    /// What retention does: records up to this one go, and the hub signs it.
    async fn prune(&self, seq: i64) {
        let hash = self.rows[usize::try_from(seq).unwrap() - 1].hash;
        let input = anchor_input("hub-1", Head { seq, hash }, 9, true);
        let anchor = Anchor {
            seq,
            hash,
            at: 9,
            sig: KeyPair::from_seed(&KEY).sign(input.as_bytes()).to_vec(),
            start: true,
        };
        self.store.prune_audit(&anchor).await.unwrap();
    }

    /// A file with a line for each of these records, whatever hashes they have.
    fn kept(&self, lines: &[(i64, [u8; 32])]) -> Kept {
        let line = |(seq, hash): &(i64, [u8; 32])| {
            format!("{{\"seq\":{seq},\"hash\":\"{}\"}}\n", keys::hex(hash))
        };
        let path = self.data.join("kept.jsonl");
        std::fs::write(&path, lines.iter().map(line).collect::<String>()).unwrap();
        Kept::read(&path).unwrap()
    }

    fn line(&self, seq: i64) -> (i64, [u8; 32]) {
        (seq, self.rows[usize::try_from(seq).unwrap() - 1].hash)
    }

    /// What the record holds of the lines, or what is said of the first that it does not hold.
    async fn beside(&self, lines: &[(i64, [u8; 32])]) -> Result<Option<Held>, String> {
        let (source, kept) = (self.source(), self.kept(lines));
        let whole = checked(&source, Some(&kept), async || Ok(self.beginning().await)).await;
        let shown = self.data.join("kept.jsonl").display().to_string();
        let said = |e: anyhow::Error| e.to_string().replace(&shown, "FILE");
        whole.map(|whole| whole.held).map_err(said)
    }

    async fn beginning(&self) -> Follower {
        let anchors = self.store.audit_anchors().await.unwrap();
        let key = KeyPair::from_seed(&KEY).public();
        Follower::new("hub-1", anchors, &[key]).unwrap()
    }

    fn source(&self) -> Arc<Source> {
        Arc::new(Source::Database {
            store: self.store.clone(),
            hub_id: "hub-1".to_owned(),
            data: self.data.clone(),
        })
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.data));
    }
}

/// H37: the hourly removal between the look at the signatures and that at the records is no damage.
#[tokio::test]
async fn a_chain_whose_beginning_moves_while_it_is_read_is_followed_anew() {
    let chain = Chain::new("moves", 40).await;
    let (source, looks) = (chain.source(), Cell::new(0));
    // So often retention is quicker.
    for quicker in 1..=3 {
        looks.set(0);
        let whole = checked(&source, None, async || {
            let follower = chain.beginning().await;
            looks.set(looks.get() + 1);
            if looks.get() <= quicker {
                chain.prune(quicker * 10 - 5 + looks.get()).await;
            }
            Ok(follower)
        });
        let whole = whole.await.unwrap();
        let left = usize::try_from(40 - (quicker * 10 - 5 + quicker)).unwrap();
        assert_eq!((whole.end.seq, whole.records), (40, left), "{quicker}");
        assert_eq!(looks.get(), quicker + 1);
    }
}

/// One that never stands still is not called damaged; and one whose records went without a word of the hub is.
#[tokio::test]
async fn a_beginning_that_the_hub_did_not_sign_is_damage() {
    let moving = Chain::new("moving", 40).await;
    let (source, looks) = (moving.source(), Cell::new(0));
    let never = checked(&source, None, async || {
        let follower = moving.beginning().await;
        looks.set(looks.get() + 1);
        moving.prune(looks.get()).await;
        Ok(follower)
    });
    let error = never.await.unwrap_err().to_string();
    assert!(error.contains("retention removes records"), "{error}");
    let gone = Chain::new("gone", 40).await;
    let before = gone.beginning().await;
    gone.prune(7).await;
    let source = gone.source();
    let damaged = checked(&source, None, async || Ok(before.clone()));
    let error = damaged.await.unwrap_err().to_string();
    assert!(
        error.contains("tampered with or damaged: record 1 is missing; 8 follows on 0"),
        "{error}"
    );
}

/// H37: a chain that was written anew and has been kept since then holds the newest line, and not those before.
#[tokio::test]
async fn each_line_of_what_was_kept_has_to_be_in_the_record() {
    let chain = Chain::new("lines", 40).await;
    let (own, other) = (|seq| chain.line(seq), |seq| (seq, [9; 32]));
    let held = |lines, gone| Ok(Some(Held { lines, gone }));
    // Some came again, as a sink sends them.
    let again = [own(3), own(9), own(40), own(8), own(9), own(31)];
    assert_eq!(chain.beside(&again).await, held(6, 0));
    let unlike = |line: usize, seq: i64| {
        Err(format!(
            "the audit was tampered with or damaged: line {line} of FILE: record {seq} is not the one that was kept elsewhere: it, \
             or one before it, was changed"
        ))
    };
    let older = [own(3), other(20), own(40)];
    assert_eq!(chain.beside(&older).await, unlike(2, 20));
    let again = [own(9), own(40), other(9)];
    assert_eq!(chain.beside(&again).await, unlike(3, 9));
    let beyond = [own(40), own(7), other(41)];
    let cut = "the audit was tampered with or damaged: line 3 of FILE: the record ends at 40, but record 41 was kept elsewhere: its end \
               was cut off";
    assert_eq!(chain.beside(&beyond).await, Err(cut.to_owned()));
}

/// What is not there any more says nothing, and is no damage; a file of such lines alone proves nothing.
#[tokio::test]
async fn lines_of_records_that_retention_removed_are_counted() {
    let chain = Chain::new("removed", 40).await;
    let own = |seq| chain.line(seq);
    chain.prune(10).await;
    let old = [(4, [9; 32]), own(9), own(10), own(11), own(40)];
    let held = Held { lines: 3, gone: 2 };
    assert_eq!(chain.beside(&old).await, Ok(Some(held)));
    assert_eq!(
        held.to_string(),
        "3 lines of what was kept fit, and the records of 2 are not kept any more"
    );
    let removed = "the record begins behind 10, and record 9, which was kept elsewhere, was removed by retention";
    assert_eq!(
        chain.beside(&[own(4), own(9)]).await,
        Err(removed.to_owned())
    );
}
