//! What is measured: the cases, what runs them, and the bars.

use std::time::Duration;

use crate::bar::{Bar, Limit};
use crate::shaper::Way;
use crate::suite::Kind;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) scenario: &'static str,
    /// Rate of the link (`tc`) and its queue in milliseconds; loopback without.
    pub(crate) link: Option<(&'static str, u64)>,
    /// A long way between the two, in user space.
    pub(crate) way: Option<Way>,
    /// Whether `TCP_NOTSENT_LOWAT` bounds what their kernels keep unsent, as the line has it.
    pub(crate) lowat: bool,
    /// A proxy on the listener's side that ends TLS.
    pub(crate) proxied: bool,
    pub(crate) kinds: &'static [Kind],
    /// Figures for the table.
    pub(crate) shown: &'static [&'static str],
    pub(crate) bars: &'static [Bar],
}

const EVERY: &[Kind] = &Kind::ALL;
const MUX: &[Kind] = &[
    Kind::Line,
    Kind::Remotedialer,
    Kind::Konnectivity,
    Kind::Chisel,
    Kind::Yamux,
    Kind::H2,
];
/// Whose connection this program makes itself, and can leave an option of it out.
const OWN: &[Kind] = &[Kind::Line, Kind::Yamux, Kind::H2];
/// Where yamux and HTTP/2 end the connection or never finish, and konnectivity never does either.
const FEW: &[Kind] = &[Kind::Line, Kind::Remotedialer, Kind::Chisel];
/// What TCP makes of a loss by itself.
const BESIDE: &[Kind] = &[Kind::Line, Kind::Tls];
const RATE: &[&str] = &["MB/s", "hub ns/KB", "agent ns/KB", "Jain"];
const ECHO: &[&str] = &["p50 us", "p99 us", "bulk MB/s", "Jain"];
const ALONE: &[&str] = &["p50 us", "p99 us"];

const IDLE: &[&str] = &[
    "KiB a line, hub",
    "hub MB",
    "% of a core",
    "s until all are up",
];

const STORM: &[&str] = &[
    "s until 99 %",
    "s until all",
    "s until 50 %",
    "peak to mean",
    "s until hub answers",
    "p99 request ms",
    "worst request ms",
    "hub CPU s",
    "hub MB",
];

const RECOVERY: &[&str] = &[
    "worst request ms",
    "worst request ms, median of clusters",
    "s until all answer, from its end",
    "% of clusters that refused",
    "% of watches uncut",
    "% of watches whole",
    "worst event ms late",
];

const fn case(
    name: &'static str,
    what: &'static str,
    scenario: &'static str,
    kinds: &'static [Kind],
    shown: &'static [&'static str],
) -> Case {
    Case {
        name,
        what,
        scenario,
        link: None,
        way: None,
        lowat: true,
        proxied: false,
        kinds,
        shown,
        bars: &[],
    }
}

impl Case {
    const fn over(self, rate: &'static str, queue_ms: u64) -> Self {
        Self {
            link: Some((rate, queue_ms)),
            ..self
        }
    }

    const fn far(self, megabits: u32, rtt_ms: u64) -> Self {
        let rtt = Duration::from_millis(rtt_ms);
        Self {
            way: Some(Way { megabits, rtt }),
            ..self
        }
    }

    /// Their kernels take what the system lets them have.
    const fn without_lowat(self) -> Self {
        Self {
            lowat: false,
            ..self
        }
    }

    const fn proxied(self) -> Self {
        Self {
            proxied: true,
            ..self
        }
    }

    const fn bars(self, bars: &'static [Bar]) -> Self {
        Self { bars, ..self }
    }
}

