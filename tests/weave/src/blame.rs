//! Which changes the compiler's errors are about.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;

use crate::edit::{Record, Woven};
use crate::list::{Change, Genre, State};

/// Errors that say of an expression that there is no such thing, whatever is around it.
const WITHIN: [&str; 12] = [
    "E0061", "E0107", "E0277", "E0368", "E0369", "E0412", "E0423", "E0425", "E0433", "E0599",
    "E0600", "E0614",
];

/// An error of the compiler.
pub struct Fault {
    pub code: String,
    /// As people read it.
    pub text: String,
    /// File and bytes.
    places: Vec<(String, Range<usize>)>,
}

/// The errors among the lines that `cargo --message-format=json` prints.
pub fn faults(messages: &str) -> serde_json::Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let line: Line = serde_json::from_str(line)?;
        let errors = line.message.filter(|m| m.level.starts_with("error"));
        faults.extend(errors.map(Fault::from));
    }
    Ok(faults)
}

/// What becomes of the changes that an error is about, which have numbers from 1 on.
pub fn blame(
    fault: &Fault,
    files: &BTreeMap<String, Woven>,
    changes: &[Change],
) -> BTreeMap<u32, State> {
    let mut blamed = BTreeMap::new();
    for (file, place) in &fault.places {
        let Some(woven) = files.get(file) else {
            continue;
        };
        let (numbers, own) = about(&woven.records, place, changes);
        for number in numbers {
            let unviable = own && is_sure(&fault.code, &changes[number as usize - 1]);
            let state = if unviable {
                State::Unviable
            } else {
                State::Apart
            };
            blamed.insert(number, state);
        }
    }
    blamed
}

/// Whether an error in the text of the change itself is there without weaving too.
fn is_sure(code: &str, change: &Change) -> bool {
    // Elsewhere the text has to have the type of what stood there; in the place of a function's statements, that of the function.
    let typed = code == "E0308" && change.genre == Genre::FnValue;
    typed || WITHIN.contains(&code)
}

/// The changes that a place in the woven text is for, and whether it is in the text of the change itself: the innermost around it, else
/// those in it, else those of the function that are suspect.
fn about(records: &[Record], place: &Range<usize>, changes: &[Change]) -> (Vec<u32>, bool) {
    let inside = |outer: &Range<usize>| -> Vec<u32> {
        let inner = records.iter().filter(|r| holds(outer, &r.place));
        inner.flat_map(|record| record.changes.clone()).collect()
    };
    let around = records.iter().filter(|r| holds(&r.place, place));
    let innermost = around.min_by_key(|record| record.place.len());
    match innermost {
        Some(record) if !record.changes.is_empty() => (record.changes.clone(), record.own),
        Some(function) if inside(place).is_empty() => {
            (suspect(inside(&function.place), changes), false)
        }
        Some(_) | None => (inside(place), false),
    }
}

/// Of the changes of a function that as a whole is an error. Where it gives an iterator, another one with items of a wrong type is said to
/// be wrong there and not where it stands; what is left then is suspect only if the error is still there.
fn suspect(numbers: Vec<u32>, changes: &[Change]) -> Vec<u32> {
    for given in ["::std::iter::once(", "::std::iter::"] {
        let gives = |n: &&u32| changes[**n as usize - 1].replacement.starts_with(given);
        let those: Vec<u32> = numbers.iter().filter(gives).copied().collect();
        if !those.is_empty() {
            return those;
        }
    }
    numbers
}

fn holds(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

#[derive(Deserialize)]
struct Line {
    message: Option<Message>,
}

#[derive(Deserialize)]
struct Message {
    level: String,
    code: Option<Code>,
    spans: Vec<Span>,
    rendered: Option<String>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Deserialize)]
struct Span {
    file_name: String,
    byte_start: usize,
    byte_end: usize,
    is_primary: bool,
    expansion: Option<Box<Expansion>>,
}

#[derive(Deserialize)]
struct Expansion {
    span: Span,
}

impl From<Message> for Fault {
    fn from(message: Message) -> Self {
        let primary = message.spans.into_iter().filter(|s| s.is_primary);
        Self {
            code: message.code.map(|code| code.code).unwrap_or_default(),
            text: message.rendered.unwrap_or_default(),
            places: primary.map(Span::written).collect(),
        }
    }
}

impl Span {
    /// Where it is in what was written: of what a macro makes, the macro's name and arguments.
    fn written(self) -> (String, Range<usize>) {
        match self.expansion {
            Some(expansion) => expansion.span.written(),
            None => (self.file_name, self.byte_start..self.byte_end),
        }
    }
}
