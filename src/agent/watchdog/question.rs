//! What the watchdog answers when somebody asks how the cluster is.

use super::Watchdog;
use crate::agent::diagnose::Question;
use crate::agent::engine::Install;
use crate::agent::plan::{Observed, Plan, diagnosis, ownership};
use crate::clock;
use crate::wire::api::Component;

/// Questions between two rounds.
const AT_ONCE: usize = 4;

impl Watchdog {
    /// Answers those who wait, where the next round follows at once.
    pub(super) fn answer_waiting(&mut self, of: (&Install, &Observed, &Plan)) {
        for _ in 0..AT_ONCE {
            let Ok(question) = self.questions.try_recv() else {
                return;
            };
            self.answer(question, of);
        }
    }

    pub(super) fn answer(
        &self,
        question: Question,
        (install, observed, plan): (&Install, &Observed, &Plan),
    ) {
        // Who asked may have given up.
        drop(question.send(self.diagnosis(install, observed, plan)));
    }

    fn diagnosis(&self, install: &Install, observed: &Observed, plan: &Plan) -> Vec<Component> {
        let now = clock::now();
        let in_force = ownership::in_force(now, install, observed, &self.history);
        diagnosis::components(&diagnosis::Moment {
            now,
            install: &in_force,
            observed,
            history: &self.history,
            plan,
            snapshot: self.snapshot.as_ref().map(|s| s.taken),
        })
    }
}
