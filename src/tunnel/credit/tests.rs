use proptest::prelude::*;

use super::*;

const RTT: Option<Duration> = Some(Duration::from_millis(10));
const GROW: Option<u32> = Some(MAX_WINDOW);
const ALL: u32 = MAX_WINDOW;

/// L33
#[test]
fn a_long_way_has_room_for_what_is_on_it_and_a_line_for_what_nobody_reads() {
    let (hub, agent) = (32 << 20, 24 << 20);
    for (millis, budget, megabytes) in [
        (0, hub, 4),
        (20, hub, 4),
        (50, hub, 7),
        (80, hub, 12),
        (100, hub, 15),
        (110, hub, 16),
        (600, hub, 16),
        (100, agent, 12),
        (100, 1 << 20, 4),
    ] {
        let least = Some(Duration::from_millis(millis));
        assert_eq!(ceiling(least, budget) >> 20, megabytes, "{millis} ms");
    }
    assert_eq!(ceiling(None, hub), NEAR_WINDOW);
}

/// L21
#[test]
fn windows_that_grow_together_fit_into_half_of_the_lines_memory() {
    let budget = 32 << 20;
    for (others, megabytes_and_more) in [(0, 15), (4 << 20, 11), (8 << 20, 7), (16 << 20, 0)] {
        assert_eq!(share(budget, others) >> 20, megabytes_and_more, "{others}");
    }
    for count in [1, 2, 16, 64, 1000] {
        let mut grown = vec![0_usize; count];
        for n in (0..count).chain(0..count) {
            let others = grown.iter().sum::<usize>() - grown[n];
            grown[n] = usize::try_from(share(budget, others)).unwrap();
            let all: usize = grown.iter().sum();
            assert!(all <= budget / 2, "{count}: {grown:?}");
        }
    }
}

#[test]
fn a_window_that_is_larger_than_its_share_shrinks_as_it_is_read() {
    let now = Instant::now();
    let mut window = RecvWindow::new(now, 1000);
    window.window = 9000;
    window.grant(8000);
    window.receive(9000).unwrap();
    assert_eq!(window.grown(), 8000);
    window.consume(now, 3000, (RTT, GROW), 4000);
    assert_eq!((window.window(), window.due()), (6000, None));
    window.consume(now, 3000, (RTT, GROW), 4000);
    assert_eq!((window.window(), window.due()), (5000, Some(2000)));
    assert_eq!(window.grown(), 4000);
}

#[test]
fn credit_returns_on_consumption_only() {
    let now = Instant::now();
    let mut window = RecvWindow::new(now, 1000);
    window.receive(1000).unwrap();
    assert_eq!(window.due(), None);
    window.consume(now, 1, (None, GROW), ALL);
    assert_eq!(
        window.due(),
        Some(1),
        "the peer stands still, so even one byte is due"
    );
    window.grant(1);
    window.consume(now, 100, (None, GROW), ALL);
    assert_eq!(window.due(), None);
    window.consume(now, 150, (None, GROW), ALL);
    assert_eq!(window.due(), Some(250));
}

#[test]
fn a_fast_reader_gets_a_bigger_window_and_a_quiet_one_loses_it() {
    let mut now = Instant::now();
    let mut window = RecvWindow::new(now, INITIAL_WINDOW);
    for _ in 0..20 {
        now += Duration::from_millis(5);
        let len = window.promised / 2 + window.unread;
        window
            .receive(usize::try_from(window.promised / 2).unwrap())
            .unwrap();
        window.consume(now, usize::try_from(len).unwrap(), (RTT, GROW), ALL);
        window.grant(window.due().unwrap_or_default());
    }
    assert!(window.window() > INITIAL_WINDOW);
    now += QUIET + Duration::from_secs(1);
    window.receive(1).unwrap();
    window.consume(now, 1, (RTT, GROW), ALL);
    assert_eq!(window.window(), INITIAL_WINDOW);
    assert_eq!(
        window.due(),
        None,
        "what was promised before is withheld from the new window"
    );
}

#[test]
fn overruns_and_overflows_are_faults() {
    let mut recv = RecvWindow::new(Instant::now(), 10);
    assert_eq!(recv.receive(11), Err(FlowFault));
    let mut send = SendWindow::new(1);
    assert_eq!(send.add(MAX_CREDIT), Err(FlowFault));
    assert_eq!(send.add(MAX_CREDIT - 1), Ok(()));
    assert_eq!(send.take(usize::MAX), usize::try_from(MAX_CREDIT).unwrap());
}

proptest! {
    /// Whatever the order of arrivals, reads and grants: promises and unread bytes stay within the largest
    /// window, and a reader that keeps reading never leaves the peer without credit.
    #[test]
    fn promises_are_bounded_and_never_lost(steps in proptest::collection::vec((0_u32..40_000, 0_u32..40_000, 0_u64..3000), 1..200)) {
        let mut now = Instant::now();
        let mut window = RecvWindow::new(now, INITIAL_WINDOW);
        for (arrive, read, wait) in steps {
            now += Duration::from_millis(wait);
            window.receive(usize::try_from(arrive.min(window.promised)).unwrap()).unwrap();
            window.consume(now, usize::try_from(read).unwrap(), (RTT, GROW), ALL);
            if let Some(due) = window.due() { window.grant(due); }
            prop_assert!(window.promised + window.unread <= MAX_WINDOW);
        }
        window.consume(now, usize::MAX, (RTT, GROW), ALL);
        if let Some(due) = window.due() { window.grant(due); }
        prop_assert!(window.promised > 0);
    }
}
