//! Which change is made while this program runs, and by which changes its tests come. `tests/mutants` puts it into the woven package.
//!
//! `WOVEN_CHANGE` is the number of the change. With `WOVEN_REACHED` none is made, and a line is added to that file for each test and change
//! that it comes by, and one with a 0 for each of these tests with the microseconds that it computed.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::OnceLock;
use std::{env, fs, mem, thread};

/// In the place of a number: none is made, and all are noted.
const NOTED: u32 = u32::MAX;

/// Whether this change is made.
#[inline]
pub fn is(change: u32) -> bool {
    which(&[change]) == change
}

/// The value, or with this change made its opposite.
#[inline]
pub fn flip(change: u32, value: bool) -> bool {
    value != is(change)
}

/// The one of these changes that is made; 0 = none of them.
#[inline]
pub fn which(changes: &[u32]) -> u32 {
    static MADE: OnceLock<u32> = OnceLock::new();
    let made = *MADE.get_or_init(made);
    if made == NOTED {
        changes.iter().for_each(|change| note(*change));
    }
    if changes.contains(&made) { made } else { 0 }
}

fn made() -> u32 {
    if env::var_os("WOVEN_REACHED").is_some() {
        return NOTED;
    }
    let number = env::var("WOVEN_CHANGE").unwrap_or_default();
    number.parse().unwrap_or(0)
}

/// What a test came by. It has a thread of its own, which bears its name.
#[derive(Default)]
struct Seen {
    test: String,
    changes: Vec<bool>,
}

/// At the end of the test.
impl Drop for Seen {
    fn drop(&mut self) {
        // Not the time that passed: others may keep the processors busy. Where the system does not tell, all tests are alike.
        let said = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let nanoseconds = said.split(' ').next().and_then(|n| n.parse().ok());
        let microseconds = nanoseconds.unwrap_or(0_u64) / 1000;
        // A panic here would end the program; a test without this line is among the cheap ones.
        let _ = write(&format!("0 {} {microseconds}\n", self.test));
    }
}

/// Once for each test.
#[cold]
fn note(change: u32) {
    thread_local! {
        static SEEN: RefCell<Seen> = RefCell::default();
    }
    let at = change as usize;
    SEEN.with_borrow_mut(|seen| {
        if seen.test.is_empty() {
            let thread = thread::current();
            let test = thread.name().expect("a test's thread has a name");
            assert_ne!(test, "main", "a test has a thread of its own");
            test.clone_into(&mut seen.test);
        }
        if seen.changes.len() <= at {
            seen.changes.resize(at + 1, false);
        }
        if !mem::replace(&mut seen.changes[at], true) {
            let line = format!("{change} {}\n", seen.test);
            write(&line).expect("write to the file that WOVEN_REACHED names");
        }
    });
}

/// In one call, so that lines of two threads do not mix.
fn write(line: &str) -> io::Result<()> {
    static LIST: OnceLock<File> = OnceLock::new();
    let mut list = LIST.get_or_init(|| {
        let path = env::var_os("WOVEN_REACHED").expect("it is asked for");
        let opened = OpenOptions::new().append(true).create(true).open(path);
        opened.expect("open the file that WOVEN_REACHED names")
    });
    list.write_all(line.as_bytes())
}

/// What a function gives that says `impl Iterator`: the changed one or its own, which are of two types.
pub enum Either<A, B> {
    Changed(A),
    Kept(B),
}

impl<A: Iterator, B: Iterator<Item = A::Item>> Iterator for Either<A, B> {
    type Item = A::Item;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Changed(one) => one.next(),
            Self::Kept(one) => one.next(),
        }
    }
}