/// One stream, beside what one connection of TLS does.
const BULK: &[Bar] = &[times(3.0, Kind::Remotedialer), times(0.7, Kind::Tls)];
/// Several streams on the one connection: plain TLS has one for each there, and so a processor for each.
const SHARED: &[Bar] = &[times(3.0, Kind::Remotedialer)];
const LONG: &[Bar] = &[times(0.8, Kind::Tls)];
const TWICE: &[Bar] = &[Bar::new("op/s", Limit::Times(2.0, Kind::Remotedialer))];
/// 95 % of 200 Mbit/s are 23.75 MB/s.
const SHAPED: &[Bar] = &[
    at_most("p50 us", 20_000.0),
    at_most("p99 us", 60_000.0),
    at_least("bulk MB/s", 23.75),
    at_least("Jain", 0.95),
];

const WHOLE: Bar = at_least("% of watches whole", 100.0);
const BACK: &[Bar] = &[at_most("s until all answer, from its end", 15.0), WHOLE];
/// A line outlives that.
const LIVED: &[Bar] = &[
    at_most("% of clusters that refused", 0.0),
    at_least("% of watches uncut", 100.0),
];

const fn times(factor: f64, peer: Kind) -> Bar {
    Bar::new("MB/s", Limit::Times(factor, peer))
}

const fn at_most(figure: &'static str, most: f64) -> Bar {
    Bar::new(figure, Limit::AtMost(most))
}

const fn at_least(figure: &'static str, least: f64) -> Bar {
    Bar::new(figure, Limit::AtLeast(least))
}

