//! What becomes of a fault, in words: from when on it counts, and what keeps it from being mended.

use time::OffsetDateTime;

use super::fault::Budget;
use super::find::Finding;
use super::state::{History, Observed};
use super::window::{End, MAINTENANCE, Window, careful, open_until};
use super::{Class, Mode};
use crate::agent::engine::Install;
use crate::bundle::ObjectId;
use crate::clock::rfc3339;

/// So begins what is said of that which waits for the window on one object.
const RESTS: &str = "it is not mended ";

/// From when on a finding counts. What an object says by now may hide for a moment what it said before: as long as it is not Ready, no
/// fault of the catalog begins anew.
pub fn counts_at(now: OffsetDateTime, history: &History, finding: &Finding) -> OffsetDateTime {
    let past = history.faults.get(&(finding.class, finding.object.clone()));
    let since = past.and_then(|past| past.since).unwrap_or(now);
    let unready = history.unready.get(&finding.object);
    let unready = unready.filter(|_| finding.class.of_catalog());
    unready.map_or(since, |at| since.min(*at)) + finding.class.debounce()
}

/// Why nothing is mended, and who changes that; none = it is. `of` = what would be written to, `missing` = what is wrong is that
/// something is not there.
pub fn held_back(
    now: OffsetDateTime,
    install: &Install,
    (observed, mode): (&Observed, Mode),
    (of, missing): (&[&ObjectId], bool),
) -> Option<String> {
    if let Some(said) = resting(now, (observed, mode), of) {
        return Some(said);
    }
    match mode {
        Mode::Paused(window) => {
            let Window { end, by } = window;
            let remedy = window.remedy(&install.cluster);
            Some(match end {
                End::At(_) => format!("nothing is mended {end}, by {by}; {remedy}"),
                End::Open => format!("nothing is mended, by {by}; {remedy}"),
            })
        }
        Mode::ObserveOnly => {
            let advice = Class::ForeignManager.advice();
            Some(format!(
                "nothing is mended: somebody else manages the engine; {advice}"
            ))
        }
        Mode::Act | Mode::Learning if missing => None,
        Mode::Act | Mode::Learning => careful(now, &install.policy).map(|_| {
            "only what is missing is put back: condition SafeHealsOnly says why".to_owned()
        }),
    }
}

/// What is said of that which waits for the window on one of these objects alone. The window that lasts longest is in force, and
/// another one may be open on all of the engine.
pub fn resting(
    now: OffsetDateTime,
    (observed, mode): (&Observed, Mode),
    of: &[&ObjectId],
) -> Option<String> {
    let (end, said) = own_window(now, observed, of)?;
    let counts = match mode {
        Mode::Paused(window) => end > window.end,
        Mode::ObserveOnly => false,
        Mode::Act | Mode::Learning => true,
    };
    counts.then_some(said)
}

/// Whether it is what [`resting`] says, of whichever window.
pub fn is_resting(said: &str) -> bool {
    said.starts_with(RESTS)
}

/// The window that is open on one of these objects alone, and what is said of it.
fn own_window(now: OffsetDateTime, observed: &Observed, of: &[&ObjectId]) -> Option<(End, String)> {
    let open = of
        .iter()
        .filter_map(|id| Some((open_until(now, observed, id)?, *id)));
    let (at, id) = open.max()?;
    let end = End::At(at);
    let said = format!(
        "{RESTS}{end}, by annotation {MAINTENANCE} on {id}; end it: take that annotation off"
    );
    Some((end, said))
}

