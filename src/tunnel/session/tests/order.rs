//! Who is sent first, and how much at a time.

use std::collections::BTreeMap;

use bytes::BytesMut;

use super::super::output::TALK;
use super::super::*;
use crate::wire::frame::{self, Frame, MAX_PAYLOAD};

/// A hub's session whose peer takes everything: it gives credit for all and answers each PING after `rtt`, or when
/// the path, of `rate` bytes a second, has carried what went before.
struct Sender {
    now: Instant,
    session: Session,
    rate: f64,
    rtt: Duration,
    /// When the path is free again.
    free: Instant,
    pongs: VecDeque<(Instant, u64)>,
    /// Where set, the socket takes all at once, and answers come at multiples of this.
    grain: Option<Duration>,
    start: Instant,
    sent: BTreeMap<u32, usize>,
}

impl Sender {
    fn new(rate: f64, rtt: Duration) -> Self {
        let now = Instant::now();
        let config = Config {
            peer_window: 16 << 20,
            ..Config::new(Role::Hub)
        };
        Self {
            now,
            session: Session::new(now, config),
            rate,
            rtt,
            free: now,
            pongs: VecDeque::new(),
            grain: None,
            start: now,
            sent: BTreeMap::new(),
        }
    }

    fn open(&mut self, class: Class) -> u32 {
        let open = self.session.open(self.now, Kind::Api, class, Bytes::new());
        open.unwrap()
    }

    fn fill(&mut self, ids: &[u32]) {
        let chunk = vec![7; 65_536];
        for id in ids {
            while self.session.write(self.now, *id, &chunk).unwrap() > 0 {}
        }
    }

    /// The frames of the next message; the clock runs until the path has taken it.
    fn next(&mut self) -> Vec<Frame> {
        while self.pongs.front().is_some_and(|(at, _)| *at <= self.now) {
            let (_, serial) = self.pongs.pop_front().unwrap();
            self.receive(&Frame::Pong(serial));
        }
        let mut out = BytesMut::new();
        if !self.session.poll_transmit(self.now, &mut out) {
            let (at, _) = self.pongs.front().expect("a PONG is to come");
            self.now = *at;
            return vec![];
        }
        let len = u32::try_from(out.len()).unwrap();
        self.free = self.free.max(self.now) + Duration::from_secs_f64(f64::from(len) / self.rate);
        let (mut rest, mut frames) = (out.freeze(), Vec::new());
        while let Some(frame) = frame::decode(&mut rest).unwrap() {
            match &frame {
                Frame::Ping(serial) => {
                    let mut after = self.free + self.rtt - self.start;
                    if let Some(grain) = self.grain {
                        let grains = after.as_nanos().div_ceil(grain.as_nanos());
                        after = grain * u32::try_from(grains).unwrap();
                    }
                    self.pongs.push_back((self.start + after, *serial));
                }
                Frame::Data { id, payload } => {
                    *self.sent.entry(*id).or_default() += payload.len();
                    let amount = u32::try_from(payload.len()).unwrap();
                    self.receive(&Frame::Credit { id: *id, amount });
                }
                _ => {}
            }
            frames.push(frame);
        }
        if self.grain.is_none() {
            self.now = self.free;
        }
        frames
    }

    fn receive(&mut self, frame: &Frame) {
        let mut message = BytesMut::new();
        frame::encode(frame, &mut message);
        self.session.handle_message(self.now, message.freeze());
        assert_eq!(self.session.over(), None);
        while self.session.poll_event().is_some() {}
    }
}

fn data(frames: &[Frame]) -> Vec<(u32, usize)> {
    let parts = frames.iter().filter_map(|frame| match frame {
        Frame::Data { id, payload } => Some((*id, payload.len())),
        _ => None,
    });
    parts.collect()
}

