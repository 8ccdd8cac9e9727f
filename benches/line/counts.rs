//! What becomes of counts and times: shares and percentiles.

use crate::load::Figures;

/// What each stream moved between two counts.
pub(crate) fn moved(before: &[u64], after: &[u64]) -> Vec<f64> {
    let pairs = before.iter().zip(after);
    pairs
        .map(|(before, after)| (after - before) as f64)
        .collect()
}

/// Jain's index of fairness: 1 where all streams got the same, and where there are none.
pub(crate) fn jain(moved: &[f64]) -> f64 {
    let sum: f64 = moved.iter().sum();
    let squares: f64 = moved.iter().map(|moved| moved * moved).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (squares * moved.len() as f64)
}

pub(crate) fn percentiles(mut times: Vec<f64>) -> Figures {
    times.sort_by(f64::total_cmp);
    let at = |part: usize| times[(times.len() * part / 1000).min(times.len() - 1)];
    Figures::from([
        ("p50 us".into(), at(500)),
        ("p99 us".into(), at(990)),
        ("max us".into(), at(1000)),
        ("echoes".into(), times.len() as f64),
    ])
}
