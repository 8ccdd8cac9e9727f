use std::cell::Cell;

use super::*;
use crate::hub::audit::chain::anchor_input;
use crate::hub::store::{Anchor, AuditRow};

#[test]
fn what_was_kept_is_a_record_or_an_anchor() {
    let hash = keys::hex(&[7; 32]);
    let head = Some(Head {
        seq: 9,
        hash: [7; 32],
    });
    let broken = Err("a record or an anchor whose number or hash cannot be read");
    for (line, is) in [
        (format!(r#"{{"seq":9,"at":"x","hash":"{hash}"}}"#), Ok(head)),
        (
            format!(r#"{{"anchor":{{"seq":9,"hash":"{hash}","at":1,"sig":"","start":false}}}}"#),
            Ok(head),
        ),
        (r#"{"gap":{"from":1,"to":2}}"#.to_owned(), Ok(None)),
        (r#"{"seq":9,"ha"#.to_owned(), Ok(None)),
        (String::new(), Ok(None)),
        (r#"{"seq":9,"hash":"07"}"#.to_owned(), broken),
        (format!(r#"{{"anchor":{{"hash":"{hash}"}}}}"#), broken),
    ] {
        assert_eq!(kept_line(&line), is, "{line}");
    }
    assert_eq!(kept_record(&format!("9:{hash}")).ok(), head);
    assert!(kept_record("9").is_err() && kept_record("9:07").is_err());
}

/// A nightly job tells by the exit code whether the audit was tampered with or its own file is wrong.
#[test]
fn a_file_that_keeps_nothing_of_the_audit_is_wrong_usage_and_its_line_is_named() {
    let name = format!("linesman-verify-kept-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let shown = path.display();
    let record = |seq: u8| format!(r#"{{"seq":{seq},"hash":"{}"}}"#, keys::hex(&[seq; 32]));
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        kept_file(&path).map_err(|failure| (failure.code, failure.message))
    };
    let none = |found: &str| {
        let text = format!("{shown} holds neither a record nor an anchor: {found}");
        Err((Code::Usage, text))
    };
    assert_eq!(read(""), none("it is empty"));
    assert_eq!(read("\n\nbad\nworse\n"), none("line 3 is 'bad'"));
    let gap = r#"{"gap":{"from":1,"to":2}}"#;
    assert_eq!(read(gap), none(&format!("line 1 is '{gap}'")));
    let cut = record(9).replace(r#""}"#, r#"0"}"#);
    let wrong =
        format!("line 2 of {shown} is a record or an anchor whose number or hash cannot be read");
    let text = format!("{}\n{cut}\n", record(8));
    assert_eq!(read(&text), Err((Code::Usage, wrong)));
    // Where a hub died, half a line stays.
    let text = format!("{}\n{{\"seq\":9,\"ha\n{}\n", record(8), record(7));
    let eighth = Head {
        seq: 8,
        hash: [8; 32],
    };
    assert_eq!(read(&text), Ok(eighth));
    std::fs::remove_file(&path).unwrap();
    let gone = kept_file(&path).unwrap_err();
    assert_eq!(gone.code, Code::Usage, "{gone:?}");
    assert!(gone.message.starts_with("read "), "{gone:?}");
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
        let whole = checked(&source, async || {
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
    let never = checked(&source, async || {
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
    let damaged = checked(&source, async || Ok(before.clone()));
    let error = damaged.await.unwrap_err().to_string();
    assert!(
        error.contains("tampered with or damaged: record 1 is missing; 8 follows on 0"),
        "{error}"
    );
}
