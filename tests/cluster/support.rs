//! A lab with a hub and one adopted cluster, and what the tests do to them.

pub(crate) mod api;
pub(crate) mod argocd;
pub(crate) mod audit;
pub(crate) mod git;
pub(crate) mod hub;
pub(crate) mod idle;
pub(crate) mod openpgp;
pub(crate) mod place;
pub(crate) mod registry;
pub(crate) mod replicas;
pub(crate) mod unreliable;
pub(crate) mod world;

use std::fmt::Display;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks.
const SHORTEST: Duration = Duration::from_millis(40);
const LONGEST: Duration = Duration::from_secs(1);

/// How long to rest after a look that took so long, where the wait has by now taken so long.
type Rest = fn(Duration, Duration) -> Duration;

/// A look that takes long, such as a program that is started for it, is taken less often: else the waiting takes all of a processor
/// that the cluster needs.
fn closely_spaced(look: Duration, _waited: Duration) -> Duration {
    (look * 2).clamp(SHORTEST, LONGEST)
}

/// The same, and what takes long is looked at ever more seldom: what is seen is late by a fiftieth at most.
fn widely_spaced(look: Duration, waited: Duration) -> Duration {
    closely_spaced(look, waited).max((waited / 50).min(LONGEST))
}

/// Polls until `look` sees something; says how long that took. Panics with the last word of `look` at the end.
pub(crate) fn eventually<T, E: Display>(
    what: &str,
    limit: Duration,
    look: impl FnMut() -> Result<T, E>,
) -> (T, Duration) {
    seen(what, limit, widely_spaced, look)
}

/// The same, looked at as often in the end as in the beginning: for what is to be seen as it is at first, and where `look` asserts what
/// has to hold meanwhile.
pub(crate) fn at_first_sight<T, E: Display>(
    what: &str,
    limit: Duration,
    look: impl FnMut() -> Result<T, E>,
) -> (T, Duration) {
    seen(what, limit, closely_spaced, look)
}

fn seen<T, E: Display>(
    what: &str,
    limit: Duration,
    rest: Rest,
    mut look: impl FnMut() -> Result<T, E>,
) -> (T, Duration) {
    let began = Instant::now();
    match within(limit, rest, &mut look) {
        Ok(seen) => (seen, began.elapsed()),
        Err(e) => panic!("{what}: not within {} s: {e}", limit.as_secs()),
    }
}

/// The one loop that looks again and again; at the end of the time, the last word of `look`.
fn within<T, E>(
    limit: Duration,
    rest: Rest,
    look: &mut impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let began = Instant::now();
    loop {
        let looks = Instant::now();
        match look() {
            Err(_) if began.elapsed() <= limit => {
                thread::sleep(rest(looks.elapsed(), began.elapsed()));
            }
            last => return last,
        }
    }
}

/// The same for a condition.
pub(crate) fn until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    eventually(what, limit, || {
        holds().then_some(()).ok_or("it does not hold")
    })
    .1
}

/// The same, looked at as often in the end as in the beginning: for a moment that must not be missed, and for what shall not come too
/// early.
pub(crate) fn closely(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    at_first_sight(what, limit, || {
        holds().then_some(()).ok_or("it does not hold")
    })
    .1
}

/// Whether it comes to that in the time.
pub(crate) fn comes(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let mut look = || holds().then_some(()).ok_or(());
    within(limit, widely_spaced, &mut look).is_ok()
}

/// For what shall not happen, of which no event tells: looks for so long, and panics at the first look at which it does not hold.
pub(crate) fn stays(what: &str, length: Duration, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    let mut over = || (!holds()).then(|| began.elapsed()).ok_or(());
    if let Ok(after) = within(length, closely_spaced, &mut over) {
        panic!("{what}: no more after {:.1} s", after.as_secs_f64());
    }
}

pub(crate) fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// One measured figure: printed, and kept for `make bench`. `bar` is what the acceptance names.
pub(crate) fn figure(id: &str, what: &str, bar: &str, value: impl Display) {
    println!("figure | {id} | {what} | {bar} | {value}");
    let path = scratch().join("figures.tsv");
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    writeln!(file, "{id}\t{what}\t{bar}\t{value}").unwrap();
}

/// Seconds with two digits, as the figures show them.
pub(crate) fn shown(took: Duration) -> String {
    format!("{:.2} s", took.as_secs_f64())
}

/// `cluster-tests`, wherever cargo's target directory is.
pub(crate) fn scratch() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    path.set_file_name("cluster-tests");
    fs::create_dir_all(&path).unwrap();
    path
}

/// A figure is late by a fiftieth at most, or as a slow look makes it; no rest is longer than a second.
#[test]
#[ignore = "with all others of this program: make test"]
fn what_takes_long_is_looked_at_more_seldom_and_closely_where_it_has_to_be() {
    let all: [Rest; 2] = [closely_spaced, widely_spaced];
    for (look, waited, wanted) in [
        (0, 0, [40_u128, 40]),
        (5, 2_000, [40, 40]),
        (5, 10_000, [40, 200]),
        (300, 10_000, [600, 600]),
        (5, 600_000, [40, 1_000]),
        (3_000, 0, [1_000, 1_000]),
    ] {
        let spent = [look, waited].map(Duration::from_millis);
        let found = all.map(|rest| rest(spent[0], spent[1]).as_millis());
        assert_eq!(found, wanted, "{spent:?}");
    }
}
