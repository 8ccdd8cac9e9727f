//! The metrics of a hub's lines.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::gauge;

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

impl Lines {
    pub(super) fn register(&self, registry: &mut Registry) {
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

fn counter(value: u64) -> Counter {
    let counter: Counter = Counter::default();
    counter.inc_by(value);
    counter
}
