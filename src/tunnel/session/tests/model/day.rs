//! What happens in the model, step by step, and what holds at its end.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Open(usize, bool),
    Write(usize, usize, usize),
    Read(usize, usize, usize),
    Finish(usize, usize),
    Leave(usize, usize, u8),
    Transmit(usize),
    Deliver(usize, usize),
    Wait(u64),
    /// For so many milliseconds.
    Drain(usize, u32),
    /// So much of what is on its way arrives.
    Lose(usize, usize),
}

/// A day on which no line ends.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(common(), 1..250)
}

/// One on which it is drained, for longer than the day is.
fn draining() -> impl Strategy<Value = Vec<Step>> {
    let drain = (0..2_usize).prop_map(|end| Step::Drain(end, 3_600_000));
    proptest::collection::vec(prop_oneof![40 => common(), 1 => drain], 1..250)
}

/// One on which it is drained for a moment, lost, or both.
fn ending() -> impl Strategy<Value = Vec<Step>> {
    let drain = (0..2_usize, 0..4_000_u32).prop_map(|(end, millis)| Step::Drain(end, millis));
    let lose = (0..2_usize, 0..100_000_usize).prop_map(|(end, rest)| Step::Lose(end, rest));
    let early = proptest::collection::vec(common(), 1..150);
    let late =
        proptest::collection::vec(prop_oneof![30 => common(), 2 => drain, 1 => lose], 1..150);
    (early, late).prop_map(|(early, late)| [early, late].concat())
}

fn common() -> impl Strategy<Value = Step> {
    let end = || 0..2_usize;
    let pieces = prop_oneof![1..30_usize, 30..5000_usize, 5000..200_000_usize];
    prop_oneof![
        2 => (end(), any::<bool>()).prop_map(|(end, class)| Step::Open(end, class)),
        5 => (end(), 0..8_usize, pieces.clone()).prop_map(|(end, n, len)| Step::Write(end, n, len)),
        3 => (end(), 0..8_usize, pieces.clone()).prop_map(|(end, n, len)| Step::Read(end, n, len)),
        1 => (end(), 0..8_usize).prop_map(|(end, n)| Step::Finish(end, n)),
        1 => (end(), 0..8_usize, 0..3_u8).prop_map(|(end, n, how)| Step::Leave(end, n, how)),
        5 => end().prop_map(Step::Transmit),
        5 => (end(), pieces).prop_map(|(end, len)| Step::Deliver(end, len)),
        1 => (1..2000_u64).prop_map(Step::Wait),
    ]
}

fn play(steps: Vec<Step>) -> Net {
    let mut net = Net::new();
    for step in steps {
        match step {
            Step::Open(end, background) => {
                let class = if background {
                    Class::Background
                } else {
                    Class::Normal
                };
                net.open(end, class);
            }
            Step::Write(end, n, len) => {
                if let Some(id) = net.pick(end, n) {
                    net.write(end, id, len);
                }
            }
            Step::Read(end, n, len) => {
                if let Some(id) = net
                    .pick(end, n)
                    .filter(|id| net.ends[end].halves[id].failed.is_none())
                {
                    net.read(end, id, len);
                }
            }
            Step::Finish(end, n) => {
                if let Some(id) = net.pick(end, n)
                    && net.ends[end].session.finish(id).is_ok()
                {
                    net.ends[end].halves.get_mut(&id).unwrap().finished = true;
                }
            }
            Step::Leave(end, n, how) => {
                if let Some(id) = net.pick(end, n) {
                    net.leave(end, id, how);
                }
            }
            Step::Transmit(end) => drop(net.transmit(end)),
            Step::Deliver(end, len) => drop(net.deliver(end, len)),
            Step::Wait(millis) => net.wait(Duration::from_millis(millis)),
            Step::Drain(end, millis) => net.drain(end, millis),
            Step::Lose(end, rest) => net.cut(end, rest),
        }
        net.check();
    }
    net
}

/// What nobody gave up has arrived, whole and on its stream.
fn nothing_is_lost(net: &Net) {
    for end in [0, 1] {
        for (id, writer) in &net.ends[end].halves {
            let Some(reader) = net.ends[1 - end].halves.get(id) else {
                continue;
            };
            let failed = writer.failed.is_some() || reader.failed.is_some();
            if !(writer.left || reader.left || failed) {
                assert_eq!(reader.read, writer.written, "stream {id}");
                assert_eq!(reader.ended, writer.finished, "stream {id}");
            }
        }
    }
}

/// Who failed did so with the code of what happened.
fn codes_are_right(net: &Net) {
    for end in [0, 1] {
        for (id, half) in &net.ends[end].halves {
            if let Some(code) = half.failed
                && !half.left
            {
                assert!(net.may_fail_with(end, *id, code), "stream {id}: {code:?}");
            }
        }
    }
}

