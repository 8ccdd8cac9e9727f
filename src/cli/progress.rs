//! The steps of an adoption as they happen: a spinner on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

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
        let mut progress = Self {
            told: Vec::new(),
            spinner: spinner(),
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

/// None where no terminal shows one.
fn spinner() -> Option<ProgressBar> {
    paints(io::stderr().is_terminal()).then(|| {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::default_spinner());
        bar.enable_steady_tick(Duration::from_millis(120));
        bar
    })
}

/// A call that is not answered yet, for whoever sits at the terminal.
pub(super) fn slow(operation: &str) {
    waits(&format!("{operation}: no answer yet"));
}

/// What is waited for, in the same way. Its line may hold a spinner, which draws itself again on the next one.
pub(super) fn waits(text: &str) {
    if io::stderr().is_terminal() {
        progress_line_anew(text);
    }
}

/// How far something long is, for whoever sits at the terminal; nothing of it is left at the end.
pub(super) struct Ticker {
    pace: Pace,
    seen: bool,
    spinner: Option<ProgressBar>,
}

impl Ticker {
    pub(super) fn start(now: Instant) -> Self {
        Self {
            pace: Pace::start(now),
            seen: io::stderr().is_terminal(),
            spinner: None,
        }
    }

    /// Whether to say it now; never where nobody sees it.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        self.seen && self.pace.is_due(now)
    }

    pub(super) fn say(&mut self, text: &str) {
        if self.spinner.is_none() {
            self.spinner = spinner();
        }
        match &self.spinner {
            Some(bar) => bar.set_message(tame(text).into_owned()),
            None => progress_line(text),
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        if let Some(bar) = &self.spinner {
            bar.finish_and_clear();
        }
    }
}

/// From the second second on, once a second at most.
struct Pace {
    next: Instant,
}

impl Pace {
    const EVERY: Duration = Duration::from_secs(1);

    fn start(now: Instant) -> Self {
        Self {
            next: now + Self::EVERY,
        }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now + Self::EVERY;
        }
        due
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

    /// What is over soon is not told of, and what takes minutes is once a second, however often it asks.
    #[test]
    fn what_takes_long_is_told_of_once_a_second() {
        let began = Instant::now();
        let ticker = |seen| Ticker {
            pace: Pace::start(began),
            seen,
            spinner: None,
        };
        let told = |mut ticker: Ticker, times: &[u64]| -> Vec<u64> {
            let is_due = |at: &u64| ticker.is_due(began + Duration::from_millis(*at));
            times.iter().copied().filter(is_due).collect()
        };
        let times = [0, 999, 1_000, 1_001, 1_999, 2_500, 3_499, 3_500, 60_000];
        assert_eq!(told(ticker(true), &times), [1_000, 2_500, 3_500, 60_000]);
        assert_eq!(told(ticker(false), &times), [0_u64; 0]);
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
