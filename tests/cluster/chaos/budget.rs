//! How often an object was harmed within the hour. What is mended by writing fields has a budget of five an hour for each class and
//! object: after that, to mend it once an hour is right, and a day that harms it all the same would wait in vain.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Five; one is kept for what takes two tries.
const MOST: usize = 4;
const HOUR: Duration = Duration::from_hours(1);

/// Faults that count against one budget of an object's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    ScaledToZero,
    BadImage,
    /// Arguments and `ServiceAccount`.
    ReadyButUseless,
    /// All other fields.
    Altered,
}

static TRIED: Mutex<Vec<(Instant, String, Class)>> = Mutex::new(Vec::new());

/// The object at this path was harmed so.
pub(super) fn tried(path: &str, class: Class) {
    let mut all = TRIED.lock().unwrap();
    all.push((Instant::now(), path.to_owned(), class));
}

/// How often it may be harmed so yet.
pub(super) fn left(path: &str, class: Class) -> usize {
    let all = TRIED.lock().unwrap();
    let same = all
        .iter()
        .filter(|(at, of, by)| at.elapsed() < HOUR && of == path && *by == class);
    MOST.saturating_sub(same.count())
}
