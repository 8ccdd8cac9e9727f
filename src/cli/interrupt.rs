//! Ctrl-C ends an operator's verb with 130, also one that stands in a call of the system: a prompt, a token from stdin, a
//! lock, another program. What is lost where it is cut in the middle comes to its end first, also where the time of a wait is over.

use std::pin::pin;
use std::process::exit;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use super::exit::{Code, Failure, report};
use super::output::progress_line;

/// A verb that is told has this long to put away what it holds. One that stands in a call does not hear it.
const GRACE: Duration = Duration::from_millis(300);
/// What is to come to its end has this long for it, from Ctrl-C or the end of a wait on.
const LONGEST: Duration = Duration::from_secs(10);
const FIRST: &str = "the session is being renewed; this ends as soon as it is kept";

tokio::task_local! {
    /// Of the verb that runs.
    static OWN: Interrupt;
}

/// Whether Ctrl-C was pressed, and whether the verb may end by it.
#[derive(Debug, Clone, Default)]
pub(super) struct Interrupt(watch::Sender<State>);

#[derive(Debug, Default)]
struct State {
    pressed: bool,
    /// How much has to come to its end first.
    held: u32,
}

/// The verb does not end by Ctrl-C before this is dropped.
struct Held(Interrupt);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.0.send_modify(|state| state.held -= 1);
    }
}

impl Interrupt {
    /// Runs a verb until it ends, or Ctrl-C ends it.
    pub(super) async fn ends<T>(self, verb: impl Future<Output = Result<T>>) -> Result<T> {
        let mut state = self.0.subscribe();
        let over = async {
            let may_end = state.wait_for(|state| state.pressed && state.held == 0);
            if may_end.await.is_err() {
                // Does not happen: the verb has the other end.
                std::future::pending::<()>().await;
            }
        };
        let verb = OWN.scope(self, verb);
        tokio::select! {
            biased;
            () = over => Err(Failure::interrupted().into()),
            result = verb => result,
        }
    }

    /// Whether something has to come to its end first.
    fn press(&self) -> bool {
        let mut held = false;
        self.0.send_modify(|state| {
            state.pressed = true;
            held = state.held > 0;
        });
        held
    }

    /// None once it was pressed: nothing more begins.
    fn hold(&self) -> Option<Held> {
        let held = self.0.send_if_modified(|state| {
            let may = !state.pressed;
            state.held += u32::from(may);
            may
        });
        held.then(|| Held(self.clone()))
    }

    async fn released(&self) {
        let mut state = self.0.subscribe();
        // No more than that, whatever is missing then.
        drop(timeout(LONGEST, state.wait_for(|state| state.held == 0)).await);
    }
}

/// Of the verb whose task this is; None where no Ctrl-C ends it, or in a task of its own.
pub(super) fn own() -> Option<Interrupt> {
    OWN.try_with(Interrupt::clone).ok()
}

/// Has work come to its end before Ctrl-C ends the verb, or [`cut_at`] cuts it. Work that would begin after Ctrl-C does not.
pub(super) async fn to_its_end<T>(
    interrupt: Option<&Interrupt>,
    work: impl Future<Output = T>,
) -> T {
    let Some(interrupt) = interrupt else {
        return work.await;
    };
    let Some(held) = interrupt.hold() else {
        return std::future::pending().await;
    };
    let done = work.await;
    drop(held);
    // A verb that is to end by now goes no further.
    yield_now().await;
    done
}

/// Cuts work at this time, as `timeout_at` does, but not before what has to come to its end has done so.
pub(super) async fn cut_at<T>(end: Instant, work: impl Future<Output = T>) -> Result<T, Elapsed> {
    let mut work = pin!(work);
    let over = match timeout_at(end, &mut work).await {
        Ok(done) => return Ok(done),
        Err(over) => over,
    };
    let Some(interrupt) = own() else {
        return Err(over);
    };
    tokio::select! {
        biased;
        () = interrupt.released() => Err(over),
        done = work => Ok(done),
    }
}

