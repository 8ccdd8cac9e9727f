//! Logs to stderr, and the registry that `/metrics` prints.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tracing_subscriber::EnvFilter;

mod heals;
pub mod port;

pub use heals::HealMetrics;

/// The Kubernetes client's word for each answer that is an error. It names no request; who asked says more, where it matters.
const QUIET: &str = "kube_client::client::builder=off";
/// The verifier's word for each certificate that it does not accept: whoever dialled says so, with what to do.
const QUIET_TLS: &str = "rustls_platform_verifier=off";
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// A filter that means nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no log filter")]
pub struct NoFilter(String);

/// Installs the subscriber: text for people, JSON for collectors. Called once, by `main`.
pub fn init(filter: &str, json: bool, colour: bool) -> Result<(), NoFilter> {
    let filter = filter_of(filter)?;
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colour)
        .with_writer(std::io::stderr);
    // Only `main` calls this; a second call keeps the first subscriber.
    let _installed = if json {
        logs.json().try_init()
    } else {
        logs.try_init()
    };
    Ok(())
}

/// What is asked for; the client's word of errors comes only where it is asked for by name.
fn filter_of(asked: &str) -> Result<EnvFilter, NoFilter> {
    // A word alone would be taken for a target, and a misspelt level would silence all others.
    let level = |word: &str| LEVELS.contains(&word.to_ascii_lowercase().as_str());
    let mut words = asked.split(',').map(str::trim).filter(|w| !w.is_empty());
    let strange = words.find(|word| !word.contains(['=', '[', ':']) && !level(word));
    if let Some(strange) = strange {
        return Err(NoFilter(strange.to_owned()));
    }
    let quiet = format!("{QUIET},{QUIET_TLS},{asked}");
    EnvFilter::try_new(quiet).map_err(|_| NoFilter(asked.to_owned()))
}

/// The content type of `/metrics`.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The hub's own metrics. Labels come from closed sets, never from what a peer sends.
#[derive(Debug, Default, Clone)]
pub struct HubMetrics {
    answers: Family<Code, Counter>,
    refusals: Family<Rule, Counter>,
    joins: Family<Outcome, Counter>,
    phases: Family<Phase, Gauge>,
    connections: Gauge,
    reports: Counter,
    pushes: Counter,
    takeovers: Counter,
    heals: HealMetrics,
    notices: Family<Told, Counter>,
}

