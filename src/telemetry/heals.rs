//! The metrics of heals, in the same words at both ends: the agent tells of its cluster, the hub of its fleet.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::heal;
use crate::wire::report::HealRecord;

/// Seconds; the bars of the acceptance are among them.
const BUCKETS: [f64; 13] = [
    0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 180.0, 300.0, 900.0,
];

/// `linesman_heals_total`, `linesman_heal_seconds` and `linesman_faults`. Labels come from closed sets.
#[derive(Debug, Clone)]
pub struct HealMetrics {
    heals: Family<End, Counter>,
    seconds: Family<Part, Histogram>,
    faults: Family<Class, Gauge>,
    /// Classes that the gauge has spoken of: what is over reads 0.
    known: Arc<Mutex<BTreeSet<&'static str>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct End {
    class: &'static str,
    step: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Part {
    class: &'static str,
    phase: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Class {
    class: &'static str,
}

impl Default for HealMetrics {
    fn default() -> Self {
        Self {
            heals: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            faults: Family::default(),
            known: Arc::default(),
        }
    }
}

impl HealMetrics {
    /// Counts a heal that is over.
    pub fn ended(&self, heal: &HealRecord) {
        let class = heal::class(&heal.class);
        let end = End {
            class,
            step: heal::step(heal),
            result: heal::result(heal.result),
        };
        self.heals.get_or_create(&end).inc();
        let took = heal::took(heal);
        let parts = [
            ("detect", took.detect_ms),
            ("act", took.act_ms),
            ("restore", took.restore_ms),
        ];
        for (phase, took) in parts {
            if let Some(took) = took {
                let seconds = std::time::Duration::from_millis(took).as_secs_f64();
                let part = self.seconds.get_or_create(&Part { class, phase });
                part.observe(seconds);
            }
        }
    }

    /// How many faults of each class there are now.
    pub fn faults<'a>(&self, there: impl IntoIterator<Item = (&'a str, i64)>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts: Vec<(&'static str, i64)> = known.iter().map(|class| (*class, 0)).collect();
        for (name, count) in there {
            let class = heal::class(name);
            match counts.iter_mut().find(|(known, _)| *known == class) {
                Some((_, sum)) => *sum += count,
                None => counts.push((class, count)),
            }
            known.insert(class);
        }
        for (class, count) in counts {
            self.faults.get_or_create(&Class { class }).set(count);
        }
    }

    /// How many of the agent's own objects differ now. Who keeps them is not who tells of the engine's faults.
    pub fn drifts(&self, count: usize) {
        let class = heal::class("AgentDrift");
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.faults.get_or_create(&Class { class }).set(count);
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "heals",
            "Heals that are over, by class of the fault, the step that mended it and the result",
            self.heals.clone(),
        );
        registry.register(
            "heal_seconds",
            "How long heals took to detect (from the fault), to act (from there) and to restore function (from there)",
            self.seconds.clone(),
        );
        registry.register(
            "faults",
            "Faults that are there now, by class",
            self.faults.clone(),
        );
    }

    /// The text of the agent's `/metrics` (`OpenMetrics`).
    ///
    /// # Errors
    /// Never in practice: text is written to memory.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::with_prefix("linesman");
        self.register(&mut registry);
        super::register_tasks(&mut registry);
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::report::{HealResult, Scene};

    fn heal(class: &str) -> HealRecord {
        HealRecord {
            id: "1".to_owned(),
            class: class.to_owned(),
            number: 0,
            meaning: String::new(),
            object: "Deployment a-name-that-is-no-label".to_owned(),
            evidence: String::new(),
            writer: String::new(),
            revision: String::new(),
            commit: String::new(),
            steps: Vec::new(),
            fault_at: None,
            detected_at: "2026-01-01T00:00:00.000Z".to_owned(),
            acted_at: None,
            restored_at: Some("2026-01-01T00:00:03.000Z".to_owned()),
            result: HealResult::Healed,
            next: String::new(),
            scene: Scene::default(),
        }
    }

    #[test]
    fn heals_are_counted_and_timed_by_closed_sets() {
        let metrics = HealMetrics::default();
        for class in ["ObjectMissing", "a peer's word", "another of its words"] {
            metrics.ended(&heal(class));
        }
        metrics.faults([("ObjectMissing", 2), ("x", 1), ("y", 1)]);
        metrics.drifts(2);
        metrics.faults([("ObjectMissing", 1)]);
        let text = metrics.text().unwrap();
        for line in [
            "linesman_heals_total{class=\"ObjectMissing\",step=\"none\",result=\"healed\"} 1",
            "linesman_heals_total{class=\"other\",step=\"none\",result=\"healed\"} 2",
            "linesman_heal_seconds_sum{class=\"ObjectMissing\",phase=\"restore\"} 3.0",
            "linesman_heal_seconds_bucket{le=\"2.0\",class=\"ObjectMissing\",phase=\"restore\"} 0",
            "linesman_heal_seconds_bucket{le=\"5.0\",class=\"ObjectMissing\",phase=\"restore\"} 1",
            "linesman_faults{class=\"AgentDrift\"} 2",
            "linesman_faults{class=\"ObjectMissing\"} 1",
            "linesman_faults{class=\"other\"} 0",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line} in\n{text}");
        }
        assert!(!text.contains("peer") && !text.contains("a-name"), "{text}");
        assert!(!text.contains("phase=\"act\""), "nothing was done: {text}");
    }
}
