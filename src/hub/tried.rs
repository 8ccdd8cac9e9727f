//! How the last try with each of the hub's receivers ended: of notices, and of audit records. A receiver is one that a flag names, so
//! that there are few. Each replica knows its own tries.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use time::OffsetDateTime;

use crate::clock;

/// By what receivers are called where people see them.
#[derive(Debug, Clone, Default)]
pub struct Tried(Arc<Mutex<BTreeMap<String, Try>>>);

/// The last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Try {
    at: OffsetDateTime,
    /// None = it was taken.
    failing: Option<Failing>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Failing {
    /// Of the first one behind the last that was taken.
    since: OffsetDateTime,
    why: String,
}

impl Tried {
    pub fn went(&self, receiver: &str, now: OffsetDateTime, ended: Result<(), String>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(receiver).and_then(|last| last.failing.as_ref());
        let since = before.map_or(now, |failing| failing.since);
        let failing = ended.err().map(|why| Failing { since, why });
        all.insert(receiver.to_owned(), Try { at: now, failing });
    }

    /// Another replica tries from now on.
    pub fn forget(&self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.clear();
    }

    /// None = nothing was tried here.
    pub fn last(&self, receiver: &str) -> Option<Try> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(receiver).cloned()
    }
}

impl Try {
    /// What is wrong with the receiver; None = it took the last.
    pub fn fault(&self) -> Option<String> {
        let failing = self.failing.as_ref()?;
        let since = clock::rfc3339(failing.since);
        Some(format!("has failed since {since}: {}", failing.why))
    }

    pub fn at(&self) -> OffsetDateTime {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;

    #[test]
    fn a_receiver_fails_from_its_first_failure_on_until_it_takes_something() {
        let tried = Tried::default();
        let at = |second| OffsetDateTime::UNIX_EPOCH + Duration::seconds(second);
        let said = |receiver| tried.last(receiver).map(|last| (last.at(), last.fault()));
        assert_eq!(said("slack"), None);
        tried.went("slack", at(1), Ok(()));
        assert_eq!(said("slack"), Some((at(1), None)));
        tried.went("slack", at(2), Err("no route".to_owned()));
        tried.went("slack", at(3), Err("it answered 404".to_owned()));
        let fault = "has failed since 1970-01-01T00:00:02.000Z: it answered 404";
        assert_eq!(said("slack"), Some((at(3), Some(fault.to_owned()))));
        assert_eq!(said("webhook"), None);
        tried.went("slack", at(4), Ok(()));
        assert_eq!(said("slack"), Some((at(4), None)));
        // What another replica is told from then on is not known here.
        tried.forget();
        assert_eq!(said("slack"), None);
    }
}
