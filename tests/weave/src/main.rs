//! Weaves all changes that cargo-mutants knows into one program, which makes the one that it is asked for while it runs.
//!
//! `weave LIST SOURCE TARGET STATES [MESSAGES]`
//!
//! - LIST: what `cargo mutants --list --json` prints in the package SOURCE; its changes have the numbers from 1 on.
//! - TARGET: a copy of that package, with `changed.rs`; the files that the list names are written there anew.
//! - STATES: written; what became of each change.
//! - MESSAGES: what cargo says of TARGET as it was written last, where that does not compile. Then STATES is read first, and what the
//!   errors are about is left out from now on.

mod blame;
mod edit;
mod find;
mod list;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, bail};

use edit::Woven;
use list::{Change, State};

fn main() -> Result<()> {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [list, source, target, path, messages @ ..] = &arguments[..] else {
        bail!("usage: weave LIST SOURCE TARGET STATES [MESSAGES]");
    };
    let changes = serde_json::from_str(&read(list)?);
    let changes: Vec<Change> = changes.with_context(|| format!("parse {}", list.display()))?;
    let sources = sources(source, &changes)?;
    let mut states = vec![State::Woven; changes.len()];
    if !messages.is_empty() {
        states = list::parse(&read(path)?, &changes)?;
    }
    let mut files = weave(&sources, &changes, &mut states)?;
    if let Some(messages) = messages.first() {
        leave_out(&read(messages)?, &files, &changes, &mut states)?;
        files = weave(&sources, &changes, &mut states)?;
    }
    for (file, woven) in &files {
        write(&target.join(file), &woven.text)?;
    }
    write(path, &list::print(&changes, &states))
}

/// The files that have changes, by their names.
fn sources(package: &Path, changes: &[Change]) -> Result<BTreeMap<String, String>> {
    let files: BTreeSet<&String> = changes.iter().map(|change| &change.file).collect();
    let source = |file: &String| -> Result<(String, String)> {
        Ok((file.clone(), read(&package.join(file))?))
    };
    files.into_iter().map(source).collect()
}

/// Weaves what is to be woven, and notes of what cannot be why.
fn weave(
    sources: &BTreeMap<String, String>,
    changes: &[Change],
    states: &mut [State],
) -> Result<BTreeMap<String, Woven>> {
    let mut files = BTreeMap::new();
    for (file, source) in sources {
        let here = (1..).zip(changes).zip(&*states);
        let here =
            here.filter(|((_, change), state)| change.file == *file && **state == State::Woven);
        let wanted: Vec<(u32, &Change)> = here.map(|(one, _)| one).collect();
        let found = find::find(source, wanted.iter().copied());
        let found = found.with_context(|| format!("parse {file}"))?;
        let made: BTreeSet<u32> = found.edits.iter().flat_map(|e| e.changes.clone()).collect();
        for (number, _) in wanted {
            if found.unviable.contains(&number) {
                states[number as usize - 1] = State::Unviable;
            } else if !made.contains(&number) {
                states[number as usize - 1] = State::Apart;
            }
        }
        files.insert(file.clone(), edit::weave(source, found.edits));
    }
    Ok(files)
}

/// Notes what the errors are about.
fn leave_out(
    messages: &str,
    files: &BTreeMap<String, Woven>,
    changes: &[Change],
    states: &mut [State],
) -> Result<()> {
    let faults = blame::faults(messages).context("parse what cargo says")?;
    let mut out = BTreeMap::new();
    for fault in &faults {
        for (number, state) in blame::blame(fault, files, changes) {
            // That it cannot compile at all says more.
            let kept = out.entry(number).or_insert(state);
            if state == State::Unviable {
                *kept = state;
            }
        }
    }
    if out.is_empty() {
        let said: String = faults.into_iter().map(|fault| fault.text).collect();
        bail!("no change is where the compiler sees an error; look at it yourself:\n{said}");
    }
    for (number, state) in out {
        states[number as usize - 1] = state;
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}