/// Hears of Ctrl-C from now on; soon after it the process ends, whatever it stands in. Files are written beside their places,
/// so that none is there half.
#[expect(
    clippy::exit,
    reason = "the thread that would return from main stands in a call that nothing ends"
)]
pub(super) fn listen() -> Result<Interrupt> {
    let listens = "listen for Ctrl-C";
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context(listens)?;
    let mut signals = {
        let _within = runtime.enter();
        signal(SignalKind::interrupt()).context(listens)?
    };
    let interrupt = Interrupt::default();
    let own = interrupt.clone();
    // A thread of its own: the verb's cannot look while it stands in a call.
    let thread = thread::Builder::new().name("interrupt".to_owned());
    thread
        .spawn(move || {
            if runtime.block_on(signals.recv()).is_none() {
                return;
            }
            if own.press() {
                progress_line(FIRST);
            }
            runtime.block_on(own.released());
            thread::sleep(GRACE);
            report(Err(Failure::interrupted().into()));
            exit(Code::Interrupted as i32);
        })
        .context(listens)?;
    Ok(interrupt)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::sync::oneshot;
    use tokio::time::sleep;

    use super::*;
    use crate::cli::exit::code;

    /// H31: a refresh token is good once; where the answer is lost, so is the session.
    #[tokio::test]
    async fn what_was_begun_comes_to_its_end_before_the_verb_does() {
        let interrupt = Interrupt::default();
        let (answer, answered) = oneshot::channel();
        let (kept, went_on) = (Cell::new(false), Cell::new(false));
        let verb = async {
            let work = async {
                answered.await.unwrap();
                kept.set(true);
            };
            to_its_end(own().as_ref(), work).await;
            went_on.set(true);
            Ok(())
        };
        let presses = async {
            assert!(interrupt.press());
            yield_now().await;
            answer.send(()).unwrap();
        };
        let (ended, ()) = tokio::join!(biased; interrupt.clone().ends(verb), presses);
        assert_eq!(code(&ended.unwrap_err()), Code::Interrupted);
        assert_eq!((kept.get(), went_on.get()), (true, false));
    }

    #[tokio::test]
    async fn nothing_begins_after_ctrl_c() {
        let interrupt = Interrupt::default();
        let began = Cell::new(false);
        let verb = async {
            assert!(!interrupt.press());
            to_its_end(own().as_ref(), async { began.set(true) }).await;
            Ok(())
        };
        let ended = interrupt.clone().ends(verb).await;
        assert_eq!(code(&ended.unwrap_err()), Code::Interrupted);
        assert!(!began.get());
        // What has no verb is not interrupted.
        assert!(own().is_none());
        to_its_end(None, async { began.set(true) }).await;
        assert!(began.get());
    }

    /// H31
    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_wait_cuts_nothing_that_was_begun_in_the_middle() {
        const LIMIT: u64 = 1;
        let most = LIMIT + LONGEST.as_secs();
        // Whether it is to come to its end, how long it takes, when it is cut, and whether it was done by then.
        for (held, takes, cut, done) in [
            (false, 3, LIMIT, false),
            (true, 3, 3, true),
            (true, 60, most, false),
        ] {
            let (kept, went_on) = (Cell::new(false), Cell::new(false));
            let began = Instant::now();
            let verb = async {
                let interrupt = own().filter(|_| held);
                let renews = async {
                    sleep(Duration::from_secs(takes)).await;
                    kept.set(true);
                };
                let work = async {
                    to_its_end(interrupt.as_ref(), renews).await;
                    went_on.set(true);
                };
                let end = began + Duration::from_secs(LIMIT);
                Ok(cut_at(end, work).await.is_err())
            };
            let was_cut = Interrupt::default().ends(verb).await.unwrap();
            let at = began.elapsed().as_secs();
            let found = (was_cut, at, kept.get(), went_on.get());
            assert_eq!(found, (true, cut, done, false), "{held} {takes}");
        }
        let end = Instant::now() + Duration::from_secs(LIMIT);
        assert!(cut_at(end, async {}).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_come_to_its_end_keeps_no_process() {
        let interrupt = Interrupt::default();
        let held = interrupt.hold().unwrap();
        assert!(interrupt.press());
        let began = Instant::now();
        interrupt.released().await;
        assert_eq!(began.elapsed().as_secs(), LONGEST.as_secs());
        drop(held);
        interrupt.released().await;
        assert_eq!(began.elapsed().as_secs(), LONGEST.as_secs());
    }
}
