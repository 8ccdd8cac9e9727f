//! W41 in full: an object that somebody deletes as soon as it is there.

use std::time::{Duration, Instant};

use crate::blocked::fetcher;
use crate::healing::{deleted_again, settle, works};
use crate::support::audit::Mark;
use crate::support::world::{self, World};
use crate::support::{figure, shown, until};

const TIMES: usize = 50;
/// In which the acceptance has them all, and within which the agent's requests are counted.
const WINDOW: Duration = Duration::from_mins(10);

#[test]
#[ignore = "takes minutes: make chaos"]
fn an_object_deleted_fifty_times_comes_back_each_time() {
    fifty_times(&world::adopted());
}

/// W41: it comes back each time, ever less often, and within ten minutes the agent makes less than a request a second, those that
/// mend among them, as the API server's audit log tells.
pub(super) fn fifty_times(world: &World) {
    settle(world);
    let mark = Mark::now(&world.audit);
    let began = Instant::now();
    let slowest = deleted_again(world, TIMES);
    let all = began.elapsed();
    until("the ten minutes are over", WINDOW, || {
        began.elapsed() >= WINDOW
    });
    let (window, requests) = (began.elapsed(), mark.requests_of_agent());
    let written = mark.written_in(world.namespace());
    let what = format!("a Service deleted {TIMES} times, as soon as it is back");
    let case = |end: &str| world.case(&format!("{what}: {end}"));
    figure("W41", &case("all of it"), "≤ 600 s", shown(all));
    figure("W41", &case("slowest"), "", shown(slowest));
    #[allow(clippy::cast_precision_loss, reason = "a few hundred requests")]
    let rate = |count: usize| format!("{:.2} /s", count as f64 / window.as_secs_f64());
    figure(
        "W41",
        &case("requests of the agent within ten minutes"),
        "< 1 /s",
        rate(requests),
    );
    let others = format!("… beside the {} that mend", written.len());
    figure("W41", &case(&others), "", rate(requests - written.len()));
    let service = format!(" services/{}", fetcher(world).1);
    let other = written.iter().find(|write| !write.ends_with(&service));
    assert_eq!((written.len(), other), (TIMES, None), "{written:?}");
    works(world, "W41", &world.case("function after that"), "≤ 60 s");
}
