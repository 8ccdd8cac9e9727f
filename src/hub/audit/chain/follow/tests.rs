use super::*;
use crate::hub::audit::chain::tests::{line, rows};
use crate::keys::KeyPair;

fn anchored(row: &AuditRow, start: bool) -> Anchor {
    let input = anchor_input("hub-1", head(row), 9, start);
    with(row, start, &input)
}

/// By a hub of before.
fn anchored_before(row: &AuditRow, start: bool) -> Anchor {
    with(row, start, &old_anchor_input("hub-1", head(row), 9))
}

fn head(row: &AuditRow) -> Head {
    Head {
        seq: row.seq,
        hash: row.hash,
    }
}

fn with(row: &AuditRow, start: bool, input: &str) -> Anchor {
    let pair = KeyPair::from_seed(&[5; 32]);
    Anchor {
        seq: row.seq,
        hash: row.hash,
        at: 9,
        sig: pair.sign(input.as_bytes()).to_vec(),
        start,
    }
}

pub(in crate::hub::audit::chain) fn followed(
    rows: &[AuditRow],
    anchors: Vec<Anchor>,
) -> Result<(i64, usize), Broken> {
    let key = KeyPair::from_seed(&[5; 32]).public();
    let mut follower = Follower::new("hub-1", anchors, &[key])?;
    let mut again = follower.clone();
    let alone = rows.iter().try_for_each(|row| follower.follow(row));
    // The same in pieces, their hashes first.
    let mut pieces = rows.chunks(3).map(|piece| {
        let mut lines = piece.iter().map(|row| Hashed::read(line(row).as_bytes()));
        let first = lines.next().unwrap().unwrap();
        lines.fold(first, |mut all, next| {
            all.append(next.unwrap());
            all
        })
    });
    let together = pieces.try_for_each(|piece| again.follow_all(&piece));
    assert_eq!(alone, together);
    alone?;
    assert_eq!(follower.end(), again.end());
    follower.end().map(|(end, anchors)| (end.seq, anchors))
}

/// A tail that is cut off takes its anchors along: only who has kept a record, or an anchor, elsewhere sees it.
#[test]
fn a_cut_tail_is_found_by_a_record_that_was_kept_elsewhere() {
    let rows = rows(10);
    let key = KeyPair::from_seed(&[5; 32]).public();
    let kept = |n: usize| Head {
        seq: rows[n].seq,
        hash: rows[n].hash,
    };
    let beside = |rows: &[AuditRow], kept: Head| {
        let anchors = vec![anchored(&rows[0], true)];
        let mut follower = Follower::new("hub-1", anchors, &[key])?.with(kept)?;
        let mut rest = rows.iter().skip(1);
        rest.try_for_each(|row| follower.follow(row))?;
        follower.end().map(|(end, _)| end.seq)
    };
    assert_eq!(beside(&rows, kept(7)), Ok(10));
    assert_eq!(beside(&rows[..8], kept(7)), Ok(8));
    assert_eq!(
        beside(&rows[..7], kept(7)),
        Err(Broken::Cut { end: 7, kept: 8 })
    );
    let other = Head {
        hash: [0; 32],
        ..kept(7)
    };
    assert_eq!(beside(&rows, other), Err(Broken::Kept(8)));
    assert_eq!(beside(&rows[3..], kept(3)), Ok(10));
    assert_eq!(
        beside(&rows[3..], kept(2)),
        Err(Broken::Removed { start: 4, kept: 3 })
    );
}

#[test]
fn a_whole_chain_holds_from_its_beginning_or_its_anchor() {
    let rows = rows(10);
    assert_eq!(followed(&rows, vec![]), Ok((10, 0)));
    let anchors = vec![anchored(&rows[3], true), anchored(&rows[7], false)];
    assert_eq!(followed(&rows[4..], anchors), Ok((10, 2)));
    assert_eq!(followed(&[], vec![anchored(&rows[9], true)]), Ok((10, 1)));
}

/// H37: whatever is changed, the first record that does not fit is named.
#[test]
fn the_first_broken_record_is_named() {
    let whole = rows(10);
    let changed = |change: fn(&mut Vec<AuditRow>)| {
        let mut rows = whole.clone();
        change(&mut rows);
        followed(&rows, vec![])
    };
    let mended = |rows: &mut Vec<AuditRow>| {
        rows[4].target = "x".to_owned();
        rows[4].hash = hash(&rows[4]);
    };
    assert_eq!(
        changed(|r| r[4].target = "x".to_owned()),
        Err(Broken::Changed(5))
    );
    assert_eq!(changed(mended), Err(Broken::Link(6)));
    assert_eq!(
        changed(|r| drop(r.remove(4))),
        Err(Broken::Gap {
            expected: 5,
            found: 6
        })
    );
    assert_eq!(
        changed(|r| r.swap(4, 5)),
        Err(Broken::Gap {
            expected: 5,
            found: 6
        })
    );
    assert_eq!(
        changed(|r| drop(r.remove(0))),
        Err(Broken::Gap {
            expected: 1,
            found: 2
        })
    );
    // The end cut off, or everything written anew: the anchor knows.
    let anchor = anchored(&whole[8], false);
    assert_eq!(
        followed(&whole[..5], vec![anchor.clone()]),
        Err(Broken::Short { end: 5, anchor: 9 })
    );
    let mut anew = whole.clone();
    anew[0].target = "x".to_owned();
    let mut head = genesis("hub-1").hash;
    for row in &mut anew {
        row.prev = head;
        row.hash = hash(row);
        head = row.hash;
    }
    assert_eq!(
        followed(&anew, vec![anchor.clone()]),
        Err(Broken::Anchor(9))
    );
    let forged = Anchor {
        hash: anew[8].hash,
        ..anchor
    };
    assert_eq!(followed(&anew, vec![forged]), Err(Broken::Signature(9)));
}

/// Who can write the database can say that the record begins later, and remove what was before; that the hub did so it does not sign.
#[test]
fn a_beginning_that_the_hub_did_not_sign_is_none() {
    let rows = rows(10);
    let flipped = |anchor: Anchor| Anchor {
        start: !anchor.start,
        ..anchor
    };
    let begun = vec![
        flipped(anchored(&rows[3], false)),
        anchored(&rows[7], false),
    ];
    assert_eq!(followed(&rows[4..], begun), Err(Broken::Signature(4)));
    let hidden = vec![flipped(anchored(&rows[3], true)), anchored(&rows[7], false)];
    assert_eq!(followed(&rows[4..], hidden), Err(Broken::Signature(4)));
    // What hubs of before signed does not say which it is, and holds while no hub of now was there.
    let before = anchored_before(&rows[3], true);
    let alone = vec![before.clone(), anchored_before(&rows[7], false)];
    let key = KeyPair::from_seed(&[5; 32]).public();
    assert_eq!(unproven_start("hub-1", &alone, &[key]), Some(&before));
    assert_eq!(followed(&rows[4..], alone), Ok((10, 2)));
    let beside = vec![before, anchored(&rows[7], false)];
    assert_eq!(unproven_start("hub-1", &beside, &[key]), None);
    assert_eq!(followed(&rows[4..], beside), Err(Broken::Start(4)));
    // Signed anew it is one of now; and one that is not the beginning says nothing of it.
    let anew = vec![anchored(&rows[3], true), anchored_before(&rows[7], false)];
    assert_eq!(followed(&rows[4..], anew), Ok((10, 2)));
    let passed = vec![anchored_before(&rows[1], true), anchored(&rows[3], true)];
    assert_eq!(followed(&rows[4..], passed), Ok((10, 2)));
}
