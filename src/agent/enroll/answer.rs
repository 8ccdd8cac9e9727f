//! What a join's answer means to the agent: pure, one table.

use std::time::Duration;

use crate::backoff::Schedule;

/// Of networks, proxies and hubs that are busy or broken: says nothing about a credential.
const TRANSIENT: Schedule = Schedule {
    floor: Duration::from_millis(500),
    first: Duration::from_secs(1),
    cap: Duration::from_secs(30),
};
/// Of a refusal that a person has to lift.
const REFUSED: Schedule = Schedule {
    floor: Duration::from_mins(1),
    first: Duration::from_mins(1),
    cap: Duration::from_mins(15),
};
const INCOMPATIBLE: Duration = Duration::from_mins(15);

/// When to ask again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// Full jitter, 0.5–30 s, or what the hub asks for.
    Soon,
    /// 60 s, doubling to 15 min.
    Slowly,
    Quarter,
    /// Only when the YAML is applied again.
    Never,
}

/// A join that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub again: Again,
    /// The Event's reason; `None` = not worth an Event.
    pub event: Option<&'static str>,
    /// What the cluster's owner or operator has to do.
    pub next: &'static str,
}

const READOPT: &str = "run 'linesman cluster readopt' and apply the YAML it prints";

/// Judges a status that is not 2xx, with the slug of its problem. Anything that is not a verified refusal of the hub
/// is treated as a fault of the way there.
pub fn judge(status: u16, slug: &str) -> Refusal {
    let refusal = |again, event, next| Refusal {
        again,
        event: Some(event),
        next,
    };
    match (status, slug) {
        (401, "token-invalid") => refusal(Again::Slowly, "JoinTokenInvalid", READOPT),
        (409, "token-redeemed") => refusal(Again::Slowly, "JoinTokenRedeemed", READOPT),
        (409, "key-known") => refusal(
            Again::Slowly,
            "KeyKnown",
            "the YAML of one cluster was applied in another; apply the YAML of that one again: linesman cluster readopt NAME",
        ),
        (409, "incarnation-changed") => refusal(
            Again::Slowly,
            "IncarnationChanged",
            "the hub knows this name as another cluster; run 'linesman cluster readopt --new-cluster'",
        ),
        (403, "revoked") => refusal(
            Again::Slowly,
            "KeysRevoked",
            "an operator revoked this cluster's keys; the agent makes new ones for this token",
        ),
        (410, "removed") => refusal(
            Again::Never,
            "ClusterRemoved",
            "the cluster was removed at the hub; add it again and apply the new YAML",
        ),
        (426, _) => refusal(
            Again::Quarter,
            "ProtocolUnsupported",
            "agent and hub have no protocol in common; apply the hub's current YAML",
        ),
        (400 | 403 | 422, slug) if !slug.is_empty() => {
            refusal(Again::Quarter, "JoinRefused", READOPT)
        }
        _ => Refusal {
            again: Again::Soon,
            event: None,
            next: "",
        },
    }
}

/// When an accepted cluster asks again with the token of another one's YAML. Where a person has to act it does not ask by itself,
/// for each refusal puts that other cluster into Conflict; but whom the hub refused for its `kube-system` an operator may accept.
/// [`Again::Never`] = nor does a later process: the token is dropped.
pub fn on_trial(again: Again, slug: &str) -> Again {
    match (again, slug) {
        (Again::Slowly, "incarnation-changed") => Again::Slowly,
        (Again::Slowly, _) => Again::Never,
        (Again::Soon | Again::Quarter | Again::Never, _) => again,
    }
}

/// The wait before try `attempt` (0 = the first repetition); `None` = until the YAML changes. `unit` is random in 0..1.
pub fn wait(again: Again, attempt: u32, asked: Option<Duration>, unit: f64) -> Option<Duration> {
    match again {
        Again::Soon => {
            let own = TRANSIENT.full_jitter(attempt, unit);
            // A wish of the hub is kept, with jitter on top so that a fleet does not come back at once.
            Some(asked.map_or(own, |asked| asked + own))
        }
        Again::Slowly => Some(REFUSED.ceiling(attempt)),
        Again::Quarter => Some(INCOMPATIBLE),
        Again::Never => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_problem_of_the_hub_says_something_about_the_token() {
        for (status, slug) in [
            (500, ""),
            (502, ""),
            (503, "store-down"),
            (429, "busy"),
            (403, ""),
            (401, ""),
            (404, ""),
            // A page of whoever has the hub's name now.
            (410, ""),
        ] {
            assert_eq!(judge(status, slug).again, Again::Soon, "{status} {slug}");
        }
        assert_eq!(judge(401, "token-invalid").again, Again::Slowly);
        assert_eq!(
            judge(409, "token-redeemed").event,
            Some("JoinTokenRedeemed")
        );
        assert_eq!(judge(403, "revoked").event, Some("KeysRevoked"));
        assert_eq!(judge(410, "removed").again, Again::Never);
        assert_eq!(judge(426, "").again, Again::Quarter);
        assert_eq!(judge(403, "signature-invalid").again, Again::Quarter);
    }

    #[test]
    fn refused_agents_ask_ever_less_often() {
        let waits: Vec<_> = (0..6)
            .map(|n| wait(Again::Slowly, n, None, 0.5).unwrap().as_secs())
            .collect();
        assert_eq!(waits, [60, 120, 240, 480, 900, 900]);
        assert_eq!(wait(Again::Never, 0, None, 0.5), None);
    }

    /// The owner of the cluster whose YAML it is has to get rid of the Conflict.
    #[test]
    fn a_refusal_of_another_clusters_token_is_not_asked_for_again() {
        let again = |status, slug| on_trial(judge(status, slug).again, slug);
        for (status, slug, expected) in [
            (409, "key-known", Again::Never),
            (409, "token-redeemed", Again::Never),
            (401, "token-invalid", Again::Never),
            (403, "revoked", Again::Never),
            (410, "removed", Again::Never),
            (409, "incarnation-changed", Again::Slowly),
            (426, "", Again::Quarter),
            (503, "store-down", Again::Soon),
            (410, "", Again::Soon),
        ] {
            assert_eq!(again(status, slug), expected, "{status} {slug}");
        }
    }

    #[test]
    fn a_retry_after_is_a_floor() {
        let asked = Duration::from_secs(7);
        for unit in [0.0, 1.0] {
            assert!(wait(Again::Soon, 0, Some(asked), unit).unwrap() >= asked);
        }
        assert!(wait(Again::Soon, 40, None, 1.0).unwrap() <= Duration::from_secs(30));
    }
}
