//! What becomes of a fault, in words: from when on it counts, and what keeps it from being mended.

use time::OffsetDateTime;

use super::fault::Budget;
use super::find::Finding;
use super::state::History;
use super::window::{End, Window, careful};
use super::{Class, Mode};
use crate::agent::engine::Install;
use crate::clock::rfc3339;

/// From when on a finding counts.
pub fn counts_at(now: OffsetDateTime, history: &History, finding: &Finding) -> OffsetDateTime {
    let past = history.faults.get(&(finding.class, finding.object.clone()));
    past.and_then(|past| past.since).unwrap_or(now) + finding.class.debounce()
}

/// Why nothing is mended, and who changes that; none = it is. `missing` = what is wrong is that something is not there.
pub fn held_back(
    now: OffsetDateTime,
    install: &Install,
    mode: Mode,
    missing: bool,
) -> Option<String> {
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

/// What becomes of one that does not count yet.
pub fn awaited(finding: &Finding, at: OffsetDateTime) -> String {
    let reported = finding.reported || finding.class.budget() == Budget::Report;
    let what = if reported { "a fault" } else { "mended" };
    format!("{what} if it is so at {}", rfc3339(at))
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;
    use crate::agent::gate::policy::{Heal, Mending};
    use crate::agent::plan::tests::{install, start};
    use crate::agent::plan::window::By;
    use crate::bundle::{Kind, ObjectId};

    /// The word of a colleague's window is what is looked for in the night, not that all is being mended.
    #[test]
    fn what_keeps_a_fault_from_being_mended_is_named_with_the_way_out() {
        let (mut install, now) = (install(), start());
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
            let told = |mode| held_back(now, &install, mode, missing);
            assert_eq!(told(until(By::Hub)).as_ref(), Some(&resume));
            assert_eq!(told(off).as_deref(), Some(owner));
            assert_eq!(told(Mode::ObserveOnly).as_ref(), Some(&other));
            assert_eq!(told(Mode::Act), None);
        }
        install.policy.owner = Some(Mending {
            heal: Heal::Safe,
            paused_until: None,
        });
        let told = |missing| held_back(now, &install, Mode::Act, missing);
        let safe = "only what is missing is put back: condition SafeHealsOnly says why";
        assert_eq!((told(false).as_deref(), told(true)), (Some(safe), None));
    }

    #[test]
    fn what_does_not_count_yet_is_told_with_the_time_from_which_it_does() {
        let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
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