/// What becomes of one that does not count yet.
pub fn awaited(finding: &Finding, at: OffsetDateTime) -> String {
    let reported = finding.reported || finding.class.budget() == Budget::Report;
    let what = if reported { "a fault" } else { "mended" };
    format!("{what} if it is so at {}", rfc3339(at))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde_json::json;
    use time::Duration;

    use super::*;
    use crate::agent::gate::policy::{Heal, Mending};
    use crate::agent::plan::state::Child;
    use crate::agent::plan::tests::{Cluster, deployment, install, start};
    use crate::agent::plan::window::By;
    use crate::bundle::Kind;

    /// The word of a colleague's window is what is looked for in the night, not that all is being mended.
    #[test]
    fn what_keeps_a_fault_from_being_mended_is_named_with_the_way_out() {
        let (mut install, now) = (install(), start());
        let seen = Observed::default();
        let end = now + Duration::minutes(5);
        let until = |by| {
            let end = End::At(end);
            Mode::Paused(Window { end, by })
        };
        let off = Mode::Paused(Window {
            end: End::Open,
            by: By::Heal,
        });
        let resume = format!(
            "nothing is mended until {}, by the hub; end it: linesman cluster resume eu1",
            rfc3339(end)
        );
        let owner = "nothing is mended, by key heal of ConfigMap linesman-policy; ask the cluster's owner to set it to on";
        let other = format!(
            "nothing is mended: somebody else manages the engine; {}",
            Class::ForeignManager.advice()
        );
        for missing in [false, true] {
            let told = |mode| held_back(now, &install, (&seen, mode), (&[], missing));
            assert_eq!(told(until(By::Hub)).as_ref(), Some(&resume));
            assert_eq!(told(off).as_deref(), Some(owner));
            assert_eq!(told(Mode::ObserveOnly).as_ref(), Some(&other));
            assert_eq!(told(Mode::Act), None);
        }
        install.policy.owner = Some(Mending {
            heal: Heal::Safe,
            paused_until: None,
        });
        let told = |missing| held_back(now, &install, (&seen, Mode::Act), (&[], missing));
        let safe = "only what is missing is put back: condition SafeHealsOnly says why";
        assert_eq!((told(false).as_deref(), told(true)), (Some(safe), None));
    }

    /// W24: of its window and that of all the later end counts.
    #[test]
    fn a_window_on_one_object_is_named_for_that_object_alone() {
        let mut cluster = Cluster::working();
        let [here, other] = ["source-controller", "kustomize-controller"].map(deployment);
        let now = cluster.now;
        let at = |minutes| now + Duration::minutes(minutes);
        let live = cluster.objects.get_mut(&here).unwrap();
        live.fields["metadata"]["annotations"][MAINTENANCE] = json!(rfc3339(at(10)));
        let (install, seen) = (&cluster.install, cluster.observed());
        let paused = |minutes| {
            let end = End::At(at(minutes));
            Mode::Paused(Window { end, by: By::Hub })
        };
        let own = format!(
            "it is not mended until {}, by annotation linesman.dev/maintenance-until on {here}; end it: take that \
             annotation off",
            rfc3339(at(10))
        );
        let hubs = |minutes| {
            let end = rfc3339(at(minutes));
            format!(
                "nothing is mended until {end}, by the hub; end it: linesman cluster resume eu1"
            )
        };
        for (mode, of, expected) in [
            (Mode::Act, vec![&here], Some(own.clone())),
            (Mode::Act, vec![&other, &here], Some(own.clone())),
            (Mode::Act, vec![&other], None),
            (Mode::Act, vec![], None),
            (paused(9), vec![&here], Some(own.clone())),
            (paused(9), vec![&other], Some(hubs(9))),
            (paused(11), vec![&here], Some(hubs(11))),
        ] {
            let told = held_back(now, install, (&seen, mode), (&of, false));
            assert_eq!(told, expected, "{mode:?} {of:?}");
        }
        let over = held_back(at(10), install, (&seen, Mode::Act), (&[&here], false));
        assert_eq!(over, None);
    }

    /// F39, F41: for the minute in which its source was away a fault of the catalog's was over, and the cluster well.
    #[test]
    fn an_object_that_is_not_ready_for_another_reason_begins_no_debounce_anew() {
        let id = ObjectId::new(Kind::Kustomization, "apps", "shop");
        let (now, mut history) = (start(), History::default());
        let says = |trouble: Option<&str>| Observed {
            children: Arc::new(BTreeMap::from([(
                id.clone(),
                Child {
                    trouble: trouble.map(|reason| (reason.to_owned(), "its words".to_owned())),
                    ..Child::default()
                },
            )])),
            ..Observed::default()
        };
        for (seconds, trouble, class, counts) in [
            (0, Some("ReconciliationFailed"), Class::ApplyFailed, 60),
            (
                50,
                Some("DependencyNotReady"),
                Class::DependencyNotReady,
                60,
            ),
            (70, Some("ReconciliationFailed"), Class::ApplyFailed, 60),
            // Another class of the engine's has its own time.
            (80, Some("ReconciliationFailed"), Class::QueueWedged, 80),
            (90, None, Class::ApplyFailed, 150),
            (100, Some("ReconciliationFailed"), Class::ApplyFailed, 160),
        ] {
            let at = now + Duration::seconds(seconds);
            history.saw_unready(at, &says(trouble));
            let finding = Finding::new(class, &id, "");
            let own = if class.of_catalog() {
                Duration::ZERO
            } else {
                class.debounce()
            };
            let expected = now + Duration::seconds(counts) + own;
            assert_eq!(counts_at(at, &history, &finding), expected, "{seconds} s");
        }
        history.saw_unready(now, &Observed::default());
        assert!(history.unready.is_empty(), "it is gone");
    }

    #[test]
    fn what_does_not_count_yet_is_told_with_the_time_from_which_it_does() {
        let id = deployment("source-controller");
        let (now, mut history) = (start(), History::default());
        let told = |history: &History, class, reported| {
            let finding = Finding {
                reported,
                ..Finding::new(class, &id, "")
            };
            awaited(&finding, counts_at(now, history, &finding))
        };
        let at = |seconds| rfc3339(now + Duration::seconds(seconds));
        let mended = |seconds| format!("mended if it is so at {}", at(seconds));
        assert_eq!(told(&history, Class::ScaledToZero, false), mended(30));
        let fault = format!("a fault if it is so at {}", at(60));
        assert_eq!(told(&history, Class::BuildFailed, false), fault);
        let key = (Class::ScaledToZero, id.clone());
        history.faults.entry(key).or_default().since = Some(now - Duration::seconds(20));
        assert_eq!(told(&history, Class::ScaledToZero, false), mended(10));
        let fault = format!("a fault if it is so at {}", at(10));
        assert_eq!(told(&history, Class::ScaledToZero, true), fault);
    }
}
