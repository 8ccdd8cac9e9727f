//! Words of closed sets, read from somebody who may be a version ahead.
//!
//! Who writes a view writes words of its own; who reads one may meet a word that only a later build knows. It stands there
//! as it was said, is shown, and is none of those that anything is decided by.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The most that people are shown of a word.
const SHOWN: usize = 64;

/// A word of the closed set `T`, or one that this build does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Word<T> {
    Known(T),
    Later(String),
}

impl<T> Word<T> {
    /// None = a word of a later build.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(word) => Some(word),
            Self::Later(_) => None,
        }
    }

    /// For people: a word of ours as `name` has it, another one as it was said, without control characters.
    pub fn shown<S: Into<String>>(&self, name: impl FnOnce(&T) -> S) -> String {
        match self {
            Self::Known(word) => name(word).into(),
            Self::Later(word) => {
                let kept = word.chars().filter(|c| !c.is_control());
                kept.take(SHOWN).collect()
            }
        }
    }
}

impl<T: fmt::Display> fmt::Display for Word<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.shown(ToString::to_string))
    }
}

impl<T> From<T> for Word<T> {
    fn from(word: T) -> Self {
        Self::Known(word)
    }
}

impl<T: PartialEq> PartialEq<T> for Word<T> {
    fn eq(&self, other: &T) -> bool {
        self.known() == Some(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::report::Phase;

    fn read(json: &str) -> Word<Phase> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_word_of_ours_is_decided_by_and_another_is_kept_as_it_was_said() {
        let (ours, later) = (read("\"Healthy\""), read("\"Hibernating\""));
        assert_eq!(ours, Word::Known(Phase::Healthy));
        assert_eq!(later, Word::Later("Hibernating".to_owned()));
        assert!(ours == Phase::Healthy && later != Phase::Healthy);
        for word in [ours, later] {
            let written = serde_json::to_string(&word).unwrap();
            assert_eq!(read(&written), word, "{written}");
        }
    }

    #[test]
    fn people_are_shown_a_later_word_without_what_drives_a_terminal() {
        let shown = |json: &str| read(json).shown(|phase| format!("{phase:?}"));
        assert_eq!(shown("\"Healthy\""), "Healthy");
        assert_eq!(
            shown(r#""Hiber\u001b[31mnating\n\u009b2J""#),
            "Hiber[31mnating2J"
        );
        assert_eq!(shown(&format!("\"{}\"", "é".repeat(200))), "é".repeat(64));
    }
}
