//! When the hub is told of what is done in a heal that is open. It counts the clusters whose agents acted within ten minutes, and
//! goes by the times in their records.

use time::{Duration, OffsetDateTime};

use super::MAX_STEPS;
use crate::wire::report::HealStep;

/// A heal that is over by then is told of with its end, as most are.
const LASTS: Duration = Duration::seconds(10);
/// What goes on is told of so seldom: half of the time that counts at the hub.
const SPELL: Duration = Duration::minutes(5);

/// What was done in one open heal, as far as others have to know.
#[derive(Debug, Default)]
pub(super) struct Acts {
    /// When the present spell of acts began.
    since: Option<OffsetDateTime>,
    untold: bool,
}

impl Acts {
    /// Something is done now. True = that begins a spell.
    pub(super) fn acted(&mut self, now: OffsetDateTime) -> bool {
        let begins = self.since.is_none_or(|since| now - since >= SPELL);
        if begins {
            self.since = Some(now);
            self.untold = true;
        }
        begins
    }

    /// Whether the hub is to be told now, where the heal is not over.
    pub(super) fn is_due(&self, now: OffsetDateTime) -> bool {
        self.untold && self.since.is_some_and(|since| now - since >= LASTS)
    }

    /// The heal was told of.
    pub(super) fn told(&mut self) {
        self.untold = false;
    }

    pub(super) fn time(&mut self) -> Option<&mut OffsetDateTime> {
        self.since.as_mut()
    }
}

/// Writes down what was done. The same as before is written down again only at the beginning of a spell, which others know by
/// its time.
pub(super) fn write(steps: &mut Vec<HealStep>, done: HealStep, begins: bool) {
    let same = |step: &HealStep| step.action == done.action && step.object == done.object;
    let again = steps
        .last()
        .is_some_and(|last| same(last) && last.outcome == done.outcome);
    if again && !begins {
        return;
    }
    // The first ones say what was tried; the last of this kind makes place.
    if begins
        && steps.len() >= MAX_STEPS
        && let Some(at) = steps.iter().rposition(same)
    {
        steps.remove(at);
    }
    if steps.len() < MAX_STEPS {
        steps.push(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::plan::history::Outcome;
    use crate::agent::plan::{Action, Class, Step};
    use crate::agent::watchdog::record::tests::{adopted, at, deployment, round};
    use crate::clock::rfc3339;

    fn times(seconds: impl IntoIterator<Item = i64>) -> Vec<String> {
        let one = |seconds| rfc3339(at(seconds));
        seconds.into_iter().map(one).collect()
    }

    /// What is told in these rounds of a fault that stays, after some of which the same is done each time: in which round, and
    /// the times of the steps.
    fn told(
        rounds: impl IntoIterator<Item = i64>,
        acts: impl Fn(i64) -> bool,
        action: &Action,
    ) -> Vec<(i64, Vec<String>)> {
        let (mut records, mut history) = adopted();
        let fault = (Class::BadImage, deployment());
        let step = Step {
            action: action.clone(),
            target: deployment(),
            cause: Some(fault.clone()),
        };
        let mut all = Vec::new();
        for now in rounds {
            let found = std::slice::from_ref(&fault);
            for heal in round(&mut records, &mut history, now, found, None) {
                let times = heal.steps.into_iter().map(|step| step.at);
                all.push((now, times.collect()));
            }
            if acts(now) {
                records.acted(at(now), &step, &Outcome::Done);
            }
        }
        all
    }

    /// W26: the hub counts what is done in a heal that nobody has ended.
    #[test]
    fn what_was_done_is_told_where_the_heal_lasts() {
        let acts = |now| now == 1;
        let all = told([0, 1, 10, 11, 12, 900], acts, &Action::Apply);
        assert_eq!(all, [(0, times([])), (11, times([1]))]);
        // A question to the engine mends nothing.
        let all = told([0, 1, 10, 11, 12, 900], acts, &Action::Nudge);
        assert_eq!(all, [(0, times([]))]);
    }

    #[test]
    fn a_heal_that_is_over_soon_is_told_of_with_its_end_alone() {
        let (mut records, mut history) = adopted();
        let fault = [(Class::BadImage, deployment())];
        round(&mut records, &mut history, 0, &fault, None);
        let step = Step {
            action: Action::Apply,
            target: deployment(),
            cause: Some(fault[0].clone()),
        };
        records.acted(at(1), &step, &Outcome::Done);
        let all = round(&mut records, &mut history, 30, &[], Some(20));
        let ends = all.iter().map(|heal| heal.restored_at.clone());
        assert_eq!(ends.collect::<Vec<_>>(), [Some(rfc3339(at(30)))]);
    }

    /// W26: agents that held back try again, and find the same.
    #[test]
    fn what_is_done_again_after_a_pause_is_told_with_its_time() {
        let acts = |now| [1, 2, 1_201].contains(&now);
        let rounds = [0, 1, 2, 11, 1_200, 1_201, 1_211];
        let all = told(rounds, acts, &Action::Apply);
        let expected = [(0, times([])), (11, times([1])), (1_211, times([1, 1_201]))];
        assert_eq!(all, expected);
    }

    /// W41
    #[test]
    fn a_fight_is_told_of_once_in_five_minutes() {
        let all = told((0..3_600).step_by(10), |now| now % 30 == 0, &Action::Apply);
        let begins = (0..3_600).step_by(300);
        let mut expected = vec![(0, times([]))];
        expected.extend(begins.map(|begin| (begin + 10, times((0..=begin).step_by(300)))));
        assert_eq!(all, expected);
    }

    #[test]
    fn a_record_that_is_full_keeps_the_first_steps_and_the_last() {
        let step = |action: &str, second| HealStep {
            action: action.to_owned(),
            object: "Deployment a/b".to_owned(),
            at: rfc3339(at(second)),
            outcome: "ok".to_owned(),
        };
        let mut steps = Vec::new();
        for second in 0..60 {
            write(&mut steps, step("apply", second), true);
        }
        let expected: Vec<HealStep> = (0..39).chain([59]).map(|s| step("apply", s)).collect();
        assert_eq!(steps, expected);
        write(&mut steps, step("apply", 60), false);
        write(&mut steps, step("restart", 61), true);
        assert_eq!(steps, expected, "nothing is added");
    }
}
