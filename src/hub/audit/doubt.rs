//! Records of which it is not known whether they are stored: the database was lost while it took them.

use crate::hub::store::AuditRow;

/// What has to be said after a batch in doubt, now that it is known what became of it. The callers of its opens and
/// events were refused; its closes are owed to requests that did run.
pub(super) fn owed(batch: Vec<AuditRow>, stored: bool) -> Vec<AuditRow> {
    let owed = batch
        .into_iter()
        .filter_map(|row| match row.stage.as_str() {
            "open" if stored => Some(AuditRow {
                stage: "close".to_owned(),
                opened: Some(row.seq),
                reason: Some("interrupted: not carried out".to_owned()),
                ..row
            }),
            "close" if !stored => Some(row),
            _ => None,
        });
    owed.collect()
}
