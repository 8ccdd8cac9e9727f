//! Logs to stderr, and the registry that `/metrics` prints.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tracing_subscriber::EnvFilter;

mod heals;
mod lines;
pub mod port;

pub use heals::HealMetrics;
pub use lines::{ClassBytes, Lines};

/// The Kubernetes client's word for each answer that is an error. It names no request; who asked says more, where it matters.
const QUIET: &str = "kube_client::client::builder=off";
/// The verifier's word for each certificate that it does not accept: whoever dialled says so, with what to do.
const QUIET_TLS: &str = "rustls_platform_verifier=off";
/// What a PostgreSQL server remarks on statements that it carries out: at each start, that a table is there already.
const QUIET_SQL: &str = "sqlx::postgres::notice=off";
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
pub(crate) fn filter_of(asked: &str) -> Result<EnvFilter, NoFilter> {
    // A word alone would be taken for a target, and a misspelt level would silence all others.
    let level = |word: &str| LEVELS.contains(&word.to_ascii_lowercase().as_str());
    let mut words = asked.split(',').map(str::trim).filter(|w| !w.is_empty());
    let strange = words.find(|word| !word.contains(['=', '[', ':']) && !level(word));
    if let Some(strange) = strange {
        return Err(NoFilter(strange.to_owned()));
    }
    let quiet = format!("{QUIET},{QUIET_TLS},{QUIET_SQL},{asked}");
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
    /// The last count, as a whole.
    phases: Arc<Mutex<Family<Phase, Gauge>>>,
    connections: Gauge,
    reports: Counter,
    pushes: Counter,
    takeovers: Counter,
    heals: HealMetrics,
    heals_refused: Family<Reason, Counter>,
    notices: Family<Told, Counter>,
    audit_behind: Family<AuditSink, Gauge>,
    audit_early: Counter,
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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Rule {
    rule: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
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
struct AuditSink {
    sink: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Phase {
    phase: String,
}

/// What becomes of a notice, or of one try.
const OUTCOMES: [&str; 3] = ["delivered", "failed", "dropped"];
/// Why a heal is not taken.
const REASONS: [&str; 4] = ["id", "ahead", "class", "room"];

impl HubMetrics {
    /// With the counters that alerts are about: `increase` sees nothing of a series that begins with its first event.
    pub fn begun() -> Self {
        let all = Self::default();
        let rule = "Connections";
        all.refusals.get_or_create(&Rule { rule }).inc_by(0);
        for reason in REASONS {
            all.heals_refused
                .get_or_create(&Reason { reason })
                .inc_by(0);
        }
        all
    }

    /// The same of a sink that notices go to from now on.
    pub fn notices_begin(&self, sink: &'static str) {
        for outcome in OUTCOMES {
            self.notices
                .get_or_create(&Told { sink, outcome })
                .inc_by(0);
        }
    }

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

    /// A heal that an agent told of and that was not taken: for its `id`, the time in that (`ahead`), its `class` or the `room`.
    pub fn heal_refused(&self, reason: &'static str) {
        self.heals_refused.get_or_create(&Reason { reason }).inc();
    }

    /// What became of a notice, or of one try: `delivered`, `failed` (and tried again) or `dropped`.
    pub fn noticed(&self, sink: &'static str, outcome: &'static str) {
        self.notices.get_or_create(&Told { sink, outcome }).inc();
    }

    /// How many records of the audit this sink has yet to take.
    pub fn audit_behind(&self, sink: &'static str) -> Gauge {
        self.audit_behind.get_or_create(&AuditSink { sink }).clone()
    }

    /// Records of the audit that went for their number or bytes, younger than what is kept by age.
    pub fn audit_early(&self) -> &Counter {
        &self.audit_early
    }

    pub fn connections(&self) -> &Gauge {
        &self.connections
    }

    /// How many clusters there are of each phase.
    pub fn fleet(&self, phases: &[(String, i64)]) {
        let counted = Family::<Phase, Gauge>::default();
        for (phase, count) in phases {
            let phase = phase.clone();
            counted.get_or_create(&Phase { phase }).set(*count);
        }
        // At once: a scrape beside it has this count or the one before, and never a part.
        *self.phases.lock().unwrap_or_else(PoisonError::into_inner) = counted;
    }

    fn phases(&self) -> Family<Phase, Gauge> {
        let phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        phases.clone()
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
        registry.register("clusters", "Clusters by phase", self.phases());
        lines.register(registry);
        registry.register(
            "connections",
            "Open HTTPS connections",
            self.connections.clone(),
        );
        registry.register("reports", "Reports from agents", self.reports.clone());
        registry.register(
            "heals_refused",
            "Heals of agents that were not taken, by why",
            self.heals_refused.clone(),
        );
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
        registry.register(
            "audit_sink_behind",
            "Audit records that a sink has yet to take",
            self.audit_behind.clone(),
        );
        registry.register(
            "audit_removed_early",
            "Audit records removed for their number or bytes that were younger than --audit-keep",
            self.audit_early.clone(),
        );
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &all)?;
        Ok(text)
    }
}

/// An error with its causes on one line.
pub(crate) fn chain_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        // Some errors end with their cause's own words.
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = cause.source();
    }
    text
}

/// The same of an error of any kind; its own `{:#}` says what a database refused twice.
pub(crate) fn chain_of_any(error: &anyhow::Error) -> String {
    chain_of(AsRef::<dyn std::error::Error>::as_ref(error))
}

#[cfg(test)]
mod tests;
