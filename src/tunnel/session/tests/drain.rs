//! A line that drains already, and is asked to end.

use super::super::*;
use super::Net;

fn within(drain_ms: u32) -> Goaway {
    Goaway {
        code: Code::Draining,
        retry_after_ms: 0,
        drain_ms,
        text: String::new(),
    }
}

/// L16: what runs on a line that has a successor has ten minutes, and no longer than all else where its hub stops meanwhile. Both ends know
/// when that is, and no later word gives more.
#[test]
fn a_line_that_drains_ends_sooner_where_it_is_told_to() {
    let mut net = Net::new();
    net.open(0);
    net.settle();
    for drain_ms in [600_000, 10_000, 60_000] {
        net.ends[1].drain(net.now, within(drain_ms));
        net.settle();
    }
    // The peer gives it two seconds more.
    let looks = [(1, 9_900), (1, 10_000), (0, 11_900), (0, 12_000)];
    let over = looks.map(|(end, millis)| {
        let now = net.now + Duration::from_millis(millis);
        net.ends[end].handle_timeout(now);
        net.ends[end].over().is_some()
    });
    assert_eq!(over, [false, true, false, true]);
}
