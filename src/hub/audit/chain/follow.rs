//! Whether records follow on one another, up to what anchors name and what somebody else kept.

use super::hashed::{Hashed, Link};
use super::{Head, anchor_input, genesis, hash, old_anchor_input};
use crate::hub::store::{Anchor, AuditRow};
use crate::keys::Public;

/// Where a chain is broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    #[error("record {expected} is missing; {found} follows on {}", expected - 1)]
    Gap { expected: i64, found: i64 },
    #[error("record {0} does not name the hash of the record before it")]
    Link(i64),
    #[error("record {0} was changed: it does not hash to what it says")]
    Changed(i64),
    #[error("the anchor at record {0} is not signed by this hub")]
    Signature(i64),
    #[error(
        "the record begins behind {0}, and the hub did not sign that it removed what was before"
    )]
    Start(i64),
    #[error("record {0} is not the one that its anchor names")]
    Anchor(i64),
    #[error("the record ends at {end}, but there is an anchor at record {anchor}")]
    Short { end: i64, anchor: i64 },
    #[error("record {0} is not the one that was kept elsewhere: it, or one before it, was changed")]
    Kept(i64),
    #[error("the record ends at {end}, but record {kept} was kept elsewhere: its end was cut off")]
    Cut { end: i64, kept: i64 },
    #[error(
        "the record begins behind {start}, and record {kept}, which was kept elsewhere, was removed by retention"
    )]
    Removed { start: i64, kept: i64 },
}

/// Follows a chain, record by record.
#[derive(Debug, Clone)]
pub struct Follower {
    head: Head,
    anchors: Vec<Anchor>,
    next: usize,
    /// What someone else has of it, until it was met.
    kept: Option<Head>,
}

/// What a signature says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Whether the chain begins there, too.
    Now,
    /// Nothing of that.
    Before,
}

/// The key that signed it.
pub fn signer(hub_id: &str, anchor: &Anchor, keys: &[Public]) -> Option<Public> {
    signed(hub_id, anchor, keys).map(|(key, _)| key)
}

fn signed(hub_id: &str, anchor: &Anchor, keys: &[Public]) -> Option<(Public, Form)> {
    let (head, at) = (head_of(anchor), anchor.at);
    let by = |input: String, form| {
        let signed = |key: &&Public| key.verify(input.as_bytes(), &anchor.sig);
        keys.iter().find(signed).map(|key| (*key, form))
    };
    by(anchor_input(hub_id, head, at, anchor.start), Form::Now)
        .or_else(|| by(old_anchor_input(hub_id, head, at), Form::Before))
}

fn head_of(anchor: &Anchor) -> Head {
    Head {
        seq: anchor.seq,
        hash: anchor.hash,
    }
}

/// The anchor at which the chain begins, where it is one of before and nothing was signed in the form of now: a hub that begins to
/// sign so has to sign this one, too.
pub fn unproven_start<'a>(
    hub_id: &str,
    anchors: &'a [Anchor],
    keys: &[Public],
) -> Option<&'a Anchor> {
    let form = |anchor| signed(hub_id, anchor, keys).map(|(_, form)| form);
    let start = anchors.iter().rfind(|anchor| anchor.start)?;
    let all_before = anchors.iter().all(|a| form(a) == Some(Form::Before));
    all_before.then_some(start)
}

impl Follower {
    /// `anchors` in the order of their records, each signed by one of `keys`; the chain begins at the last one below which
    /// records were removed. That this was the hub's doing is part of its signature. Those of before do not say so: one is
    /// believed only as long as no anchor shows that a hub of now has been at work, which would have signed it anew.
    pub fn new(hub_id: &str, anchors: Vec<Anchor>, keys: &[Public]) -> Result<Self, Broken> {
        let mut forms = Vec::with_capacity(anchors.len());
        for anchor in &anchors {
            let (_, form) = signed(hub_id, anchor, keys).ok_or(Broken::Signature(anchor.seq))?;
            forms.push(form);
        }
        let start = anchors.iter().rposition(|a| a.start);
        if let Some(n) = start
            && forms.get(n) == Some(&Form::Before)
            && forms.contains(&Form::Now)
        {
            return Err(Broken::Start(anchors.get(n).map_or(0, |a| a.seq)));
        }
        let head = start
            .and_then(|n| anchors.get(n))
            .map_or_else(|| genesis(hub_id), head_of);
        Ok(Self {
            head,
            next: start.map_or(0, |n| n + 1),
            anchors,
            kept: None,
        })
    }

