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

/// Polls until `look` sees something; says how long that took. Panics with the last word of `look` at the end. A look that takes
/// long, such as a program that is started for it, is taken less often: else the waiting takes all of a processor that the
/// cluster needs.
pub(crate) fn eventually<T, E: Display>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<T, E>,
) -> (T, Duration) {
    let began = Instant::now();
    match within(limit, &mut look) {
        Ok(seen) => (seen, began.elapsed()),
        Err(e) => panic!("{what}: not within {} s: {e}", limit.as_secs()),
    }
}

/// The one loop that looks again and again; at the end of the time, the last word of `look`.
fn within<T, E>(limit: Duration, look: &mut impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let began = Instant::now();
    loop {
        let looks = Instant::now();
        match look() {
            Err(_) if began.elapsed() <= limit => {
                thread::sleep((looks.elapsed() * 2).clamp(SHORTEST, LONGEST));
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

/// Whether it comes to that in the time.
pub(crate) fn comes(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    within(limit, &mut || holds().then_some(()).ok_or(())).is_ok()
}

/// For what shall not happen, of which no event tells: looks for so long, and panics at the first look at which it does not hold.
pub(crate) fn stays(what: &str, length: Duration, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    let mut over = || (!holds()).then(|| began.elapsed()).ok_or(());
    if let Ok(after) = within(length, &mut over) {
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
