//! What somebody kept of the audit in a file of JSON lines. The record has to hold each of them and not the newest alone: whoever wrote
//! the record anew and had it signed again has what is kept since then on their side.
//!
//! A file may be as long as the record, and goes back to earlier numbers where a sink sent some again. So it is read twice: for its
//! stretches in which numbers go up, and then all these side by side with the record, a line of each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use super::{broken, unlike};
use crate::cli::exit::{Code, Failure, unread};
use crate::cli::output::{counted, short};
use crate::hub::audit::chain::{Broken, Head};
use crate::keys;

/// Bytes of a line: a record has some thousands at most.
const LINE: u32 = 1 << 20;
/// Each is a file that is open.
const STRETCHES: usize = 128;

const NEXT: &str =
    "give what --audit-file or a webhook wrote, or: linesman audit export --file FILE";

/// A file whose lines can all be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kept {
    path: PathBuf,
    stretches: Vec<Stretch>,
    /// Records and anchors.
    lines: usize,
    /// The highest number of one.
    newest: i64,
}

/// Lines of which none has a lower number than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    /// Bytes before the first.
    at: u64,
    /// Lines before it.
    before: usize,
    /// Which line is the last.
    last: usize,
}

/// How many lines a record holds, and how many are of records that retention removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) lines: usize,
    pub(super) gone: usize,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = counted(self.lines, "line");
        match self.gone {
            0 => write!(f, "{lines} of what was kept fit"),
            gone => write!(
                f,
                "{lines} of what was kept fit, and the records of {gone} are not kept any more"
            ),
        }
    }
}

impl Kept {
    /// Looks at each line. A file that is none says nothing of the audit.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let about = std::fs::metadata(path).map_err(|e| unread(&format!("read {shown}"), &e))?;
        if !about.is_file() && !about.is_dir() {
            return Err(wrong(format!(
                "{shown} is no file, and is to be read twice"
            )));
        }
        let mut kept = Self {
            path: path.to_owned(),
            stretches: Vec::new(),
            lines: 0,
            newest: i64::MIN,
        };
        let mut reader = Reader::open(path, 0, 0)?;
        let mut before = i64::MIN;
        while let Some(line) = reader.line()? {
            let (seq, number) = (line.head.seq, line.number);
            match kept.stretches.last_mut() {
                Some(stretch) if before <= seq => stretch.last = number,
                _ => kept.stretches.push(Stretch {
                    at: line.at,
                    before: number - 1,
                    last: number,
                }),
            }
            if kept.stretches.len() > STRETCHES {
                return Err(Failure::new(
                    Code::Usage,
                    format!(
                        "line {number} of {shown} goes back to record {seq}: numbers go down there {STRETCHES} times"
                    ),
                    "sort the file by the records' numbers, or give it in parts",
                ));
            }
            before = seq;
            kept.newest = kept.newest.max(seq);
            kept.lines += 1;
        }
        if kept.lines > 0 {
            return Ok(kept);
        }
        let found = match reader.other {
            Some((number, line)) => format!("line {number} is '{line}'"),
            None => "it is empty".to_owned(),
        };
        Err(wrong(format!(
            "{shown} holds neither a record nor an anchor: {found}"
        )))
    }

    pub(super) fn newest(&self) -> i64 {
        self.newest
    }

    /// The lines beside a record that begins behind `start`.
    pub(super) fn beside(&self, start: Head) -> Result<Beside<'_>> {
        let mut beside = Beside {
            kept: self,
            start: start.seq,
            readers: Vec::with_capacity(self.stretches.len()),
            next: BinaryHeap::with_capacity(self.stretches.len()),
            held: Held { lines: 0, gone: 0 },
        };
        for (place, stretch) in self.stretches.iter().enumerate() {
            let reader = Reader::open(&self.path, stretch.at, stretch.before)?;
            beside.readers.push(reader);
            beside.read(place)?;
        }
        while beside.up_to(start.seq - 1)?.is_some() {
            beside.held.gone += 1;
        }
        beside.meets([start])?;
        Ok(beside)
    }

    fn changed(&self) -> Failure {
        Failure::new(
            Code::Usage,
            format!("{} changed while it was read", self.path.display()),
            "give a copy of it",
        )
    }
}

fn wrong(text: String) -> Failure {
    Failure::new(Code::Usage, text, NEXT)
}

/// Of a stretch the next line: the record's number, the line's, whose it is, and the hash.
type Next = (i64, usize, usize, [u8; 32]);

/// Lines in the order of their numbers, as far as the record was not followed yet.
pub(super) struct Beside<'a> {
    kept: &'a Kept,
    start: i64,
    readers: Vec<Reader>,
    /// Of each stretch the next line.
    next: BinaryHeap<Reverse<Next>>,
    held: Held,
}

