//! The changes, as `cargo mutants --list --json` prints them, and what became of each.

use anyhow::{Result, bail};
use serde::Deserialize;

/// One way to break the package.
#[derive(Deserialize)]
pub struct Change {
    /// A line that no other change has.
    pub name: String,
    /// Relative to the package.
    pub file: String,
    pub span: Span,
    /// What stands there instead.
    pub replacement: String,
    pub genre: Genre,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum Genre {
    /// The statements of a function.
    FnValue,
    BinaryOperator,
    UnaryOperator,
    /// From its pattern to its comma; deleted.
    MatchArm,
    MatchArmGuard,
    /// Of a struct expression that has a base; deleted.
    StructField,
    /// One that this program does not know yet.
    #[serde(other)]
    Other,
}

/// What is replaced. No two of one genre begin at the same place, but for those that replace the same.
#[derive(Deserialize)]
pub struct Span {
    pub start: Place,
}

/// Both count from 1 on, the column in characters.
#[derive(Deserialize)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Woven,
    /// It cannot be woven; cargo-mutants has to try it.
    Apart,
    /// It cannot compile, woven or not.
    Unviable,
}

impl State {
    const ALL: [Self; 3] = [Self::Woven, Self::Apart, Self::Unviable];

    fn as_str(self) -> &'static str {
        match self {
            Self::Woven => "woven",
            Self::Apart => "apart",
            Self::Unviable => "unviable",
        }
    }
}

/// A line for each change: its number, its state and its name, with tabs between them.
pub fn print(changes: &[Change], states: &[State]) -> String {
    let rows = (1..).zip(states).zip(changes);
    let line = |((number, state), change): ((u32, &State), &Change)| {
        format!("{number}\t{}\t{}\n", state.as_str(), change.name)
    };
    rows.map(line).collect()
}

/// The states that [`print`] wrote for these changes.
pub fn parse(text: &str, changes: &[Change]) -> Result<Vec<State>> {
    let state = |line: &str| {
        let word = line.split('\t').nth(1)?;
        State::ALL.into_iter().find(|s| s.as_str() == word)
    };
    let states: Option<Vec<State>> = text.lines().map(state).collect();
    match states {
        Some(states) if states.len() == changes.len() => Ok(states),
        _ => bail!("the states are not those of the list; begin anew without messages"),
    }
}
