//! The steps of an adoption as they happen: a spinner on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use time::OffsetDateTime;

use super::output::{paints, progress_line, progress_line_anew, tame};
use crate::clock;
use crate::wire::api::ToldStep;
use crate::wire::report::{StepName, StepState};
use crate::wire::word::Word;

/// Tells each change once.
pub(super) struct Progress {
    told: Vec<ToldStep>,
    spinner: Option<ProgressBar>,
    said: String,
    started: OffsetDateTime,
}

impl Progress {
    pub(super) fn start(first: &str) -> Self {
        let terminal = paints(io::stderr().is_terminal());
        let spinner = terminal.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(ProgressStyle::default_spinner());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        let mut progress = Self {
            told: Vec::new(),
            spinner,
            said: String::new(),
            started: clock::now(),
        };
        progress.say(first);
        progress
    }

    /// What we wait for now; told once while it stays the same.
    pub(super) fn say(&mut self, text: &str) {
        if text == self.said {
            return;
        }
        text.clone_into(&mut self.said);
        match &self.spinner {
            Some(bar) => bar.set_message(tame(text).into_owned()),
            None => progress_line(text),
        }
    }

    /// Tells what is new in these steps.
    pub(super) fn steps(&mut self, steps: &[ToldStep]) {
        // An adoption that was over before we looked is no news.
        if self.told.is_empty() && !steps.is_empty() && current(steps).is_none() {
            steps.clone_into(&mut self.told);
        }
        for line in news(&self.told, steps) {
            self.line(&line);
        }
        if let (Some(step), Some(bar)) = (current(steps), &self.spinner) {
            bar.set_message(tame(&line(step, None)).into_owned());
            self.said.clear();
        }
        steps.clone_into(&mut self.told);
    }

    fn line(&self, text: &str) {
        match &self.spinner {
            Some(bar) => bar.println(tame(text)),
            None => progress_line(text),
        }
    }

    /// How long it took.
    pub(super) fn finish(self) -> Duration {
        if let Some(bar) = self.spinner {
            bar.finish_and_clear();
        }
        (clock::now() - self.started).unsigned_abs()
    }
}

/// A call that is not answered yet, for whoever sits at the terminal. Its line may hold a spinner, which draws itself again
/// on the next one.
pub(super) fn slow(operation: &str) {
    if io::stderr().is_terminal() {
        progress_line_anew(&format!("{operation}: no answer yet"));
    }
}

/// The first step that is not done.
pub(super) fn current(steps: &[ToldStep]) -> Option<&ToldStep> {
    steps.iter().find(|s| s.state != StepState::Done)
}

pub(super) fn state(state: &Word<StepState>) -> String {
    state.shown(|state| match state {
        StepState::Running => "running",
        StepState::Waiting => "waiting",
        StepState::Done => "done",
        StepState::Failed => "failed",
    })
}

/// The lines that tell `seen` to one who knows `told`.
fn news(told: &[ToldStep], seen: &[ToldStep]) -> Vec<String> {
    let known = |step: &Word<StepName>| told.iter().find(|s| s.step == *step);
    let changed = seen.iter().enumerate().filter(|(_, s)| {
        known(&s.step).is_none_or(|k| (&k.state, &k.reason) != (&s.state, &s.reason))
    });
    changed
        .map(|(at, step)| line(step, at.checked_sub(1).map(|before| &seen[before])))
        .collect()
}

/// `  git       waiting   the key is not known to the Git host yet`, with the time since the step before where done.
fn line(step: &ToldStep, before: Option<&ToldStep>) -> String {
    let shown = state(&step.state);
    let took = match (
        &step.state,
        before.and_then(|b| clock::parse_rfc3339(&b.at)),
        clock::parse_rfc3339(&step.at),
    ) {
        (Word::Known(StepState::Done), Some(from), Some(to)) if to >= from => {
            format!("{:.1} s", (to - from).as_seconds_f64())
        }
        _ => String::new(),
    };
    let note = if step.reason.is_empty() {
        took
    } else {
        step.reason.clone()
    };
    format!("  {:<9} {shown:<8} {note}", step.step)
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(step: StepName, state: StepState, reason: &str, at: &str) -> ToldStep {
        ToldStep {
            step: step.into(),
            state: state.into(),
            reason: reason.to_owned(),
            at: at.to_owned(),
        }
    }

    #[test]
    fn each_change_is_told_once() {
        let keys = step(
            StepName::Keys,
            StepState::Done,
            "",
            "2026-01-01T00:00:00.000Z",
        );
        let join = step(
            StepName::Join,
            StepState::Running,
            "",
            "2026-01-01T00:00:00.100Z",
        );
        let joined = step(
            StepName::Join,
            StepState::Done,
            "",
            "2026-01-01T00:00:01.400Z",
        );
        let git = step(
            StepName::Git,
            StepState::Waiting,
            "auth refused",
            "2026-01-01T00:00:02.000Z",
        );
        let first = [keys.clone(), join];
        assert_eq!(
            news(&[], &first),
            ["  keys      done", "  join      running"]
        );
        assert_eq!(news(&first, &first), Vec::<String>::new());
        let second = [keys, joined, git.clone()];
        assert_eq!(
            news(&first, &second),
            [
                "  join      done     1.4 s",
                "  git       waiting  auth refused"
            ]
        );
        assert_eq!(current(&second), Some(&git));
    }
}
