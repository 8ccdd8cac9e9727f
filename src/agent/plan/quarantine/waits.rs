//! Commits that come while an object has to wait to be given back: nothing of them reaches it, be they good or bad, and nobody
//! here knows which they are. So each is named where it is told why the object is held.

use time::{Duration, OffsetDateTime};

use super::{holds, removal, removed};
use crate::agent::engine::Install;
use crate::agent::plan::state::Observed;
use crate::bundle::ObjectId;
use crate::clock::parse_rfc3339;

/// For so long after an object was held the engine may still name the commit before the one that broke it.
const SETTLES: Duration = Duration::seconds(10);

/// An object that is held back from Git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    pub object: ObjectId,
    /// The revision that broke it.
    pub revision: String,
    /// Another one that the engine has by now, and until when that gives nothing back. What the catalog no longer has waits for
    /// no time.
    pub came: Option<(String, OffsetDateTime)>,
}

/// All that are held.
pub fn waits(now: OffsetDateTime, install: &Install, observed: &Observed) -> Vec<Wait> {
    let all = holds(install, observed).into_iter();
    all.map(|(object, held)| {
        let hold = held.hold;
        let seen = removal(install, observed, &object);
        let settled = parse_rfc3339(&hold.since).is_some_and(|since| now - since > SETTLES);
        let other = settled && !seen.is_empty() && seen != hold.revision;
        let other = other && !removed(install, observed, &object);
        let until = hold.until(now).filter(|at| other && now < *at);
        Wait {
            object,
            came: until.map(|at| (seen, at)),
            revision: hold.revision,
        }
    })
    .collect()
}

#[cfg(test)]
mod tests;
