//! How long an agent waits before it dials again: full jitter, and what the hub asks for.

use std::time::Duration;

use super::DialError;
use crate::backoff::Schedule;
use crate::tunnel::Ended;
use crate::tunnel::handshake::HandshakeError;
use crate::wire::frame::{Code, Goaway, Refusal};

const BROKEN: Schedule = Schedule {
    floor: Duration::from_millis(500),
    first: Duration::from_millis(500),
    cap: Duration::from_secs(30),
};
/// For answers that only a person changes.
const REFUSED: Schedule = Schedule {
    floor: Duration::from_secs(2),
    first: Duration::from_secs(4),
    cap: Duration::from_mins(5),
};
/// Another process of this cluster took the line: give it the time to be the only one.
const SUPERSEDED: Duration = Duration::from_secs(30);
/// A hub cannot send its agents away for longer than this.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(10);

/// The wait after a dial that failed.
pub(super) fn after_failure(error: &DialError, attempt: u32, unit: f64) -> Duration {
    match error {
        // Somebody may accept it at any moment, and the hub says how often it wants to be asked meanwhile.
        DialError::Handshake(HandshakeError::Refused(Refusal {
            code: Code::UnknownCluster,
            retry_after_ms: asked @ 1..,
            ..
        })) => Duration::from_millis((*asked).into())
            .min(MAX_RETRY_AFTER)
            .mul_f64(1.0 + unit / 2.0),
        DialError::Handshake(HandshakeError::Refused(refusal)) => {
            let asked = Duration::from_millis(refusal.retry_after_ms.into());
            let schedule = match refusal.code {
                Code::Revoked | Code::BadSignature | Code::UnknownCluster | Code::Version => {
                    REFUSED
                }
                _ => BROKEN,
            };
            at_least(asked, schedule.full_jitter(attempt, unit))
        }
        DialError::Handshake(_) => REFUSED.full_jitter(attempt, unit),
        DialError::Status { retry_after, .. } => at_least(
            retry_after.unwrap_or_default(),
            BROKEN.full_jitter(attempt, unit),
        ),
        DialError::Url(_)
        | DialError::Tls(_)
        | DialError::OldTls(_)
        | DialError::Connect { .. }
        | DialError::Upgrade { .. }
        | DialError::Answer(_)
        | DialError::Line(_)
        | DialError::Late(_) => BROKEN.full_jitter(attempt, unit),
    }
}

/// Whether the hub, or what stands before it, said when it wants to be asked again, or that it does not.
pub(super) fn is_asked(error: &DialError) -> bool {
    match error {
        DialError::Handshake(_) => true,
        DialError::Status { retry_after, .. } => retry_after.is_some(),
        DialError::Url(_)
        | DialError::Tls(_)
        | DialError::OldTls(_)
        | DialError::Connect { .. }
        | DialError::Upgrade { .. }
        | DialError::Answer(_)
        | DialError::Line(_)
        | DialError::Late(_) => false,
    }
}

/// What the hub asked for comes first, our own jitter on top.
fn at_least(asked: Duration, jitter: Duration) -> Duration {
    asked.min(MAX_RETRY_AFTER) + jitter
}

/// The wait after a line that ended.
pub(super) fn after_end(ended: &Ended, attempt: u32, unit: f64) -> Duration {
    match ended.code {
        Code::Superseded => superseded(ended.retry_after.unwrap_or_default(), unit),
        _ => BROKEN.full_jitter(attempt, unit),
    }
}

/// The wait before the successor of a line that drains, and the attempt to count from then.
pub(super) fn after_goaway(goaway: &Goaway, attempt: u32, unit: f64) -> (Duration, u32) {
    let asked = Duration::from_millis(goaway.retry_after_ms.into());
    match goaway.code {
        Code::Superseded => (superseded(asked, unit), 0),
        Code::Draining | Code::Ids => (asked.min(MAX_RETRY_AFTER).mul_f64(unit), 0),
        // What is wrong with the line, or with the hub, may be so with the next one: it is a loss like any other.
        _ => (
            at_least(asked, BROKEN.full_jitter(attempt, unit)),
            attempt.saturating_add(1),
        ),
    }
}

