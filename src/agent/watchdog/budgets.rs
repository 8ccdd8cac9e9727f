//! What an agent tried of late, for the one that goes on after it: a budget of so many an hour holds over a restart. Pure.

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use crate::agent::plan::fault::Budget;
use crate::agent::plan::pace::MAX_ATTEMPTS;
use crate::agent::plan::{Class, History, Key};
use crate::bundle::{Kind, ObjectId};
use crate::clock::{parse_rfc3339, rfc3339};

/// Faults of which that is kept; the others begin anew.
const MOST: usize = 128;
const HOUR: Duration = Duration::hours(1);

/// One fault, and when something was done about it within the last hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tried {
    class: String,
    kind: String,
    namespace: String,
    name: String,
    /// RFC 3339, oldest first.
    attempts: Vec<String>,
    /// The budget was spent.
    #[serde(default)]
    spent: bool,
}

/// What is to be kept: of faults whose budget is by the hour. The pace of others forgets within minutes.
pub(super) fn kept(history: &History) -> Vec<Tried> {
    let by_the_hour = |key: &Key| matches!(key.0.budget(), Budget::PerHour(_));
    let tried = history
        .faults
        .iter()
        .filter(|(key, past)| by_the_hour(key) && (past.spent || !past.attempts.is_empty()))
        .map(|((class, id), past)| Tried {
            class: class.as_str().to_owned(),
            kind: id.kind.as_str().to_owned(),
            namespace: id.namespace.clone(),
            name: id.name.clone(),
            attempts: past.attempts.iter().copied().map(rfc3339).collect(),
            spent: past.spent,
        });
    tried.take(MOST).collect()
}

