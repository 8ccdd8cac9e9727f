use super::follow::tests::followed;
use super::*;

pub(super) fn rows(count: i64) -> Vec<AuditRow> {
    let mut head = genesis("hub-1");
    let chained = |seq| {
        let mut row = AuditRow {
            seq,
            at: 1_700_000_000_000 + seq,
            stage: "event".to_owned(),
            actor: "user:ada".to_owned(),
            action: "kube.get".to_owned(),
            // Some go as someone else.
            acted_as: (seq % 3 == 0).then(|| "linesman:bob".to_owned()),
            cluster: Some("eu1".to_owned()),
            target: format!("/api/v1/pods/{seq}"),
            // Some are of sessions.
            container: (seq % 4 == 0).then(|| "web".to_owned()),
            command: (seq % 4 == 0).then(|| "sh -c 'rm -rf /data'".to_owned()),
            ports: (seq % 5 == 0).then(|| "8080,5432".to_owned()),
            request_id: "r".to_owned(),
            verdict: "allow".to_owned(),
            reason: None,
            opened: None,
            code: Some(200),
            exit: (seq % 4 == 0).then_some(137),
            bytes: Some(1),
            millis: None,
            remote: "10.0.0.1:1".to_owned(),
            prev: head.hash,
            hash: [0; 32],
        };
        row.hash = hash(&row);
        head = Head {
            seq,
            hash: row.hash,
        };
        row
    };
    (1..=count).map(chained).collect()
}

/// As the store gives a record.
pub(super) fn line(row: &AuditRow) -> String {
    let (prev, hash) = (keys::hex(&row.prev), keys::hex(&row.hash));
    format!("{} {prev} {hash} {}\n", row.seq, canonical(row))
}

type Change = fn(&mut AuditRow);

/// A record says whom the request went as, what a session ran and how it ended, and its hash holds that to it.
#[test]
fn what_only_some_records_have_is_part_of_the_chain() {
    let mut rows = rows(5);
    assert_eq!(
        canonical(&rows[2]),
        r#"{"actedAs":"linesman:bob","action":"kube.get","actor":"user:ada","at":1700000000003,"bytes":1,"cluster":"eu1","code":200,"millis":null,"opened":null,"reason":null,"remote":"10.0.0.1:1","requestId":"r","seq":3,"stage":"event","target":"/api/v1/pods/3","verdict":"allow"}"#
    );
    assert_eq!(record(view(&rows[2])), Some(rows[2].clone()));
    let ran = r#","code":200,"command":"sh -c 'rm -rf /data'","container":"web","exit":137,"millis":null,"#;
    assert!(canonical(&rows[3]).contains(ran));
    assert!(canonical(&rows[4]).contains(r#","opened":null,"ports":"8080,5432","reason":null,"#));
    for row in &rows[3..] {
        assert_eq!(record(view(row)), Some(row.clone()));
    }
    let changes: [(usize, Change); 4] = [
        (3, |row| row.exit = Some(0)),
        (3, |row| row.container = None),
        (3, |row| row.command = Some("ls".to_owned())),
        (4, |row| row.ports = Some("80".to_owned())),
    ];
    for (at, change) in changes {
        let mut other = rows.clone();
        change(&mut other[at]);
        let seq = other[at].seq;
        assert_eq!(followed(&other, vec![]), Err(Broken::Changed(seq)));
    }
    rows[2].acted_as = None;
    assert_eq!(followed(&rows, vec![]), Err(Broken::Changed(3)));
}

#[test]
fn a_view_holds_all_that_is_hashed() {
    let row = rows(1).remove(0);
    let text = serde_json::to_string(&view(&row)).unwrap();
    assert_eq!(record(serde_json::from_str(&text).unwrap()), Some(row));
}
