//! Records of which it is not known whether they are stored: the database was lost while it took them.

use std::collections::BTreeSet;

use crate::hub::store::AuditRow;

const NOT_MADE: &str = "not made: nobody heard in time that it is on record";

/// What has to be said after a batch in doubt, now that it is known what became of it. The callers of its opens and
/// events were refused, those of changes among them that the rows at the places `announced` tell of; its closes are owed to requests
/// that did run, and what denies a change to one that is on record.
pub(super) fn owed(
    batch: Vec<AuditRow>,
    stored: bool,
    announced: &BTreeSet<usize>,
) -> Vec<AuditRow> {
    let owed = batch
        .into_iter()
        .enumerate()
        .filter_map(|(place, row)| match row.stage.as_str() {
            "open" if stored => Some(AuditRow {
                stage: "close".to_owned(),
                opened: Some(row.seq),
                reason: Some("interrupted: not carried out".to_owned()),
                ..row
            }),
            "event" if stored && announced.contains(&place) => Some(not_made(row)),
            "close" if !stored => Some(row),
            "event" if !stored && row.reason.as_deref() == Some(NOT_MADE) => Some(row),
            _ => None,
        });
    owed.collect()
}

/// What follows on the record of a change that was not made: its caller was refused by then, or had left.
pub(super) fn not_made(change: AuditRow) -> AuditRow {
    AuditRow {
        verdict: "deny".to_owned(),
        reason: Some(NOT_MADE.to_owned()),
        ..change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The database may be lost again while it takes that.
    #[test]
    fn what_denies_a_change_is_owed_until_it_is_stored() {
        let change = AuditRow::event(1);
        let announced = BTreeSet::from([0]);
        let denial = [not_made(change.clone())];
        assert_eq!(owed(vec![change.clone()], true, &announced), denial);
        assert_eq!(owed(vec![change.clone()], false, &announced), []);
        let none = BTreeSet::new();
        let [denies] = denial.clone();
        assert_eq!(owed(vec![denies.clone(), change], false, &none), denial);
        assert_eq!(owed(vec![denies], true, &none), []);
    }
}