#[rustfmt::skip]
pub(crate) const CASES: &[Case] = &[
    case("down-1", "download, 1 stream", "download 1", EVERY, RATE).bars(BULK),
    case("down-16", "download, 16 streams", "download 16", EVERY, RATE).bars(SHARED),
    case("down-64", "download, 64 streams", "download 64", EVERY, RATE).bars(SHARED),
    case("up-1", "upload, 1 stream", "upload 1", EVERY, RATE).bars(BULK),
    case("up-16", "upload, 16 streams", "upload 16", EVERY, RATE).bars(SHARED),
    case("up-64", "upload, 64 streams", "upload 64", EVERY, RATE).bars(SHARED),
    case("duplex-16", "download and upload at once, 16 streams", "duplex 16", EVERY, RATE),
    case("echo-0", "64 B echo, idle", "echo 0", EVERY, ALONE)
        .bars(&[at_most("p50 us", 80.0), at_most("p99 us", 300.0)]),
    case("echo-1", "64 B echo beside 1 bulk stream", "echo 1", EVERY, ECHO),
    case("echo-8", "64 B echo beside 8 bulk streams", "echo 8", EVERY, ECHO).bars(&[at_most("p99 us", 5_000.0)]),
    case("echo-64", "64 B echo beside 64 bulk streams", "echo 64", EVERY, ECHO),
    case("proxied-0", "a proxy between that ends TLS: echo, idle", "echo 0", EVERY, ALONE).proxied(),
    case("proxied-8", "… echo beside 8", "echo 8", EVERY, ECHO).proxied(),
    case("proxied-16", "… and 200 Mbit/s, 20 ms queue: echo beside 16", "echo 16", MUX, ECHO).over("200mbit", 20)
        .proxied(),
    case("shaped-1", "200 Mbit/s, 20 ms queue: echo beside 1", "echo 1", MUX, ECHO).over("200mbit", 20),
    case("shaped-16", "200 Mbit/s, 20 ms queue: echo beside 16", "echo 16", MUX, ECHO).over("200mbit", 20),
    case("shaped-64", "200 Mbit/s, 20 ms queue: echo beside 64", "echo 64", MUX, ECHO).over("200mbit", 20)
        .bars(SHAPED),
    case("no-lowat-1", "the same without TCP_NOTSENT_LOWAT: echo beside 1", "echo 1", OWN, ECHO).over("200mbit", 20)
        .without_lowat(),
    case("no-lowat-16", "… echo beside 16", "echo 16", OWN, ECHO).over("200mbit", 20).without_lowat(),
    case("no-lowat-64", "… echo beside 64", "echo 64", OWN, ECHO).over("200mbit", 20).without_lowat(),
    case("narrow-8", "16 Mbit/s, 100 ms queue: echo beside 8", "echo 8", MUX, ECHO).over("16mbit", 100)
        .bars(&[at_most("p99 us", 250_000.0)]),
    case("long-down", "1 Gbit/s, 100 ms: download, 1 stream, after 4 s", "late-download 1", EVERY, RATE).far(1000, 100)
        .bars(LONG),
    case("long-up", "1 Gbit/s, 100 ms: upload, 1 stream, after 4 s", "late-upload 1", EVERY, RATE).far(1000, 100)
        .bars(LONG),
    case("slow-100", "100 unread streams, 1 bulk, echo", "slow 100", MUX, &["hub MB", "agent MB", "p99 us", "bulk MB/s"])
        .bars(&[at_most("hub MB", 32.0), at_most("agent MB", 32.0)]),
    case("slow-2000", "2,000 unread streams, 1 bulk, echo", "slow 2000", &[Kind::Line], &["hub MB", "agent MB", "p99 us", "bulk MB/s", "refused", "reset"]),
    case("tiny", "50 unread and 50 read streams of 16 B at a time, echo", "tiny 100", MUX, &["p99 us", "k frames/s"])
        .bars(&[at_most("p99 us", 50_000.0)]),
    case("open-1", "open, echo, close; 1 worker", "openclose 1", MUX, &["op/s"]).bars(TWICE),
    case("open-32", "open, echo, close; 32 workers", "openclose 32", MUX, &["op/s"]).bars(TWICE),
    case("idle-2000", "2,000 idle lines in one process an end", "idle 2000", &[Kind::Line], IDLE)
        .bars(&[Bar::new("KiB a line, hub", Limit::Words("≤ 20 KiB beside its TLS"))]),
    case("idle-10000", "10,000 idle lines in one process an end", "idle 10000", &[Kind::Line], IDLE)
        .bars(&[at_most("hub MB", 512.0), at_most("% of a core", 5.0)]),
    case("cancels", "10,000 downloads cancelled, then an echo", "cancels 10000", FEW, &["op/s", "p99 us"]),
    case("recovery-loss-5", "20 clusters, 200 watches, packets lost for 5 s", "recovery loss 5", BESIDE, RECOVERY)
        .over("1gbit", 20).bars(LIVED),
    case("recovery-loss-35", "… for 35 s, longer than a line lives", "recovery loss 35", BESIDE, RECOVERY)
        .over("1gbit", 20).bars(&[at_most("s until all answer, from its end", 2.0), WHOLE]),
    case("recovery-hub-stop", "… hub stopped, and the next one started", "recovery hub-stop", &[Kind::Line], RECOVERY)
        .bars(BACK),
    case("recovery-hub-kill", "… hub killed, and the next one started", "recovery hub-kill", &[Kind::Line], RECOVERY)
        .bars(BACK),
    case("recovery-agent-stop", "… agents stopped beside the next ones, as in a rollout", "recovery agent-stop", &[Kind::Line], RECOVERY)
        .bars(&[at_most("worst request ms", 10_000.0), at_most("% of clusters that refused", 0.0), WHOLE]),
    case("recovery-agent-kill", "… agents killed, and the next ones started", "recovery agent-kill", &[Kind::Line], RECOVERY)
        .bars(BACK),
    case("storm-500", "hub killed under 500 lines", "storm 500", &[Kind::Line], STORM)
        .bars(&[at_most("s until 99 %", 5.0), at_most("s until all", 15.0), at_most("peak to mean", 3.0)]),
    case("storm-1000", "hub killed under 1,000 lines", "storm 1000", &[Kind::Line], STORM)
        .bars(&[at_most("s until all", 60.0), at_most("p99 request ms", 500.0)]),
    case("storm-10000", "hub killed under 10,000 lines", "storm 10000", &[Kind::Line], STORM)
        .bars(&[at_most("s until all", 60.0)]),
];
