//! Ctrl-C ends an operator's verb with 130, also one that stands in a call of the system: a prompt, a token from stdin, a
//! lock, another program.

use std::process::exit;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::exit::{Code, Failure, report};

/// A verb that is told has this long to put away what it holds. One that stands in a call does not hear it.
const GRACE: Duration = Duration::from_millis(300);

/// Tells of Ctrl-C from now on; soon after it the process ends, whatever it stands in. Files are written beside their places,
/// so that none is there half.
#[expect(
    clippy::exit,
    reason = "the thread that would return from main stands in a call that nothing ends"
)]
pub(super) fn listen() -> Result<oneshot::Receiver<()>> {
    let listens = "listen for Ctrl-C";
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context(listens)?;
    let mut signals = {
        let _within = runtime.enter();
        signal(SignalKind::interrupt()).context(listens)?
    };
    let (tell, told) = oneshot::channel();
    // A thread of its own: the verb's cannot look while it stands in a call.
    let thread = thread::Builder::new().name("interrupt".to_owned());
    thread
        .spawn(move || {
            if runtime.block_on(signals.recv()).is_none() {
                return;
            }
            // Nobody listens where the verb is over.
            let _over = tell.send(());
            thread::sleep(GRACE);
            report(Err(Failure::interrupted().into()));
            exit(Code::Interrupted as i32);
        })
        .context(listens)?;
    Ok(told)
}