    /// The chain also has to hold this record, which was kept where nobody could change it. All before it is then as it
    /// was, and nothing up to it was cut off.
    pub fn with(mut self, kept: Head) -> Result<Self, Broken> {
        let start = self.head.seq;
        if kept.seq < start {
            let kept = kept.seq;
            return Err(Broken::Removed { start, kept });
        }
        self.kept = Some(kept);
        self.meet()?;
        Ok(self)
    }

    fn meet(&mut self) -> Result<(), Broken> {
        let Some(kept) = self.kept.filter(|kept| kept.seq == self.head.seq) else {
            return Ok(());
        };
        if kept.hash != self.head.hash {
            return Err(Broken::Kept(kept.seq));
        }
        self.kept = None;
        Ok(())
    }

    /// The next records, whose hashes were looked at before.
    pub fn follow_all(&mut self, records: &Hashed) -> Result<(), Broken> {
        for (n, link) in records.links.iter().enumerate() {
            self.link(link)?;
            if records.changed == Some(n) {
                return Err(Broken::Changed(link.head.seq));
            }
        }
        Ok(())
    }

    pub fn follow(&mut self, row: &AuditRow) -> Result<(), Broken> {
        self.link(&Link::of(row))?;
        intact(row)
    }

    fn link(&mut self, link: &Link) -> Result<(), Broken> {
        self.head = linked(self.head, link)?;
        if let Some(anchor) = self.anchors.get(self.next)
            && anchor.seq == self.head.seq
        {
            if anchor.hash != self.head.hash {
                return Err(Broken::Anchor(anchor.seq));
            }
            self.next += 1;
        }
        self.meet()
    }

    /// The last record, where nothing is known of one behind it; and how many anchors held.
    pub fn end(&self) -> Result<(Head, usize), Broken> {
        if let Some(kept) = self.kept {
            let (end, kept) = (self.head.seq, kept.seq);
            return Err(Broken::Cut { end, kept });
        }
        match self.anchors.get(self.next) {
            Some(anchor) => Err(Broken::Short {
                end: self.head.seq,
                anchor: anchor.seq,
            }),
            None => Ok((self.head, self.next)),
        }
    }

    pub fn seq(&self) -> i64 {
        self.head.seq
    }

    /// How far it came, or where it begins.
    pub fn head(&self) -> Head {
        self.head
    }
}

/// Checks a stretch of the chain; the number of the first record that does not fit.
pub fn verify(prev: [u8; 32], after: i64, rows: &[AuditRow]) -> Result<(), i64> {
    let mut head = Head {
        seq: after,
        hash: prev,
    };
    for row in rows {
        let next = linked(head, &Link::of(row)).and_then(|next| intact(row).map(|()| next));
        head = next.map_err(|_| head.seq + 1)?;
    }
    Ok(())
}

fn linked(head: Head, link: &Link) -> Result<Head, Broken> {
    let (expected, found) = (head.seq + 1, link.head.seq);
    if found != expected {
        return Err(Broken::Gap { expected, found });
    }
    if link.prev != head.hash {
        return Err(Broken::Link(found));
    }
    Ok(link.head)
}

fn intact(row: &AuditRow) -> Result<(), Broken> {
    if row.hash == hash(row) {
        Ok(())
    } else {
        Err(Broken::Changed(row.seq))
    }
}

#[cfg(test)]
pub(super) mod tests;