fn nothing_is_left(net: &Net) {
    for end in &net.ends {
        let session = &end.session;
        let (opened, closed) = session.counts();
        assert!(session.streams.is_empty());
        assert_eq!(
            (
                session.live(),
                opened - closed,
                session.unread(),
                session.queued
            ),
            (0, 0, 0, 0)
        );
    }
    assert_eq!(net.process.used(), 0);
}

/// Every handle is dropped: nothing may be left.
fn drop_all(net: &mut Net) {
    for end in [0, 1] {
        let ids: Vec<u32> = net.ends[end].halves.keys().copied().collect();
        for id in ids {
            net.leave(end, id, 2);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// L31: when the network heals and all read: what nobody gave up has arrived, whole and on its stream; both ends agree
    /// that all is over, and no memory is left.
    #[test]
    fn nothing_is_lost_or_stuck_in_a_network_that_heals(steps in steps()) {
        let mut net = play(steps);
        net.settle();
        nothing_is_lost(&net);
        codes_are_right(&net);
        drop_all(&mut net);
        net.settle();
        nothing_is_left(&net);
    }

    /// A line that drains brings what runs on it to its end, takes no more, and then closes, at both ends.
    #[test]
    fn a_drained_line_ends_when_all_on_it_has_ended(steps in draining()) {
        let drained = steps.iter().any(|step| matches!(step, Step::Drain(..)));
        let mut net = play(steps);
        net.settle();
        for end in [0, 1] {
            let ids: Vec<u32> = net.ends[end].halves.keys().copied().collect();
            for id in ids {
                let this = &mut net.ends[end];
                let half = this.halves.get_mut(&id).unwrap();
                half.finished |= !half.left && this.session.finish(id).is_ok();
            }
        }
        net.settle();
        nothing_is_lost(&net);
        codes_are_right(&net);
        for (end, other) in [(0, 1), (1, 0)] {
            for (id, half) in &net.ends[end].halves {
                let left = net.ends[other].halves.get(id).is_some_and(|other| other.left);
                prop_assert!(half.left || left || half.ended || half.failed.is_some(), "stream {} hangs", id);
                // Only its OPEN can have come too late.
                let known = net.ends[other].halves.contains_key(id);
                prop_assert!(!known || half.left || half.failed != Some(Code::LineLost), "stream {} is lost", id);
            }
        }
        drop_all(&mut net);
        net.finish();
        for end in &net.ends {
            prop_assert_eq!(end.closed, drained);
        }
        if drained {
            // One end closes the line because it is empty; the other one hears of that.
            let over = |end: &End| end.session.over().is_some_and(|over| over.code == Code::Draining);
            prop_assert!(net.ends.iter().any(over));
        }
        nothing_is_left(&net);
    }

    /// A line that is drained for too short a time, or lost, ends every stream on it, with a code that says so; what was read
    /// before is a beginning of what was written.
    #[test]
    fn a_line_that_ends_early_ends_every_stream_with_its_code(steps in ending()) {
        let over = steps.iter().any(|step| matches!(step, Step::Drain(..) | Step::Lose(..)));
        let mut net = play(steps);
        net.finish();
        nothing_is_lost(&net);
        codes_are_right(&net);
        for end in &net.ends {
            prop_assert_eq!(end.closed, over);
            prop_assert_eq!(over && end.session.live() > 0, false);
            for (id, half) in &end.halves {
                prop_assert!(!over || half.left || half.ended || half.failed.is_some(), "stream {} hangs", id);
            }
        }
        drop_all(&mut net);
        net.settle();
        nothing_is_left(&net);
    }

    /// The line is cut within any byte: what was read is a beginning of what was written, an end is only seen where
    /// nothing is missing (`Net::read`), and no memory is left.
    #[test]
    fn a_cut_at_any_byte_truncates_and_never_invents(steps in steps(), rest in [0..100_000_usize, 0..100_000_usize]) {
        let mut net = play(steps);
        for end in [0, 1] {
            net.transmit(1 - end);
            net.deliver(end, rest[end]);
            net.ends[end].session.lose(Code::LineLost, "cut");
        }
        for end in [0, 1] {
            let ids: Vec<u32> = net.ends[end].halves.keys().copied().collect();
            for id in ids {
                while !net.ends[end].halves[&id].left && net.read(end, id, 10_000) {}
                let half = &net.ends[end].halves[&id];
                prop_assert!(half.left || half.failed.is_some() || half.ended, "stream {} hangs", id);
            }
            prop_assert_eq!(net.ends[end].session.live(), 0);
        }
        drop_all(&mut net);
        for end in &net.ends {
            prop_assert!(end.session.streams.is_empty());
            prop_assert_eq!((end.session.unread(), end.session.queued), (0, 0));
        }
        prop_assert_eq!(net.process.used(), 0);
    }
}
