//! The cases, each run by all who can, interleaved, so that what else the machine does hits all alike.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::Options;
use crate::load::Figures;
use crate::net::Link;
use crate::shaper::Way;
use crate::{machine, table};

/// A run that takes longer is stuck and counts as such.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Line,
    Remotedialer,
    Konnectivity,
    Chisel,
    Yamux,
    H2,
    Tls,
}

impl Kind {
    pub(crate) const ALL: [Self; 7] = [
        Self::Line,
        Self::Remotedialer,
        Self::Konnectivity,
        Self::Chisel,
        Self::Yamux,
        Self::H2,
        Self::Tls,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Remotedialer => "remotedialer",
            Self::Konnectivity => "konnectivity",
            Self::Chisel => "chisel",
            Self::Yamux => "yamux",
            Self::H2 => "HTTP/2 reverse",
            Self::Tls => "TLS, a connection a stream",
        }
    }

    /// The ends of this kind. None where its program was not built.
    fn ends(self, options: &Options) -> Option<Ends> {
        let own = |kind| {
            Some(Ends {
                program: std::env::current_exe().unwrap(),
                kind: Some(kind),
            })
        };
        match self {
            Self::Line => own("line"),
            Self::Yamux => own("yamux"),
            Self::H2 => own("h2"),
            Self::Tls => own("tls"),
            Self::Remotedialer | Self::Konnectivity | Self::Chisel => {
                let program = options.peers.as_ref()?.join(self.name());
                program.exists().then_some(Ends {
                    program,
                    kind: None,
                })
            }
        }
    }
}

/// The program that is both ends of a measurement, one process each.
struct Ends {
    program: PathBuf,
    /// Which of its ends, where it is this one.
    kind: Option<&'static str>,
}

