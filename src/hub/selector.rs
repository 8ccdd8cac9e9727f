//! Label selectors in the syntax of Kubernetes (k8s.io/apimachinery/pkg/labels/selector.go): `env=prod`,
//! `env in (prod,stage)`, `region!=us`, `!frozen`, joined by commas.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

const MAX_TEXT: usize = 1_024;
const MAX_TERMS: usize = 32;

/// Matches where every term does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    text: String,
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    key: String,
    rule: Rule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    In(BTreeSet<String>),
    /// Also where the key is absent, as in Kubernetes.
    NotIn(BTreeSet<String>),
    Exists,
    Absent,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("the selector is empty, which would match everything")]
    Empty,
    #[error("the selector has more than {MAX_TEXT} bytes or {MAX_TERMS} terms")]
    TooLong,
    #[error("'{0}' is not a term such as env=prod, env in (prod,stage), region!=us or !frozen")]
    Term(String),
}

impl Selector {
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.terms.iter().all(|term| {
            let value = labels.get(&term.key);
            match &term.rule {
                Rule::In(values) => value.is_some_and(|v| values.contains(v)),
                Rule::NotIn(values) => value.is_none_or(|v| !values.contains(v)),
                Rule::Exists => value.is_some(),
                Rule::Absent => value.is_none(),
            }
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(SelectorError::Empty);
        }
        if text.len() > MAX_TEXT {
            return Err(SelectorError::TooLong);
        }
        let terms: Vec<Term> = split(text).map(term).collect::<Result<_, _>>()?;
        if terms.len() > MAX_TERMS {
            return Err(SelectorError::TooLong);
        }
        Ok(Self {
            text: text.to_owned(),
            terms,
        })
    }
}

/// The terms: commas inside parentheses belong to a term.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
}

fn term(text: &str) -> Result<Term, SelectorError> {
    let read = || -> Option<Term> {
        if let Some(key) = text.strip_prefix('!') {
            return made(key, Rule::Absent);
        }
        if let Some((head, list)) = text.strip_suffix(')').and_then(|t| t.split_once('(')) {
            let values: BTreeSet<String> = list
                .split(',')
                .map(|v| value(v).map(str::to_owned))
                .collect::<Option<_>>()?;
            let (key, word) = head.trim_end().rsplit_once(char::is_whitespace)?;
            return match word {
                "in" => made(key, Rule::In(values)),
                "notin" => made(key, Rule::NotIn(values)),
                _ => None,
            };
        }
        let one = |v: &str| value(v).map(|v| BTreeSet::from([v.to_owned()]));
        if let Some((key, v)) = text.split_once("!=") {
            return made(key, Rule::NotIn(one(v)?));
        }
        if let Some((key, v)) = text.split_once('=') {
            return made(key, Rule::In(one(v.strip_prefix('=').unwrap_or(v))?));
        }
        made(text, Rule::Exists)
    };
    read().ok_or_else(|| SelectorError::Term(text.chars().take(60).collect()))
}

fn made(key: &str, rule: Rule) -> Option<Term> {
    let key = key.trim();
    let fits = (1..=253).contains(&key.len())
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b));
    fits.then(|| Term {
        key: key.to_owned(),
        rule,
    })
}

fn value(text: &str) -> Option<&str> {
    let text = text.trim();
    let fits = text.len() <= 63
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    fits.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_match_as_in_kubernetes() {
        let labels: BTreeMap<String, String> = [("env", "prod"), ("ring", ""), ("a.b/c", "x_1")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        for (text, fits) in [
            ("env=prod", true),
            ("env == prod", true),
            ("env=stage", false),
            ("env!=prod", false),
            ("region!=us", true),
            ("env in (prod, stage)", true),
            ("env notin (prod,stage)", false),
            ("region notin (us)", true),
            ("region in (us)", false),
            ("ring", true),
            ("ring=", true),
            ("!ring", false),
            ("!frozen", true),
            ("a.b/c=x_1, env in (prod,dev),!frozen", true),
            ("a.b/c=x_1,env in (dev),!frozen", false),
        ] {
            assert_eq!(
                text.parse::<Selector>().map(|s| s.matches(&labels)),
                Ok(fits),
                "{text}"
            );
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let long = "a".repeat(2_000);
        let many = vec!["a"; 33].join(",");
        for text in [
            "", " ", "=x", "a=b=c", "a in b", "a in (b", "a of (b)", "a b", "!", "a,,b", "a='x'",
            &long, &many,
        ] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
        assert_eq!(" a = b ".parse::<Selector>().unwrap().to_string(), "a = b");
    }
}