#[test]
fn bulk_streams_share_evenly_and_background_has_its_twentieth() {
    let mut sender = Sender::new(1e8, Duration::from_millis(1));
    let bulk: Vec<u32> = (0..4).map(|_| sender.open(Class::Normal)).collect();
    let background = sender.open(Class::Background);
    while sender.sent.values().sum::<usize>() < 40 << 20 {
        sender.fill(&bulk);
        sender.fill(&[background]);
        sender.next();
    }
    let all: usize = sender.sent.values().sum();
    for id in &bulk {
        let share = sender.sent[id] * 1000 / all;
        assert!(
            (230..=245).contains(&share),
            "stream {id}: {share} per mille"
        );
    }
    let share = sender.sent[&background] * 1000 / all;
    assert!((45..=55).contains(&share), "background: {share} per mille");
}

#[test]
fn a_sparse_stream_goes_before_bulk_that_was_there_first() {
    let mut sender = Sender::new(1e8, Duration::from_millis(1));
    let (bulk, sparse) = (sender.open(Class::Normal), sender.open(Class::Normal));
    for _ in 0..50 {
        sender.fill(&[bulk]);
        sender.next();
    }
    sender.fill(&[bulk]);
    sender.now += Duration::from_millis(60);
    sender.session.write(sender.now, sparse, &[1; 64]).unwrap();
    assert_eq!(data(&sender.next()).first(), Some(&(sparse, 64)));
}

#[test]
fn a_message_is_what_the_path_carries_in_20_ms() {
    for (rate, least, most) in [
        (4e4, 3000, 4 << 10),
        (1e6, 15_000, 21_000),
        (1e9, 60_000, 65_536),
    ] {
        let mut sender = Sender::new(rate, Duration::from_millis(5));
        let bulk = sender.open(Class::Normal);
        let mut len = 0;
        for _ in 0..2000 {
            sender.fill(&[bulk]);
            let parts = data(&sender.next());
            if !parts.is_empty() {
                len = parts.iter().map(|(_, len)| len).sum();
            }
        }
        assert!((least..=most).contains(&len), "{rate}: {len}");
    }
}

#[test]
fn several_messages_leave_in_one_go_where_the_path_carries_them_in_200_us() {
    for (rate, together) in [(1e6, 1), (1e8, 1), (7e8, 2), (4e9, TOGETHER)] {
        let mut sender = Sender::new(rate, Duration::from_micros(50));
        let [bulk, other, sparse] = [(); 3].map(|()| sender.open(Class::Normal));
        for _ in 0..2000 {
            sender.fill(&[bulk]);
            sender.next();
        }
        sender.fill(&[bulk]);
        let queued = sender.session.streams[&bulk].queue.len();
        let found = (sender.session.together(sender.now), queued);
        assert_eq!(found, (together, together * MAX_QUEUED), "{rate}");
        // Who waits for what leaves has to wait for one message at most, and so has who may be about to say more.
        sender.session.write(sender.now, sparse, &[1; 64]).unwrap();
        assert_eq!(sender.session.together(sender.now), 1, "{rate}");
        assert_eq!(data(&sender.next()).first(), Some(&(sparse, 64)));
        let said = sender.now;
        for _ in 0..4 {
            sender.fill(&[bulk, other]);
            sender.next();
        }
        assert_eq!(sender.session.together(said + TALK / 2), 1, "{rate}");
        // Bulk streams alone leave as one does.
        sender.fill(&[bulk, other]);
        assert_eq!(sender.session.together(said + TALK * 2), together, "{rate}");
    }
}

