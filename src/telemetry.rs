//! Logs to stderr, and the registry that `/metrics` prints.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tracing_subscriber::EnvFilter;

/// Installs the subscriber: text for people, JSON for collectors. Called once, by `main`.
pub fn init(filter: &str, json: bool, colour: bool) {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
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
}

/// The hub's own metrics. Labels come from closed sets, never from what a peer sends.
#[derive(Debug, Default, Clone)]
pub struct HubMetrics {
    answers: Family<Code, Counter>,
    refusals: Family<Rule, Counter>,
    joins: Family<Outcome, Counter>,
    phases: Family<Phase, Gauge>,
    lines: Gauge,
    connections: Gauge,
    reports: Counter,
    pushes: Counter,
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

    pub fn pushed(&self) {
        self.pushes.inc();
    }

    pub fn connections(&self) -> &Gauge {
        &self.connections
    }

    /// How many clusters there are of each phase, and how many lines are up.
    pub fn fleet(&self, phases: &[(String, i64)], lines: i64) {
        self.phases.clear();
        for (phase, count) in phases {
            let phase = phase.clone();
            self.phases.get_or_create(&Phase { phase }).set(*count);
        }
        self.lines.set(lines);
    }

    /// The text that `/metrics` answers (`OpenMetrics`).
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::with_prefix("linesman_hub");
        registry.register("http_answers", "HTTP answers by code", self.answers.clone());
        registry.register(
            "refusals",
            "Kubernetes requests refused, by rule",
            self.refusals.clone(),
        );
        registry.register("joins", "Joins by outcome", self.joins.clone());
        registry.register("clusters", "Clusters by phase", self.phases.clone());
        registry.register("lines", "Lines that are up", self.lines.clone());
        registry.register(
            "connections",
            "Open HTTPS connections",
            self.connections.clone(),
        );
        registry.register("reports", "Reports from agents", self.reports.clone());
        registry.register(
            "catalog_pushes",
            "Pushes to the catalog",
            self.pushes.clone(),
        );
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}
