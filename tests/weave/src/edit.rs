//! What is put in the place of a piece of source, and the text that comes of it. All places are in bytes.

use std::cmp::Reverse;
use std::ops::Range;

pub struct Edit {
    pub place: Range<usize>,
    /// What can be changed there; nothing where the place is that of a function.
    pub changes: Vec<u32>,
    pub parts: Vec<Part>,
}

pub enum Part {
    Text(String),
    /// The source as it is.
    Kept(Range<usize>),
    /// The source with the edits inside it.
    Woven(Range<usize>),
    /// What cargo-mutants would have the compiler read just so, for this change.
    Own(u32, Vec<Self>),
}

impl Part {
    /// Whether it is in the source. syn knows no place for tokens of its own.
    pub fn is_found(&self) -> bool {
        match self {
            Self::Text(_) => true,
            Self::Kept(place) | Self::Woven(place) => !place.is_empty(),
            Self::Own(_, parts) => parts.iter().all(Self::is_found),
        }
    }
}

#[derive(Default)]
pub struct Woven {
    pub text: String,
    pub records: Vec<Record>,
}

/// Which changes a piece of the woven text is for.
pub struct Record {
    pub place: Range<usize>,
    /// As in [`Edit::changes`].
    pub changes: Vec<u32>,
    /// Whether it is a [`Part::Own`].
    pub own: bool,
}

/// Makes the edits. Of two in the same place the outer one comes first.
pub fn weave(source: &str, mut edits: Vec<Edit>) -> Woven {
    edits.sort_by_key(|edit| {
        let Range { start, end } = edit.place;
        // What is inserted comes before what begins there.
        (start, start != end, Reverse(end))
    });
    let mut writer = Writer {
        source,
        edits: &edits,
        woven: Woven::default(),
    };
    writer.range(&(0..source.len()), 0);
    writer.woven
}

struct Writer<'a> {
    source: &'a str,
    edits: &'a [Edit],
    woven: Woven,
}

impl Writer<'_> {
    /// Writes this part of the source with those edits in it that come after the first `next`.
    fn range(&mut self, place: &Range<usize>, mut next: usize) {
        let mut at = place.start;
        let edits = self.edits;
        while let Some(edit) = edits.get(next).filter(|e| e.place.start < place.end) {
            next += 1;
            // Before this part, or inside an edit that has been made.
            if edit.place.start < at {
                continue;
            }
            self.woven.text += &self.source[at..edit.place.start];
            let start = self.woven.text.len();
            self.parts(&edit.parts, next);
            self.record(start, edit.changes.clone(), false);
            at = edit.place.end;
        }
        self.woven.text += &self.source[at..place.end];
    }

    fn parts(&mut self, parts: &[Part], next: usize) {
        for part in parts {
            match part {
                Part::Text(text) => self.woven.text += text,
                Part::Kept(place) => self.woven.text += &self.source[place.clone()],
                Part::Woven(place) => self.range(place, next),
                Part::Own(change, parts) => {
                    let start = self.woven.text.len();
                    self.parts(parts, next);
                    self.record(start, vec![*change], true);
                }
            }
        }
    }

    fn record(&mut self, start: usize, changes: Vec<u32>, own: bool) {
        let place = start..self.woven.text.len();
        let record = Record {
            place,
            changes,
            own,
        };
        self.woven.records.push(record);
    }
}
