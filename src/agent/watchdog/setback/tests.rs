use std::time::Duration;

use time::macros::datetime;

use super::*;

const SECOND: time::Duration = time::Duration::SECOND;

/// What a wall clock that is kept right shows is no jump, however slowly it drifts; each jump is told once.
#[test]
fn a_clock_that_is_set_is_told_from_one_that_drifts() {
    let (begin, start) = (datetime!(2026-01-02 12:00:00 UTC), Instant::now());
    let mut unset = Unset::default();
    for (after, shows, by) in [
        (0, 0, 0),
        (60, 60, 0),
        (120, 121, 0),
        // With what it had drifted by.
        (180, 3_781, 3_601),
        (240, 3_841, 0),
        (300, 301, -3_600),
        (301, 302, 0),
        // Asleep: nothing was done meanwhile, and nobody was waited for.
        (302, 30_303, 30_000),
    ] {
        let at = start + Duration::from_secs(after);
        let jumped = unset.jumped(begin + SECOND * shows, at);
        assert_eq!(jumped, SECOND * by, "{after}");
    }
}

/// W25: all that something is decided by moves with the clock.
#[tokio::test]
async fn what_the_watchdog_remembers_moves_with_its_clock() {
    let mut watchdog = super::super::tests::watchdog();
    let now = datetime!(2026-01-02 12:00:00 UTC);
    watchdog.set_back(now);
    watchdog.history.last_write = Some(now - SECOND * 30);
    watchdog.snapshot_at = Some(now - SECOND * 60);
    for hours in [2, -3] {
        let now = now + time::Duration::hours(hours);
        watchdog.set_back(now);
        let ages = [watchdog.history.last_write, watchdog.snapshot_at];
        let ages = ages.map(|at| (now - at.unwrap()).whole_seconds());
        assert!(
            (29..=31).contains(&ages[0]) && (59..=61).contains(&ages[1]),
            "{ages:?}"
        );
    }
}