impl Beside<'_> {
    /// The next records, in order.
    pub(super) fn meets(&mut self, records: impl IntoIterator<Item = Head>) -> Result<()> {
        for record in records {
            while let Some((number, head)) = self.up_to(record.seq)? {
                if head.seq != record.seq {
                    return Err(self.kept.changed().into());
                }
                if head != record {
                    return Err(self.unlike(number, &Broken::Kept(head.seq)));
                }
                self.held.lines += 1;
            }
        }
        Ok(())
    }

    /// The record ends with this one.
    pub(super) fn end(mut self, end: i64) -> Result<Held> {
        if let Some((number, head)) = self.up_to(i64::MAX)? {
            let kept = head.seq;
            return Err(self.unlike(number, &Broken::Cut { end, kept }));
        }
        if self.held.lines + self.held.gone != self.kept.lines {
            return Err(self.kept.changed().into());
        }
        // Nothing was looked at.
        if self.held.lines == 0 {
            let (start, kept) = (self.start, self.kept.newest);
            return Err(unlike(&Broken::Removed { start, kept }));
        }
        Ok(self.held)
    }

    fn unlike(&self, number: usize, why: &Broken) -> anyhow::Error {
        broken(&format!(
            "line {number} of {}: {why}",
            self.kept.path.display()
        ))
    }

    /// The next line, where its number is not above this one.
    fn up_to(&mut self, seq: i64) -> Result<Option<(usize, Head)>, Failure> {
        if self.next.peek().is_none_or(|Reverse(next)| next.0 > seq) {
            return Ok(None);
        }
        let Some(Reverse((seq, number, place, hash))) = self.next.pop() else {
            return Ok(None);
        };
        self.read(place)?;
        Ok(Some((number, Head { seq, hash })))
    }

    fn read(&mut self, place: usize) -> Result<(), Failure> {
        let stretch = self.kept.stretches.get(place);
        let Some((reader, stretch)) = self.readers.get_mut(place).zip(stretch) else {
            return Ok(());
        };
        if reader.number < stretch.last
            && let Some(Line { number, head, .. }) = reader.line()?
        {
            self.next
                .push(Reverse((head.seq, number, place, head.hash)));
        }
        Ok(())
    }
}

/// A record or an anchor.
#[derive(Debug, Clone, Copy)]
struct Line {
    head: Head,
    /// Which line it is, from one on.
    number: usize,
    /// Bytes before it.
    at: u64,
}

struct Reader {
    file: BufReader<File>,
    shown: String,
    /// Lines and bytes that were read.
    number: usize,
    at: u64,
    text: Vec<u8>,
    /// The first line that is neither a record nor an anchor, and may be there.
    other: Option<(usize, String)>,
}

impl Reader {
    fn open(path: &Path, at: u64, before: usize) -> Result<Self, Failure> {
        let shown = path.display().to_string();
        let refused = |e| unread(&format!("read {shown}"), &e);
        let mut file = BufReader::new(File::open(path).map_err(refused)?);
        file.seek(SeekFrom::Start(at)).map_err(refused)?;
        Ok(Self {
            file,
            shown,
            number: before,
            at,
            text: Vec::new(),
            other: None,
        })
    }

    /// The next one; None = the file ends.
    fn line(&mut self) -> Result<Option<Line>, Failure> {
        loop {
            let at = self.at;
            self.text.clear();
            let mut bounded = self.file.by_ref().take(u64::from(LINE) + 1);
            let read = bounded.read_until(b'\n', &mut self.text);
            let read = read.map_err(|e| unread(&format!("read {}", self.shown), &e))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.at += read as u64;
            let number = self.number;
            let head = parsed(&self.text)
                .map_err(|why| wrong(format!("line {number} of {} is {why}", self.shown)))?;
            if let Some(head) = head {
                return Ok(Some(Line { head, number, at }));
            }
            if self.other.is_none() && !self.text.trim_ascii().is_empty() {
                self.other = Some((number, quoted(&self.text)));
            }
        }
    }
}

fn quoted(line: &[u8]) -> String {
    short(&String::from_utf8_lossy(line), 40)
}

/// A record or an anchor. None: a gap, of which a sink is told, has neither number nor hash, and where a hub died while it wrote, half
/// a line is left.
fn parsed(line: &[u8]) -> Result<Option<Head>, String> {
    if line.len() > LINE as usize {
        return Err(format!("longer than {} MiB", LINE >> 20));
    }
    let neither = || format!("neither a record nor an anchor: '{}'", quoted(line));
    // A line break within half a line's text would be another mistake than its end.
    let line = line.trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    let value = match serde_json::from_slice::<Value>(line) {
        Ok(value) => value,
        Err(error) if error.is_eof() => return Ok(None),
        Err(_) => return Err(neither()),
    };
    let anchor = value.get("anchor");
    let point = anchor.unwrap_or(&value);
    if anchor.is_none() && point.get("seq").is_none() {
        return value.get("gap").map(|_| None).ok_or_else(neither);
    }
    let hash = point["hash"].as_str().and_then(keys::unhex);
    match point["seq"].as_i64().zip(hash) {
        Some((seq, hash)) => Ok(Some(Head { seq, hash })),
        None => Err("a record or an anchor whose number or hash cannot be read".to_owned()),
    }
}

#[cfg(test)]
mod tests;
