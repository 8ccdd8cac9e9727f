//! The cases, each run by all who can, interleaved, so that what else the machine does hits all alike.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::Options;
use crate::cases::{CASES, Case};
use crate::end::NO_LOWAT;
use crate::load::Figures;
use crate::net::Link;
use crate::{machine, recovery, table};

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
    fn start(&self, side: &str, address: &str, case: &Case, link: Option<&Link>) -> Command {
        let program = self.program.to_str().unwrap();
        let mut command =
            link.map_or_else(|| Command::new(program), |link| link.command(side, program));
        match self.kind {
            Some(kind) => {
                command.arg("end");
                command.args((!case.lowat).then_some(NO_LOWAT));
                command.args([side, kind])
            }
            None => command.arg(side),
        };
        command.arg(address);
        command
    }
}

/// Figures of one case by kind, one entry a run; a run that stuck has none.
pub(crate) struct Outcome {
    pub(crate) case: &'static Case,
    pub(crate) runs: Vec<(Kind, Option<Figures>)>,
}

impl Outcome {
    /// What the runs of that kind gave, the least first.
    pub(crate) fn values(&self, kind: Kind, figure: &str) -> Vec<f64> {
        let runs = self.runs.iter().filter(|(k, _)| *k == kind);
        let mut values: Vec<f64> = runs
            .filter_map(|(_, figures)| figures.as_ref()?.get(figure).copied())
            .collect();
        values.sort_by(f64::total_cmp);
        values
    }

    pub(crate) fn median(&self, kind: Kind, figure: &str) -> Option<f64> {
        let values = self.values(kind, figure);
        values.get(values.len() / 2).copied()
    }

    /// Runs of that kind, and how many of them got stuck.
    pub(crate) fn stuck(&self, kind: Kind) -> (usize, usize) {
        let runs: Vec<_> = self.runs.iter().filter(|(k, _)| *k == kind).collect();
        let stuck = runs.iter().filter(|(_, figures)| figures.is_none());
        (runs.len(), stuck.count())
    }

    /// Whether the line misses a bar that this figure has. One that got stuck in a run holds none, whatever the others gave.
    pub(crate) fn misses(&self, figure: &str) -> bool {
        let (_, stuck) = self.stuck(Kind::Line);
        let median = |kind| self.median(kind, figure);
        let mut bars = self.case.bars.iter().filter(|bar| bar.figure == figure);
        bars.any(|bar| {
            let line = median(Kind::Line);
            stuck > 0 || line.is_some_and(|line| bar.is_missed(line, median))
        })
    }

    /// Whether the line got through all runs, and is within all bars.
    fn is_met(&self) -> bool {
        let (_, stuck) = self.stuck(Kind::Line);
        stuck == 0 && !self.case.bars.iter().any(|bar| self.misses(bar.figure))
    }
}

/// Says whether the line has met all that was measured.
pub(crate) fn run(options: &Options) -> bool {
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
                let figures = match case.scenario.split_once(' ') {
                    Some(("storm", _)) => storm(options, case),
                    Some(("recovery", fault)) => {
                        recovery::measured(options, fault, *kind, link.as_ref())
                    }
                    _ => once(options, case, (*kind, &ends), link.as_ref()),
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
    let missed: Vec<_> = outcomes.iter().filter(|o| !o.is_met()).collect();
    for Outcome { case, .. } in &missed {
        eprintln!("{}: the line is beyond a bar, or got stuck", case.name);
    }
    missed.is_empty()
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
    let at = link.map_or("127.0.0.1", |_| Link::address(first));
    let start = |side: &str, address: &str| {
        let mut command = ends.start(side, address, case, link);
        command.arg(&options.out).args(scenario.split(' '));
        command.stdout(Stdio::piped());
        Process(command.spawn().unwrap())
    };
    let mut listener = start(first, &format!("{at}:0"));
    let (lines, heard) = mpsc::channel();
    listener.forward(&lines);
    let address = wait(&heard, "LISTEN ")?;
    let address = match case.way {
        Some(way) => way.to(&address).to_string(),
        None => address,
    };
    let mut proxy = case
        .proxied
        .then(|| start_proxy(options, (first, &format!("{at}:0")), &address, link));
    let address = match &mut proxy {
        Some(proxy) => {
            proxy.forward(&lines);
            wait(&heard, "LISTEN ")?
        }
        None => address,
    };
    let mut dialler = start(second, &address);
    dialler.forward(&lines);
    let result = wait(&heard, "RESULT ")?;
    serde_json::from_str(&result).ok()
}

/// A proxy at `address` of that side, which ends TLS before `target`.
fn start_proxy(
    options: &Options,
    (side, address): (&str, &str),
    target: &str,
    link: Option<&Link>,
) -> Process {
    let mut command = own(side, link);
    command.args(["end", "proxy", "tls", address]);
    command.arg(&options.out).arg(target).stdout(Stdio::piped());
    Process(command.spawn().unwrap())
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

/// This program, as another process; with a link in the namespace of that side.
pub(crate) fn own(side: &str, link: Option<&Link>) -> Command {
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    link.map_or_else(|| Command::new(program), |link| link.command(side, program))
}

/// A free address below the ports that the system gives to those who dial: while the hub is away, one of the agents
/// could be given the hub's own port, connect to itself, and keep it.
pub(crate) fn fixed_address() -> String {
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = (20_000..30_000).find(free).unwrap();
    format!("127.0.0.1:{port}")
}

fn wait(lines: &mpsc::Receiver<String>, prefix: &str) -> Option<String> {
    wait_for(lines, prefix, PATIENCE)
}

/// For what registers or connects thousands.
pub(crate) fn wait_long(lines: &mpsc::Receiver<String>, prefix: &str) -> Option<String> {
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
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Passes on what it says.
    pub(crate) fn forward(&mut self, lines: &mpsc::Sender<String>) {
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