/// One after the other, so that a message holds one stream's bytes where the path is fast; on a slow one no stream waits long.
#[test]
fn a_bulk_streams_turn_is_what_the_path_carries_in_a_millisecond() {
    for (rate, turn) in [(1e6, MAX_PAYLOAD), (3e7, 30_000), (1e9, 65_484)] {
        let mut sender = Sender::new(rate, Duration::from_micros(50));
        let bulk: Vec<u32> = (0..16).map(|_| sender.open(Class::Normal)).collect();
        let mut runs: Vec<(u32, usize)> = Vec::new();
        for round in 0..4000 {
            sender.fill(&bulk);
            for (id, len) in data(&sender.next()) {
                match runs.last_mut().filter(|(last, _)| *last == id) {
                    Some((_, sum)) => *sum += len,
                    None => runs.push((id, len)),
                }
            }
            if round < 3000 {
                runs.clear();
            }
        }
        let whole = &runs[1..runs.len() - 1];
        let (least, most) = (turn / 10 * 9, turn / 10 * 11);
        let fits = |(_, len): &(u32, usize)| (least..=most).contains(len);
        assert!(
            whole.len() > 100 && whole.iter().all(fits),
            "{rate}: {whole:?}"
        );
    }
}

/// A path that is quick now and slow then: bulk that waits for room has always asked when there will be some.
#[test]
fn a_path_whose_rate_changes_never_stands_still() {
    for seed in 0..10_u32 {
        let mut sender = Sender::new(4e9, Duration::from_micros(20));
        let bulk: Vec<u32> = (0..16).map(|_| sender.open(Class::Normal)).collect();
        let mut random = seed.wrapping_mul(2_654_435_761) | 1;
        for turn in 0..4000 {
            if turn % 50 == 0 {
                random ^= random << 13;
                random ^= random >> 17;
                random ^= random << 5;
                let of = |from: u32, to: u32| f64::from(from + random % (to - from));
                sender.rate = 10_f64.powf(of(650, 980) / 100.0);
                sender.rtt = Duration::from_micros(u64::from(random >> 8) % 20_000);
                sender.grain = (random % 3 == 0).then_some(Duration::from_millis(4));
            }
            sender.fill(&bulk);
            sender.next();
        }
    }
}

/// A fast and long path that stands for seconds, and then answers all at once: what is left of what was sent by the rate of before has
/// asked, too.
#[test]
fn bulk_goes_on_after_a_long_path_stood() {
    let (rate, rtt) = (320e6, Duration::from_millis(50));
    for len in (10_000..60_000_usize).step_by(500) {
        let mut now = Instant::now();
        let mut path = Path::new(now, 0.5);
        let mut asked: VecDeque<(Instant, u64)> = VecDeque::new();
        let stands = now + Duration::from_secs(2);
        loop {
            if path.wants_ping() {
                asked.extend(path.ping(now).map(|serial| (now + rtt, serial)));
            }
            let answered = now < stands && asked.front().is_some_and(|(at, _)| *at <= now);
            if answered && let Some((at, serial)) = asked.pop_front() {
                assert!(path.pong(at, serial));
            } else if path.has_room() {
                path.count_bulk(now, len);
                let len = u32::try_from(len).unwrap();
                now += Duration::from_secs_f64(f64::from(len) / rate);
            } else if now >= stands {
                break;
            } else {
                now = asked.front().map_or(stands, |(at, _)| (*at).min(stands));
            }
        }
        assert!(asked.len() > 20, "{} asked", asked.len());
        now += Duration::from_secs(10);
        for (_, serial) in asked {
            assert!(path.pong(now, serial));
        }
        assert!(path.has_room() || path.wants_ping(), "{len} B at a time");
    }
}

/// What is on the way stands before all that comes later. The socket here takes everything at once, and answers
/// arrive several in one go, which must not look like a fast path.
#[test]
fn bulk_on_the_way_is_bounded_by_what_the_path_carries() {
    let mut sender = Sender::new(25e6, Duration::from_millis(1));
    sender.grain = Some(Duration::from_millis(5));
    let bulk = sender.open(Class::Normal);
    let mut most = 0;
    for round in 0..4000 {
        sender.fill(&[bulk]);
        sender.next();
        if round > 200 {
            let on_the_way = sender.free.saturating_duration_since(sender.now);
            most = most.max(on_the_way.as_millis());
        }
    }
    assert!(sender.sent[&bulk] > 10 << 20);
    assert!(most <= 30, "{most} ms of bulk on the way");
}
