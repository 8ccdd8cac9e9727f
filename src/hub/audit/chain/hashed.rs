//! Records as they are stored, read for their hashes and their places in the chain alone.

use super::Head;
use crate::hub::store::AuditRow;
use crate::keys;

/// What a record says of its place in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) head: Head,
    pub(super) prev: [u8; 32],
}

impl Link {
    pub(super) fn of(row: &AuditRow) -> Self {
        Self {
            head: Head {
                seq: row.seq,
                hash: row.hash,
            },
            prev: row.prev,
        }
    }
}

/// Records with their own hashes looked at. That takes no order, so several cores can do it; [`Follower::follow_all`]
/// then links them.
#[derive(Debug, Clone, Default)]
pub struct Hashed {
    pub(super) links: Vec<Link>,
    /// The place of the first that does not hash to what it says.
    pub(super) changed: Option<usize>,
}

impl Hashed {
    /// Reads lines of the chain as it is stored: number, `prev` and hash in hexadecimal, and the JSON that was hashed,
    /// with a space between them. No record is taken apart, so this costs little more than the hashing. None = this is
    /// not such a text.
    pub fn read(lines: &[u8]) -> Option<Self> {
        // What is no UTF-8 was never written by a hub: the record it stands in does not hash to what it says.
        let lines = String::from_utf8_lossy(lines);
        let (mut hashed, mut input) = (Self::default(), Vec::new());
        let (mut last, mut last_text) = ([0; 32], "");
        for line in lines.split_terminator('\n') {
            let (seq, rest) = line.split_once(' ')?;
            let (prev, rest) = rest.split_once(' ')?;
            let (hash, json) = rest.split_once(' ')?;
            let prev = if prev == last_text {
                last
            } else {
                keys::unhex(prev)?
            };
            (last, last_text) = (keys::unhex(hash)?, hash);
            input.clear();
            input.extend_from_slice(&prev);
            input.extend_from_slice(json.as_bytes());
            let holds = says(json, seq) && keys::sha256(&input) == last;
            if !holds && hashed.changed.is_none() {
                hashed.changed = Some(hashed.links.len());
            }
            let head = Head {
                seq: seq.parse().ok()?,
                hash: last,
            };
            hashed.links.push(Link { head, prev });
        }
        Some(hashed)
    }

    /// The number of the last record.
    pub fn last(&self) -> Option<i64> {
        self.links.last().map(|link| link.head.seq)
    }

    /// What each of them says of itself.
    pub fn heads(&self) -> impl Iterator<Item = Head> + '_ {
        self.links.iter().map(|link| link.head)
    }

    /// Puts what follows behind this.
    pub fn append(&mut self, mut next: Self) {
        let before = self.links.len();
        self.changed = self.changed.or_else(|| next.changed.map(|n| before + n));
        self.links.append(&mut next.links);
    }

    pub fn len(&self) -> usize {
        self.links.len()
    }

    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
}

/// Whether the hashed JSON has this number: within its strings every quote is escaped, so the key stands there once.
fn says(json: &str, seq: &str) -> bool {
    const KEY: &str = ",\"seq\":";
    let number = json
        .rfind(KEY)
        .and_then(|at| json[at + KEY.len()..].strip_prefix(seq));
    number.is_some_and(|rest| rest.starts_with(','))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::audit::chain::hash;
    use crate::hub::audit::chain::tests::{line, rows};

    /// The number in front of a line is the one that was hashed, and nothing in a record's texts can pass for it.
    #[test]
    fn a_line_that_says_another_number_was_changed() {
        let mut row = rows(1).remove(0);
        row.target = r#"x,"seq":2,"stage":"event""#.to_owned();
        row.hash = hash(&row);
        let whole = line(&row);
        let changed = |text: &str| Hashed::read(text.as_bytes()).map(|hashed| hashed.changed);
        assert_eq!(changed(&whole), Some(None));
        for number in ["2", "10", "11"] {
            let other = whole.replacen("1 ", &format!("{number} "), 1);
            assert_eq!(changed(&other), Some(Some(0)), "{number}");
        }
        assert_eq!(changed(&format!("{whole}{whole}")), Some(None));
        assert_eq!(changed(&whole.replacen("eu1", "eu2", 1)), Some(Some(0)));
        for no_line in ["x\n", "1 2\n", "\n", "x 00 00 {}\n"] {
            assert_eq!(changed(no_line), None, "{no_line:?}");
        }
        assert_eq!(changed(""), Some(None));
    }
}