/// Goes on with it; `set_by` is by how much the clock is known to have been set since. What is older than an hour or of a fault that this version does not know says nothing, but that a budget was
/// spent: so often as an agent ends and its clock is set forward, there is one trial. What lies ahead counts as now.
pub(super) fn resume(
    history: &mut History,
    all: &[Tried],
    (now, set_by): (OffsetDateTime, Duration),
) {
    for tried in all.iter().take(MOST) {
        let class = Class::ALL.iter().find(|c| c.as_str() == tried.class);
        let kind = Kind::ALL.iter().find(|k| k.as_str() == tried.kind);
        let (Some(class), Some(kind)) = (class, kind) else {
            continue;
        };
        let attempts = tried.attempts.iter().filter_map(|at| parse_rfc3339(at));
        let attempts = attempts.map(|at| at.saturating_add(set_by).min(now));
        let mut attempts: Vec<OffsetDateTime> = attempts.filter(|at| now - *at < HOUR).collect();
        attempts.sort_unstable();
        let surplus = attempts.len().saturating_sub(MAX_ATTEMPTS);
        attempts.drain(..surplus);
        if attempts.is_empty() && !tried.spent {
            continue;
        }
        let id = ObjectId::new(*kind, &tried.namespace, &tried.name);
        let past = history.faults.entry((*class, id)).or_default();
        past.spent = tried.spent;
        past.attempts = attempts;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::plan::pace;

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_800_000_000 + seconds).unwrap()
    }

    fn tried(class: Class, id: &ObjectId, attempts: &[i64]) -> History {
        let mut history = History::default();
        let past = history.faults.entry((class, id.clone())).or_default();
        past.attempts = attempts.iter().copied().map(at).collect();
        past.spent = pace::spends(class, &past.attempts, at(0));
        history
    }

    /// An agent that is killed again and again acts no more often than one that lives.
    #[test]
    fn a_budget_by_the_hour_holds_over_a_restart() {
        let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
        let hourly = |class: &&Class| matches!(class.budget(), Budget::PerHour(_));
        for class in Class::ALL.iter().filter(hourly) {
            let Budget::PerHour(limit) = class.budget() else {
                continue;
            };
            let limit = i64::try_from(limit).unwrap();
            let spent: Vec<i64> = (0..limit).map(|n| n * 60 - 600).collect();
            let before = tried(*class, &id, &spent);
            let text = serde_json::to_string(&kept(&before)).unwrap();
            let mut after = History::default();
            let all: Vec<Tried> = serde_json::from_str(&text).unwrap();
            resume(&mut after, &all, (at(0), Duration::ZERO));
            assert_eq!(after.faults, before.faults, "{class}");
            let past = &after.faults[&(*class, id.clone())];
            let next = pace::allowed(*class, &id, past, "seed", at(0)).unwrap();
            assert_eq!(next, *past.attempts.last().unwrap() + HOUR, "{class}");
        }
    }

    #[test]
    fn what_is_old_or_unknown_says_nothing_and_what_is_to_come_counts_as_now() {
        let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
        let class = Class::ALL
            .iter()
            .find(|c| matches!(c.budget(), Budget::PerHour(_)))
            .unwrap();
        let history = tried(*class, &id, &[-3_600, -1_800, 60]);
        let mut all = kept(&history);
        all.extend(["ofTomorrow", "AgentLost"].map(|class| Tried {
            class: class.to_owned(),
            kind: "Kite".to_owned(),
            ..all[0].clone()
        }));
        let garbled = Tried {
            name: "other".to_owned(),
            attempts: vec!["yesterday".to_owned()],
            ..all[0].clone()
        };
        all.push(garbled);
        let mut after = History::default();
        resume(&mut after, &all, (at(0), Duration::ZERO));
        let lately: Vec<_> = after.faults.iter().map(|(k, p)| (k, &p.attempts)).collect();
        assert_eq!(lately, [(&(*class, id), &vec![at(-1_800), at(0)])]);
    }

    /// A clock that is set forward while the agent starts again gives no spent budget anew: there is one trial, as after each hour.
    /// One that is set back holds nothing up for more than an hour.
    #[test]
    fn a_spent_budget_is_kept_over_a_restart_with_another_clock() {
        let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
        let class = Class::ScaledToZero;
        let Budget::PerHour(limit) = class.budget() else {
            panic!("has another budget")
        };
        let spent: Vec<i64> = (0..i64::try_from(limit).unwrap())
            .map(|n| n * 60 - 600)
            .collect();
        let all = kept(&tried(class, &id, &spent));
        let key = (class, id.clone());
        for (now, left, next) in [
            (at(7_200), Vec::new(), at(7_200)),
            (at(-7_200), vec![at(-7_200); limit], at(-3_600)),
        ] {
            let mut history = History::default();
            resume(&mut history, &all, (now, Duration::ZERO));
            let past = history.faults.get_mut(&key).unwrap();
            assert_eq!((&past.attempts, past.spent), (&left, true));
            past.since = Some(now - HOUR);
            let due = pace::allowed(class, &id, past, "seed", now).unwrap();
            assert_eq!(due.max(now), next);
            past.attempts.push(next);
            let due = pace::allowed(class, &id, past, "seed", next).unwrap();
            assert_eq!(due, next + HOUR, "one trial");
        }
    }

    /// W25: a budget that is not spent yet is not given anew by a clock that is set meanwhile, where the node knows by how much.
    #[test]
    fn a_budget_that_is_spent_in_part_is_kept_over_a_restart_with_a_clock_that_was_set() {
        let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
        let class = Class::ScaledToZero;
        let all = kept(&tried(class, &id, &[-600, -60]));
        for set_by in [7_200, -7_200] {
            let (now, set_by) = (at(set_by + 30), Duration::seconds(set_by));
            let mut history = History::default();
            resume(&mut history, &all, (now, set_by));
            let past = &history.faults[&(class, id.clone())];
            let ages: Vec<i64> = past
                .attempts
                .iter()
                .map(|at| (now - *at).whole_seconds())
                .collect();
            assert_eq!((ages, past.spent), (vec![630, 90], false), "{set_by}");
        }
    }

    /// The pace of what is put back at once forgets within minutes: a write for each of its attempts would be one too many.
    #[test]
    fn what_has_no_budget_by_the_hour_is_not_kept() {
        let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
        let history = tried(Class::ObjectMissing, &id, &[-10]);
        assert_eq!(kept(&history), []);
    }

    #[test]
    fn no_more_is_kept_than_fits() {
        let class = Class::ALL
            .iter()
            .find(|c| matches!(c.budget(), Budget::PerHour(_)))
            .unwrap();
        let mut history = History::default();
        for n in 0..1_000 {
            let id = ObjectId::new(Kind::Deployment, "flux-system", &format!("c{n}"));
            let past = history.faults.entry((*class, id)).or_default();
            past.attempts = (0..64).map(|n| at(n - 64)).collect();
        }
        let text = serde_json::to_string(&kept(&history)).unwrap();
        assert_eq!(kept(&history).len(), MOST);
        assert!(text.len() < 300 << 10, "{}", text.len());
    }
}