/// The lines of this process as they are, with names of closed sets. What counts up never goes back.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Lines {
    /// Clusters with a line.
    pub up: u64,
    pub draining: u64,
    /// Open streams by kind.
    pub streams: Vec<(&'static str, u64)>,
    /// Streams ever opened.
    pub opened: u64,
    /// Bytes of frames.
    pub sent: u64,
    pub received: u64,
    /// Bytes that arrived and were not read yet.
    pub unread: u64,
    /// How often a writer here met a window without credit.
    pub stalls: u64,
    /// Requests that wait for a line.
    pub parked: u64,
    /// Round trips of the lines, by quantile.
    pub rtt: Vec<(&'static str, Duration)>,
    /// By the scheduler's class.
    pub classes: Vec<(&'static str, ClassBytes)>,
    /// How long streams wait for their turn, by class and quantile of the lines.
    pub delays: Vec<(&'static str, Vec<(&'static str, Duration)>)>,
    /// Lines that ended, by cause.
    pub ends: Vec<(String, u64)>,
}

/// Bytes of streams, without frames' headers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ClassBytes {
    pub sent: u64,
    pub received: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Direction {
    direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Quantile {
    quantile: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Class {
    class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Delay {
    class: &'static str,
    quantile: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cause {
    cause: String,
}

impl Lines {
    fn register(&self, registry: &mut Registry) {
        let gauges = [
            ("lines", "Clusters whose line is up", self.up),
            ("lines_draining", "Lines that drain", self.draining),
            (
                "line_unread_bytes",
                "Bytes that arrived on lines and were not read yet",
                self.unread,
            ),
            (
                "parked_requests",
                "Requests that wait for a line",
                self.parked,
            ),
        ];
        for (name, help, value) in gauges {
            registry.register(name, help, gauge(value));
        }
        let counters = [
            ("line_streams_opened", "Streams opened", self.opened),
            (
                "line_credit_stalls",
                "Times that a writer met a window without credit",
                self.stalls,
            ),
        ];
        for (name, help, value) in counters {
            registry.register(name, help, counter(value));
        }
        let streams: Family<Kind, Gauge> = Family::default();
        for (kind, n) in &self.streams {
            let streams = streams.get_or_create(&Kind { kind });
            streams.set(i64::try_from(*n).unwrap_or(i64::MAX));
        }
        registry.register("line_streams", "Open streams by kind", streams);
        let bytes: Family<Direction, Counter> = Family::default();
        for (direction, n) in [("sent", self.sent), ("received", self.received)] {
            bytes.get_or_create(&Direction { direction }).inc_by(n);
        }
        registry.register("line_bytes", "Bytes of frames by direction", bytes);
        let rtt: Family<Quantile, Gauge<f64, AtomicU64>> = Family::default();
        for (quantile, time) in &self.rtt {
            rtt.get_or_create(&Quantile { quantile })
                .set(time.as_secs_f64());
        }
        registry.register("line_rtt_seconds", "Round trips of the lines", rtt);
        self.register_classes(registry);
        let ends: Family<Cause, Counter> = Family::default();
        for (cause, n) in &self.ends {
            let cause = cause.clone();
            ends.get_or_create(&Cause { cause }).inc_by(*n);
        }
        registry.register("line_ends", "Lines that ended, by cause", ends);
    }

    fn register_classes(&self, registry: &mut Registry) {
        let sent: Family<Class, Counter> = Family::default();
        let received: Family<Class, Counter> = Family::default();
        for (class, bytes) in &self.classes {
            sent.get_or_create(&Class { class }).inc_by(bytes.sent);
            received
                .get_or_create(&Class { class })
                .inc_by(bytes.received);
        }
        let help = "Bytes of streams sent, by the scheduler's class";
        registry.register("line_class_sent_bytes", help, sent);
        let help = "Bytes of streams received, by the scheduler's class";
        registry.register("line_class_received_bytes", help, received);
        let delay: Family<Delay, Gauge<f64, AtomicU64>> = Family::default();
        for (class, quantiles) in &self.delays {
            for (quantile, time) in quantiles {
                let delay = delay.get_or_create(&Delay { class, quantile });
                delay.set(time.as_secs_f64());
            }
        }
        let help = "How long streams with something to send waited for their turn, by class, over the lines";
        registry.register("line_queue_delay_seconds", help, delay);
    }
}

/// Tasks of the runtime that asks: what is left behind shows there first, long before it is a matter of memory.
fn register_tasks(registry: &mut Registry) {
    if let Ok(runtime) = Handle::try_current() {
        let tasks = runtime.metrics().num_alive_tasks();
        let tasks = gauge(u64::try_from(tasks).unwrap_or(u64::MAX));
        registry.register("tasks", "Tasks of the process that have not ended", tasks);
    }
}

fn gauge(value: u64) -> Gauge {
    let gauge = Gauge::default();
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    gauge
}

fn counter(value: u64) -> Counter {
    let counter: Counter = Counter::default();
    counter.inc_by(value);
    counter
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Rule {
    rule: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Told {
    sink: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Phase {
    phase: String,
}

impl HubMetrics {
    pub fn answered(&self, code: u16) {
        self.answers.get_or_create(&Code { code }).inc();
    }

    /// A Kubernetes request that the hub did not pass on, by what refused it.
    pub fn refused(&self, rule: &'static str) {
        self.refusals.get_or_create(&Rule { rule }).inc();
    }

    /// `outcome` is `ok`, `repeat` or a problem's slug.
    pub fn joined(&self, outcome: &str) {
        let outcome = outcome.to_owned();
        self.joins.get_or_create(&Outcome { outcome }).inc();
    }

    pub fn reported(&self) {
        self.reports.inc();
    }

    /// Another process of a cluster's agent has its line now.
    pub fn taken_over(&self) {
        self.takeovers.inc();
    }

    pub fn pushed(&self) {
        self.pushes.inc();
    }

    /// What the fleet's agents told of their heals.
    pub fn heals(&self) -> &HealMetrics {
        &self.heals
    }

    /// What became of a notice, or of one try: `delivered`, `failed` (and tried again) or `dropped`.
    pub fn noticed(&self, sink: &'static str, outcome: &'static str) {
        self.notices.get_or_create(&Told { sink, outcome }).inc();
    }

    pub fn connections(&self) -> &Gauge {
        &self.connections
    }

    /// How many clusters there are of each phase.
    pub fn fleet(&self, phases: &[(String, i64)]) {
        self.phases.clear();
        for (phase, count) in phases {
            let phase = phase.clone();
            self.phases.get_or_create(&Phase { phase }).set(*count);
        }
    }

    /// The text that `/metrics` answers (`OpenMetrics`).
    pub fn text(&self, lines: &Lines) -> Result<String, std::fmt::Error> {
        let mut all = Registry::default();
        let process = all.sub_registry_with_prefix("linesman");
        self.heals.register(process);
        register_tasks(process);
        let registry = all.sub_registry_with_prefix("linesman_hub");
        registry.register("http_answers", "HTTP answers by code", self.answers.clone());
        registry.register(
            "refusals",
            "Kubernetes requests refused, by rule",
            self.refusals.clone(),
        );
        registry.register("joins", "Joins by outcome", self.joins.clone());
        registry.register("clusters", "Clusters by phase", self.phases.clone());
        lines.register(registry);
        registry.register(
            "connections",
            "Open HTTPS connections",
            self.connections.clone(),
        );
        registry.register("reports", "Reports from agents", self.reports.clone());
        registry.register(
            "line_takeovers",
            "Lines that another process of the agent took while they were up",
            self.takeovers.clone(),
        );
        registry.register(
            "catalog_pushes",
            "Pushes to the catalog",
            self.pushes.clone(),
        );
        registry.register(
            "notices",
            "Notices of troubles, by sink and outcome",
            self.notices.clone(),
        );
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &all)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_word_of_errors_is_heard_where_it_is_asked_for() {
        let directives = |asked: &str| -> Vec<String> {
            let filter = filter_of(asked).unwrap().to_string();
            let mut all: Vec<String> = filter.split(',').map(str::to_owned).collect();
            all.sort();
            all
        };
        assert_eq!(directives("info"), ["info", QUIET, QUIET_TLS]);
        let named = "kube_client::client::builder=debug";
        assert_eq!(directives(named), [named, QUIET_TLS]);
        let named = "rustls_platform_verifier=debug";
        assert_eq!(directives(named), [QUIET, named]);
    }

    #[test]
    fn a_misspelt_level_is_refused() {
        for (asked, strange) in [
            ("debugg", "debugg"),
            ("info,debugg", "debugg"),
            ("hyper", "hyper"),
            ("linesman::agent=debugg", "linesman::agent=debugg"),
            ("no such = filter", "no such = filter"),
        ] {
            let refused = filter_of(asked).map(|filter| filter.to_string());
            assert_eq!(refused, Err(NoFilter(strange.to_owned())), "{asked}");
        }
        for asked in ["", "WARN", "info,linesman::hub=debug", "linesman::hub"] {
            assert!(filter_of(asked).is_ok(), "{asked}");
        }
    }
}