/// What the hub asks for, and [`SUPERSEDED`] at least.
fn superseded(asked: Duration, unit: f64) -> Duration {
    asked.clamp(SUPERSEDED, MAX_RETRY_AFTER).mul_f64(1.0 + unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: Code, retry_after_ms: u32) -> DialError {
        DialError::Handshake(HandshakeError::Refused(Refusal {
            code,
            retry_after_ms,
            text: String::new(),
        }))
    }

    #[test]
    fn waits_follow_the_kind_of_failure() {
        for attempt in 0..50 {
            for unit in [0.0, 0.7, 1.0] {
                let broken = after_failure(&DialError::Late("TLS"), attempt, unit);
                assert!((BROKEN.floor..=BROKEN.cap).contains(&broken), "{broken:?}");
                let revoked = after_failure(&refused(Code::Revoked, 0), attempt, unit);
                assert!(
                    (REFUSED.floor..=REFUSED.cap).contains(&revoked),
                    "{revoked:?}"
                );
                let busy = after_failure(&refused(Code::Busy, 5000), attempt, unit);
                assert!(
                    busy >= Duration::from_secs(5) && busy <= Duration::from_secs(35),
                    "{busy:?}"
                );
            }
        }
        assert!(
            after_failure(&refused(Code::Busy, u32::MAX), 0, 1.0) <= MAX_RETRY_AFTER + BROKEN.cap
        );
    }

    /// H23: a listed agent is in within 10 s of its acceptance, however often it was refused before.
    #[test]
    fn an_unknown_agent_asks_as_often_as_the_hub_wants() {
        for attempt in [0, 7, 50] {
            let waits = [0.0, 1.0].map(|unit| {
                let listed = after_failure(&refused(Code::UnknownCluster, 5000), attempt, unit);
                listed.as_millis()
            });
            assert_eq!(waits, [5000, 7500]);
        }
        let unlisted = after_failure(&refused(Code::UnknownCluster, 0), 50, 1.0);
        assert_eq!(unlisted, REFUSED.cap);
    }

    #[test]
    fn a_superseded_agent_leaves_the_other_alone_for_a_while() {
        let goaway = Goaway {
            code: Code::Superseded,
            retry_after_ms: 0,
            drain_ms: 0,
            text: String::new(),
        };
        let ended = |retry_after| Ended {
            code: Code::Superseded,
            text: String::new(),
            retry_after,
            by_peer: true,
            silence: Duration::ZERO,
        };
        let waits = |asked: Duration| {
            let retry_after_ms = u32::try_from(asked.as_millis()).unwrap();
            let goaway = Goaway {
                retry_after_ms,
                ..goaway.clone()
            };
            let ended = ended(Some(asked));
            [0.0, 1.0].map(|unit| (after_goaway(&goaway, 7, unit).0, after_end(&ended, 0, unit)))
        };
        // L41: what the hub asks for counts where that is longer, within bounds.
        for (asked, least) in [(0, 30), (30, 30), (45, 45), (4_000, 600)] {
            let least = Duration::from_secs(least);
            let expected = [(least, least), (least * 2, least * 2)];
            assert_eq!(waits(Duration::from_secs(asked)), expected, "{asked} s");
        }
        assert_eq!(after_end(&ended(None), 0, 0.0), SUPERSEDED);
        let goaway = Goaway {
            code: Code::Draining,
            retry_after_ms: 2000,
            ..goaway
        };
        assert_eq!(after_goaway(&goaway, 7, 0.5), (Duration::from_secs(1), 0));
    }

    /// A release that breaks the protocol, or a hub whose store is ill, gives up each line that it has just let in.
    #[test]
    fn a_line_that_the_hub_gives_up_is_a_loss() {
        let waits = |code: Code, retry_after_ms: u32| {
            let goaway = Goaway {
                code,
                retry_after_ms,
                drain_ms: 0,
                text: String::new(),
            };
            let mut attempt = 0;
            [(); 8].map(|()| {
                let (wait, next) = after_goaway(&goaway, attempt, 1.0);
                attempt = next;
                wait.as_millis()
            })
        };
        let growing = [1_000, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000];
        for code in [
            Code::Protocol,
            Code::Flow,
            Code::Limit,
            Code::Revoked,
            Code::Unavailable,
            Code::Other(99),
        ] {
            assert_eq!(waits(code, 0), growing, "{code}");
            assert_eq!(waits(code, 5_000), growing.map(|wait| wait + 5_000));
        }
        for code in [Code::Draining, Code::Ids] {
            let goaway = Goaway {
                code,
                retry_after_ms: 0,
                drain_ms: 0,
                text: String::new(),
            };
            assert_eq!(after_goaway(&goaway, 7, 1.0), (Duration::ZERO, 0));
        }
    }
}
