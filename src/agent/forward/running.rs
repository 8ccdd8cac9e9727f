//! What runs on once its answer has begun: a watch, a log, an exec session. It ends when the cluster's owner would not let it begin any
//! more.

use std::future::Future;
use std::time::Duration;

use http::Uri;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::info;

use super::exchange::Shared;
use crate::agent::gate::policy::Policy;
use crate::agent::gate::{self, Covered, Homes, Pass, Running};
use crate::clock;
use crate::kubeapi::status::Refusal;

/// Between looks at the owner's hours, which end without a word from anybody.
const HOURS: Duration = Duration::from_millis(500);

/// What the gate let pass, as it went to the API server, with a token that is bound to the Secret of this UID.
pub(super) fn running(pass: &Pass, sent: &Uri, bound: String) -> Running {
    Running {
        claims: pass.claims.clone(),
        info: pass.info.clone(),
        query: sent.query().map(str::to_owned),
        bound,
    }
}

/// Completes, with a line in the log, when access is withdrawn or the gate would refuse it now.
pub(super) fn over(running: Running, shared: &Shared) -> impl Future<Output = ()> + Send + use<> {
    let upstream = shared.upstream.clone();
    let (policy, covered) = (shared.policy.clone(), shared.covered.clone());
    let homes = (shared.namespace.clone(), shared.argocd.clone());
    async move {
        let request = running.claims.request_id();
        tokio::select! {
            () = upstream.withdrawn(&running.bound) => info!(request, "exchange cut: access was withdrawn"),
            refusal = refused(&running, &homes, policy, covered) => info!(
                request,
                reason = refusal.reason,
                what = refusal.what,
                "exchange cut: the cluster's owner does not allow it any more"
            ),
        }
    }
}

/// Judges again whenever the owner's policy or where requests may lie changes.
async fn refused(
    running: &Running,
    (agent, argocd): &(String, String),
    mut policy: watch::Receiver<Option<Policy>>,
    mut covered: watch::Receiver<Covered>,
) -> Refusal {
    let (mut judging, mut lying) = (true, true);
    loop {
        let lies = covered.borrow_and_update().clone();
        let known = policy.borrow_and_update().clone();
        let by_hours = known.as_ref().is_some_and(|policy| policy.hours.is_some());
        let homes = Homes { agent, argocd };
        if let Some(policy) = &known
            && let Err(refusal) = gate::again(policy, homes, (&lies, clock::now()), running)
        {
            return refusal;
        }
        tokio::select! {
            changed = policy.changed(), if judging => judging = changed.is_ok(),
            changed = covered.changed(), if lying => lying = changed.is_ok(),
            () = sleep(HOURS), if by_hours => {}
            else => return std::future::pending().await,
        }
    }
}
