//! What the line has to hold, by the acceptance (L13, L15, L16, L23, L24, L27, L33, L52, L53, H48): a bar a figure, compared in the table.

use crate::suite::Kind;

pub(crate) struct Bar {
    pub(crate) figure: &'static str,
    limit: Limit,
}

pub(crate) enum Limit {
    AtMost(f64),
    AtLeast(f64),
    /// At least so many times what that kind has in the same run.
    Times(f64, Kind),
    /// For people to compare.
    Words(&'static str),
}

impl Bar {
    pub(crate) const fn new(figure: &'static str, limit: Limit) -> Self {
        Self { figure, limit }
    }

    pub(crate) fn words(&self) -> String {
        match self.limit {
            Limit::AtMost(most) => format!("≤ {most}"),
            Limit::AtLeast(least) => format!("≥ {least}"),
            Limit::Times(factor, peer) if factor < 1.0 => {
                format!("≥ {} % of {}", factor * 100.0, peer.name())
            }
            Limit::Times(factor, peer) => format!("≥ {factor} × {}", peer.name()),
            Limit::Words(words) => words.to_owned(),
        }
    }

    /// Whether the line's `median` misses it; a peer that was not measured sets none.
    pub(crate) fn is_missed(&self, median: f64, peer: impl Fn(Kind) -> Option<f64>) -> bool {
        match self.limit {
            Limit::AtMost(most) => median > most,
            Limit::AtLeast(least) => median < least,
            Limit::Times(factor, kind) => peer(kind).is_some_and(|peer| median < factor * peer),
            Limit::Words(_) => false,
        }
    }
}