impl Ends {
    fn start(&self, side: &str, address: &str, link: Option<&Link>) -> Command {
        let program = self.program.to_str().unwrap();
        let mut command =
            link.map_or_else(|| Command::new(program), |link| link.command(side, program));
        match self.kind {
            Some(kind) => command.args(["end", side, kind]),
            None => command.arg(side),
        };
        command.arg(address);
        command
    }
}

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    scenario: &'static str,
    /// Rate of the link (`tc`) and its queue in milliseconds; loopback without.
    link: Option<(&'static str, u64)>,
    /// A long way between the two, in user space.
    way: Option<Way>,
    kinds: &'static [Kind],
    /// Figures for the table, with the bar of the first.
    pub(crate) shown: &'static [&'static str],
    pub(crate) bar: &'static str,
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
/// Where yamux and HTTP/2 end the connection or never finish, and konnectivity never does either.
const FEW: &[Kind] = &[Kind::Line, Kind::Remotedialer, Kind::Chisel];
const RATE: &[&str] = &["MB/s", "hub ns/KB", "agent ns/KB", "Jain"];
const ECHO: &[&str] = &["p50 us", "p99 us", "bulk MB/s"];

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
    "worst request ms",
    "hub CPU s",
    "hub MB",
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
        kinds,
        shown,
        bar: "",
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

    const fn bar(self, bar: &'static str) -> Self {
        Self { bar, ..self }
    }
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    case("down-1", "download, 1 stream", "download 1", EVERY, RATE).bar("≥ 3 × remotedialer, ≥ 70 % of TLS"),
    case("down-16", "download, 16 streams", "download 16", EVERY, RATE),
    case("down-64", "download, 64 streams", "download 64", EVERY, RATE),
    case("up-1", "upload, 1 stream", "upload 1", EVERY, RATE),
    case("up-16", "upload, 16 streams", "upload 16", EVERY, RATE),
    case("duplex-16", "download and upload at once, 16 streams", "duplex 16", EVERY, RATE),
    case("echo-0", "64 B echo, idle", "echo 0", EVERY, ECHO).bar("p50 ≤ 80, p99 ≤ 300 µs"),
    case("echo-1", "64 B echo beside 1 bulk stream", "echo 1", EVERY, ECHO),
    case("echo-8", "64 B echo beside 8 bulk streams", "echo 8", EVERY, ECHO).bar("p99 ≤ 5 ms"),
    case("echo-64", "64 B echo beside 64 bulk streams", "echo 64", EVERY, ECHO),
    case("shaped-1", "200 Mbit/s, 20 ms queue: echo beside 1", "echo 1", MUX, ECHO).over("200mbit", 20),
    case("shaped-16", "200 Mbit/s, 20 ms queue: echo beside 16", "echo 16", MUX, ECHO).over("200mbit", 20),
    case("shaped-64", "200 Mbit/s, 20 ms queue: echo beside 64", "echo 64", MUX, ECHO).over("200mbit", 20)
        .bar("p50 ≤ 20, p99 ≤ 60 ms"),
    case("narrow-8", "16 Mbit/s, 100 ms queue: echo beside 8", "echo 8", MUX, ECHO).over("16mbit", 100)
        .bar("p99 ≤ 250 ms"),
    case("long-down", "1 Gbit/s, 100 ms: download, 1 stream, after 4 s", "late-download 1", EVERY, RATE).far(1000, 100)
        .bar("≥ 80 % of TLS"),
    case("long-up", "1 Gbit/s, 100 ms: upload, 1 stream, after 4 s", "late-upload 1", EVERY, RATE).far(1000, 100)
        .bar("≥ 80 % of TLS"),
    case("slow-100", "100 unread streams, 1 bulk, echo", "slow 100", MUX, &["hub MB", "agent MB", "p99 us", "bulk MB/s"])
        .bar("≤ 32 MiB"),
    case("slow-2000", "2,000 unread streams, 1 bulk, echo", "slow 2000", &[Kind::Line], &["hub MB", "agent MB", "p99 us", "bulk MB/s", "refused", "reset"]),
    case("tiny", "50 unread and 50 read streams of 16 B at a time, echo", "tiny 100", MUX, &["p99 us", "k frames/s"]),
    case("open-1", "open, echo, close; 1 worker", "openclose 1", MUX, &["op/s"]).bar("≥ 2 × remotedialer"),
    case("open-32", "open, echo, close; 32 workers", "openclose 32", MUX, &["op/s"]).bar("≥ 2 × remotedialer"),
    case("idle-2000", "2,000 idle lines in one process an end", "idle 2000", &[Kind::Line], IDLE).bar("≤ 20 KiB and TLS"),
    case("idle-10000", "10,000 idle lines in one process an end", "idle 10000", &[Kind::Line], IDLE)
        .bar("≤ 512 MB, ≤ 5 % of a core"),
    case("cancels", "10,000 downloads cancelled, then an echo", "cancels 10000", FEW, &["op/s", "p99 us"]),
    case("storm-500", "hub killed under 500 lines", "storm 500", &[Kind::Line], STORM)
        .bar("99 % ≤ 5 s, all ≤ 15 s, peak ≤ 3 × mean"),
    case("storm-10000", "hub killed under 10,000 lines", "storm 10000", &[Kind::Line], STORM)
        .bar("99 % ≤ 60 s"),
];

/// Figures of one case by kind, one entry a run; a run that stuck has none.
pub(crate) struct Outcome {
    pub(crate) case: &'static Case,
    pub(crate) runs: Vec<(Kind, Option<Figures>)>,
}

pub(crate) fn run(options: &Options) {
    std::fs::create_dir_all(&options.out).unwrap();
    certificate(&options.out);
    let wanted = |case: &Case| {
        options.cases.is_empty()
            || options
                .cases
                .iter()
                .any(|name| case.name.starts_with(name.as_str()))
    };
    let mut outcomes = Vec::new();
    for case in CASES.iter().filter(|case| wanted(case)) {
        let link = case.link.map(|(rate, queue_ms)| Link::new(rate, queue_ms));
        let link = match link.transpose() {
            Ok(link) => link,
            Err(error) => {
                eprintln!("{}: not measured: {error}", case.name);
                continue;
            }
        };
        let mut outcome = Outcome { case, runs: vec![] };
        for _ in 0..options.runs {
            for kind in case.kinds {
                let Some(ends) = kind.ends(options) else {
                    continue;
                };
                let figures = if case.scenario.starts_with("storm") {
                    storm(options, case)
                } else {
                    once(options, case, (*kind, &ends), link.as_ref())
                };
                if figures.is_none() {
                    eprintln!("{}: {} got stuck", case.name, kind.name());
                }
                outcome.runs.push((*kind, figures));
            }
        }
        print!("{}", table::rows(&outcome));
        outcomes.push(outcome);
    }
    table::write(options, &outcomes);
}

