//! How many files a process may have open: each connection takes one. Systems give few at first (1,024, mostly), and more to whoever
//! asks.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Asks for so many; gives how many there are now, which may be fewer. None = as many as it likes.
pub fn raise(wanted: u64) -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let had = current?;
    let Some(more) = more(had, maximum, wanted) else {
        return Some(had);
    };
    let asked = Rlimit {
        current: Some(more),
        maximum,
    };
    let given = setrlimit(Resource::Nofile, asked);
    Some(given.map_or(had, |()| more))
}

/// How many to ask for; None = there is nothing to gain. `most` None = there is no bound.
fn more(had: u64, most: Option<u64>, wanted: u64) -> Option<u64> {
    let more = most.map_or(wanted, |most| most.min(wanted));
    (more > had).then_some(more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_are_wanted_are_asked_for_where_that_may_be() {
        for (had, most, asked) in [
            (1_024, Some(524_288), Some(24_000)),
            (1_024, None, Some(24_000)),
            (1_024, Some(4_096), Some(4_096)),
            (1_024, Some(1_024), None),
            // More than is wanted stays.
            (1_048_576, Some(1_048_576), None),
        ] {
            assert_eq!(more(had, most, 24_000), asked, "{had} of {most:?}");
        }
    }
}
