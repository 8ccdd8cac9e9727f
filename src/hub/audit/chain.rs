//! The chain itself: what a record hashes to, whether records follow on one another, and what an anchor says.
//! Pure; the hub appends by it, `linesman audit verify` checks by it.

use time::{Duration, OffsetDateTime};

use crate::clock;
use crate::hub::store::{Anchor, AuditRow};
use crate::keys::{self, Public};
use crate::wire::api::{AnchorView, AuditView};

/// Number and hash of a record, or of what comes before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub seq: i64,
    pub hash: [u8; 32],
}

/// What the first record is chained to.
pub fn genesis(hub_id: &str) -> Head {
    Head {
        seq: 0,
        hash: keys::sha256(hub_id.as_bytes()),
    }
}

/// Makes a record the next one.
pub fn link(head: Head, row: &mut AuditRow) -> Head {
    row.seq = head.seq + 1;
    row.prev = head.hash;
    row.hash = hash(row);
    Head {
        seq: row.seq,
        hash: row.hash,
    }
}

/// The record of a request that still runs, as it is written again where retention removes it.
pub fn carried(open: AuditRow, at: i64) -> AuditRow {
    let reason = match open.opened {
        Some(_) => open.reason,
        None => Some(format!(
            "goes on from record {} of {}",
            open.seq,
            rfc3339(open.at)
        )),
    };
    AuditRow {
        at,
        opened: open.opened.or(Some(open.seq)),
        reason,
        ..open
    }
}

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
    #[error("record {0} is not the one that its anchor names")]
    Anchor(i64),
    #[error("the record ends at {end}, but there is an anchor at record {anchor}")]
    Short { end: i64, anchor: i64 },
    #[error("record {0} is not the one that was kept elsewhere: it, or one before it, was changed")]
    Kept(i64),
    #[error("the record ends at {end}, but record {kept} was kept elsewhere: its end was cut off")]
    Cut { end: i64, kept: i64 },
    #[error(
        "the record begins behind {start}, and record {kept}, which was kept elsewhere, was removed by retention: \
         compare with a newer one"
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

/// The key that signed it.
pub fn signer(hub_id: &str, anchor: &Anchor, keys: &[Public]) -> Option<Public> {
    let input = anchor_input(hub_id, anchor.seq, &anchor.hash, anchor.at);
    let signed = |key: &&Public| key.verify(input.as_bytes(), &anchor.sig);
    keys.iter().find(signed).copied()
}

impl Follower {
    /// `anchors` in the order of their records, each signed by one of `keys`; the chain begins at the last one below which
    /// records were removed.
    pub fn new(hub_id: &str, anchors: Vec<Anchor>, keys: &[Public]) -> Result<Self, Broken> {
        for anchor in &anchors {
            if signer(hub_id, anchor, keys).is_none() {
                return Err(Broken::Signature(anchor.seq));
            }
        }
        let start = anchors.iter().rposition(|a| a.start);
        let head = start.and_then(|n| anchors.get(n)).map_or_else(
            || genesis(hub_id),
            |a| Head {
                seq: a.seq,
                hash: a.hash,
            },
        );
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
}

/// What a record says of its place in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link {
    head: Head,
    prev: [u8; 32],
}

impl Link {
    fn of(row: &AuditRow) -> Self {
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
    links: Vec<Link>,
    /// The place of the first that does not hash to what it says.
    changed: Option<usize>,
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

/// Bytes that count as a record's: of its JSON, which is what it takes on disk with its hashes and indexes.
pub fn size(row: &AuditRow) -> u64 {
    canonical(row).len() as u64
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

/// The bytes that the hub signs: up to this record, at this time (unix milliseconds), the chain was so.
pub fn anchor_input(hub_id: &str, seq: i64, hash: &[u8; 32], at: i64) -> String {
    format!(
        "linesman/audit-anchor/v1\n{hub_id}\n{seq}\n{}\n{at}",
        keys::hex(hash)
    )
}

/// The hash that a row must have, given its own fields and `prev`.
pub fn hash(row: &AuditRow) -> [u8; 32] {
    let mut input = row.prev.to_vec();
    input.extend_from_slice(canonical(row).as_bytes());
    keys::sha256(&input)
}

/// RFC 8785 JSON: members in the order of their names, integers and strings only.
pub(super) fn canonical(row: &AuditRow) -> String {
    #[derive(serde::Serialize)]
    struct Record<'a> {
        // Left out where there is none: records from before it hash to what they say.
        #[serde(rename = "actedAs", skip_serializing_if = "Option::is_none")]
        acted_as: Option<&'a str>,
        action: &'a str,
        actor: &'a str,
        at: i64,
        bytes: Option<u64>,
        cluster: Option<&'a str>,
        code: Option<u16>,
        millis: Option<u64>,
        opened: Option<i64>,
        reason: Option<&'a str>,
        remote: &'a str,
        #[serde(rename = "requestId")]
        request_id: &'a str,
        seq: i64,
        stage: &'a str,
        target: &'a str,
        verdict: &'a str,
    }
    let record = Record {
        acted_as: row.acted_as.as_deref(),
        action: &row.action,
        actor: &row.actor,
        at: row.at,
        bytes: row.bytes,
        cluster: row.cluster.as_deref(),
        code: row.code,
        millis: row.millis,
        opened: row.opened,
        reason: row.reason.as_deref(),
        remote: &row.remote,
        request_id: &row.request_id,
        seq: row.seq,
        stage: &row.stage,
        target: &row.target,
        verdict: &row.verdict,
    };
    serde_json::to_string(&record).expect("strings and integers are always JSON")
}

/// A record as the API and the sinks tell it.
pub fn view(row: &AuditRow) -> AuditView {
    AuditView {
        seq: row.seq,
        at: rfc3339(row.at),
        stage: row.stage.clone(),
        actor: row.actor.clone(),
        action: row.action.clone(),
        acted_as: row.acted_as.clone(),
        cluster: row.cluster.clone(),
        target: row.target.clone(),
        request_id: row.request_id.clone(),
        verdict: row.verdict.clone(),
        reason: row.reason.clone(),
        opened: row.opened,
        code: row.code,
        bytes: row.bytes,
        millis: row.millis,
        remote: row.remote.clone(),
        prev: keys::hex(&row.prev),
        hash: keys::hex(&row.hash),
    }
}

fn rfc3339(ms: i64) -> String {
    clock::rfc3339(OffsetDateTime::UNIX_EPOCH + Duration::milliseconds(ms))
}

/// The record behind a view; None where it is not one that a hub wrote.
pub fn record(view: AuditView) -> Option<AuditRow> {
    let at = clock::parse_rfc3339(&view.at)?.unix_timestamp_nanos() / 1_000_000;
    Some(AuditRow {
        seq: view.seq,
        at: i64::try_from(at).ok()?,
        stage: view.stage,
        actor: view.actor,
        action: view.action,
        acted_as: view.acted_as,
        cluster: view.cluster,
        target: view.target,
        request_id: view.request_id,
        verdict: view.verdict,
        reason: view.reason,
        opened: view.opened,
        code: view.code,
        bytes: view.bytes,
        millis: view.millis,
        remote: view.remote,
        prev: keys::unhex(&view.prev)?,
        hash: keys::unhex(&view.hash)?,
    })
}

/// The anchor behind a view.
pub fn anchor(view: &AnchorView) -> Option<Anchor> {
    Some(Anchor {
        seq: view.seq,
        hash: keys::unhex(&view.hash)?,
        at: view.at,
        sig: keys::decode(&view.sig)?,
        start: view.start,
    })
}

#[cfg(test)]
mod tests;
