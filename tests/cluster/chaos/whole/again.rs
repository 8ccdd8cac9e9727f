//! W41 in full: an object that somebody deletes as soon as it is there.

use std::time::Instant;

use crate::blocked::fetcher;
use crate::healing::{deleted_again, settle, works};
use crate::support::audit::Mark;
use crate::support::world::{self, World};
use crate::support::{figure, shown};

const TIMES: usize = 50;

#[test]
#[ignore = "takes minutes: make chaos"]
fn an_object_deleted_fifty_times_comes_back_each_time() {
    fifty_times(&world::adopted());
}

/// W41: it comes back each time, ever less often, and the agent asks for no more than it has to.
pub(super) fn fifty_times(world: &World) {
    settle(world);
    let mark = Mark::now(&world.audit);
    let began = Instant::now();
    let slowest = deleted_again(world, TIMES);
    let all = began.elapsed();
    let (requests, written) = (mark.requests_of_agent(), mark.written_in(world.namespace()));
    let what = format!("a Service deleted {TIMES} times, as soon as it is back");
    let case = |what: &str| world.case(what);
    figure(
        "W41",
        &case(&format!("{what}: all of it")),
        "10 min",
        shown(all),
    );
    figure(
        "W41",
        &case(&format!("{what}: slowest")),
        "",
        shown(slowest),
    );
    #[allow(clippy::cast_precision_loss, reason = "a few hundred requests")]
    let rate = (requests - written.len()) as f64 / all.as_secs_f64();
    figure(
        "W41",
        &case(&format!(
            "{what}: requests of the agent beyond the {} that mend",
            written.len()
        )),
        "< 1 /s",
        format!("{rate:.2} /s"),
    );
    let service = format!(" services/{}", fetcher(world).1);
    let other = written.iter().find(|write| !write.ends_with(&service));
    assert_eq!((written.len(), other), (TIMES, None), "{written:?}");
    works(world, "W41", &world.case("function after that"), "≤ 60 s");
}
