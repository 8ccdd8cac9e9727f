//! Waiting for what somebody else brings about: looked at again and again, with an end, and told when it does not come. How long it
//! took is a figure where the acceptance names one; what a test asserts is longer, for a busy machine is not a broken product.

use std::fmt::Debug;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// Between two looks.
const AGAIN: Duration = Duration::from_millis(20);

/// Waits until it is so.
pub(crate) async fn until(what: &str, within: Duration, mut is: impl AsyncFnMut() -> bool) {
    let look = async || if is().await { Ok(()) } else { Err("not yet") };
    until_some(what, within, look).await;
}

/// What `look` finds, as soon as it does; its error is what is there instead.
pub(crate) async fn until_some<T, E: Debug>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let end = Instant::now() + within;
    loop {
        match look().await {
            Ok(found) => return found,
            Err(seen) => assert!(
                Instant::now() < end,
                "not within {within:?}: {what}; seen: {seen:?}"
            ),
        }
        sleep(AGAIN).await;
    }
}

/// Waits for it no longer than `within`, and prints how long it took; `bar` is what the acceptance names.
pub(crate) async fn measured<T>(
    (id, what, bar): (&str, &str, &str),
    within: Duration,
    wait: impl Future<Output = T>,
) -> T {
    let since = Instant::now();
    let Ok(found) = timeout(within, wait).await else {
        panic!("not within {within:?}: {what}");
    };
    println!("figure | {id} | {what} | {bar} | {:.2?}", since.elapsed());
    found
}
