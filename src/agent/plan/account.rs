//! Tokens of a ServiceAccount that was made anew. Pure.

use time::{Duration, OffsetDateTime};

use super::state::Pod;

/// By then a controller whose tokens are good is ready. Those of Flux wait 35 s for a Lease that the Pod before could not give
/// up, as one cannot whose account is gone, and ask for it every 5 to 11 s.
const READY: Duration = Duration::seconds(50);

/// From when on Pods hold good tokens, if some of these do not: a ServiceAccount that was made anew voids the tokens of Pods
/// that were there before. Kubernetes tells times in whole seconds. Of a Pod that is as old as the account, whether it works
/// tells: it may have got its token in the moment before.
pub(super) fn sound_from<'a>(
    now: OffsetDateTime,
    made: OffsetDateTime,
    pods: impl Iterator<Item = &'a Pod>,
) -> Option<OffsetDateTime> {
    let fails = |pod: &Pod| {
        let late = pod.running.is_some_and(|at| now - at >= READY);
        !pod.ready && (late || pod.restarts > 0)
    };
    let voided = pods.filter_map(|pod| match pod.created? {
        at if at < made => Some(made),
        at if at == made && fails(pod) => Some(made + Duration::SECOND),
        _ => None,
    });
    voided.max().filter(|_| now >= made)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F2: made within one second, the Pod may hold a token of the account before.
    #[test]
    fn a_pod_as_old_as_its_account_that_does_not_work_is_told_from_one_that_does() {
        let made = OffsetDateTime::UNIX_EPOCH + Duration::hours(1);
        let second = Duration::SECOND;
        let pod = |created, ready, running: i64, restarts| Pod {
            created: Some(created),
            ready,
            running: Some(made + Duration::seconds(running)),
            restarts,
            ..Pod::default()
        };
        let now = made + Duration::seconds(60);
        let good = pod(made, true, 5, 0);
        // One that waits for the Lease of the Pod before has not failed yet.
        let (slow, waits) = (pod(made, false, 5, 0), pod(made, false, 14, 0));
        let ended = pod(made, false, 59, 1);
        let (before, after) = (
            pod(made - second, true, 5, 0),
            pod(made + second, false, 5, 3),
        );
        for (pods, sound) in [
            (vec![&good], None),
            (vec![&waits], None),
            (vec![&after], None),
            (vec![&slow], Some(made + second)),
            (vec![&ended], Some(made + second)),
            (vec![&before, &good], Some(made)),
            (vec![&before, &ended], Some(made + second)),
        ] {
            assert_eq!(sound_from(now, made, pods.into_iter()), sound);
        }
        let early = sound_from(made - second, made, [&before].into_iter());
        assert_eq!(early, None, "the clocks differ");
    }
}