/// One measurement: both processes, from the start of the one that listens to the hub's result.
fn once(
    options: &Options,
    case: &Case,
    (kind, ends): (Kind, &Ends),
    link: Option<&Link>,
) -> Option<Figures> {
    let scenario = format!("{} {}", case.scenario, options.seconds);
    // Plain TLS has no multiplexer: there the agent's side listens and a stream is a connection.
    let (first, second) = if kind == Kind::Tls {
        ("agent", "hub")
    } else {
        ("hub", "agent")
    };
    let address = link.map_or("127.0.0.1", |_| Link::address(first));
    let start = |side: &str, address: &str| {
        let mut command = ends.start(side, address, link);
        command.arg(&options.out).args(scenario.split(' '));
        command.stdout(Stdio::piped());
        Process(command.spawn().unwrap())
    };
    let mut listener = start(first, &format!("{address}:0"));
    let (lines, heard) = mpsc::channel();
    listener.forward(&lines);
    let address = wait(&heard, "LISTEN ")?;
    let address = match case.way {
        Some(way) => way.to(&address).to_string(),
        None => address,
    };
    let mut dialler = start(second, &address);
    dialler.forward(&lines);
    let result = wait(&heard, "RESULT ")?;
    serde_json::from_str(&result).ok()
}

/// One storm: the hub is killed under its lines and started again where it was.
fn storm(options: &Options, case: &Case) -> Option<Figures> {
    let start = |side: &str, address: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["end", side, "storm", address])
            .arg(&options.out);
        command
            .args(case.scenario.split(' '))
            .stdout(Stdio::piped());
        Process(command.spawn().unwrap())
    };
    let (lines, heard) = mpsc::channel();
    let mut hub = start("hub", &fixed_address());
    hub.forward(&lines);
    let address = wait_long(&heard, "LISTEN ")?;
    let mut agents = start("agent", &address);
    agents.forward(&lines);
    wait_long(&heard, "UP ")?;
    drop(hub);
    let mut hub = start("hub", &address);
    hub.forward(&lines);
    let result = wait_long(&heard, "RESULT ")?;
    let used = machine::used_by(hub.0.id());
    let mut figures: Figures = serde_json::from_str(&result).ok()?;
    figures.insert("hub CPU s".into(), used.cpu_ns / 1e9);
    figures.insert("hub MB".into(), used.rss_kib / 1024.0);
    Some(figures)
}

/// A free address below the ports that the system gives to those who dial: while the hub is away, one of the agents
/// could be given the hub's own port, connect to itself, and keep it.
fn fixed_address() -> String {
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = (20_000..30_000).find(free).unwrap();
    format!("127.0.0.1:{port}")
}

fn wait(lines: &mpsc::Receiver<String>, prefix: &str) -> Option<String> {
    wait_for(lines, prefix, PATIENCE)
}

/// For what registers or connects thousands.
fn wait_long(lines: &mpsc::Receiver<String>, prefix: &str) -> Option<String> {
    wait_for(lines, prefix, PATIENCE * 5)
}

fn wait_for(lines: &mpsc::Receiver<String>, prefix: &str, patience: Duration) -> Option<String> {
    loop {
        let line = lines.recv_timeout(patience).ok()?;
        if let Some(rest) = line.strip_prefix(prefix) {
            return Some(rest.to_owned());
        }
    }
}

/// Ends with its owner.
struct Process(Child);

impl Process {
    fn forward(&mut self, lines: &mpsc::Sender<String>) {
        let (lines, output) = (lines.clone(), self.0.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    return;
                }
            }
        });
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn certificate(directory: &Path) {
    let made = rcgen::generate_simple_self_signed(vec!["hub.bench".to_owned()]).unwrap();
    std::fs::write(directory.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(directory.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
}
