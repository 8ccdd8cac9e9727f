//! Finds out which form of impersonation the API server takes, and what there is to read in it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::discovery::Discovery;
use tokio::time::{Instant, sleep, timeout};

use super::role::PROBE;
use crate::agent::forward::upstream::{self, Credential, Upstream, full};

const DEADLINE: Duration = Duration::from_secs(20);
/// How long a role that was just written may be unseen.
const VISIBLE: Duration = Duration::from_secs(2);
/// A question ends within this time: a try that begins just before the role has to be seen waits for a token, for the
/// answer and for its text.
pub(super) const LONGEST: Duration = VISIBLE
    .saturating_add(upstream::WAIT)
    .saturating_add(DEADLINE.saturating_mul(2));
/// Bytes of an answer that is read.
const ANSWER: usize = 64 << 10;
/// API groups and resources that are named in one role.
const MOST: usize = 3_000;

/// Whether `GET /version` as [`PROBE`], which has constrained rules only, gets through the impersonation.
pub(super) async fn is_constrained(upstream: &Upstream) -> Result<bool> {
    let deadline = Instant::now() + VISIBLE;
    loop {
        let Credential::Token { bearer, .. } = upstream.credential().await else {
            anyhow::bail!("no token for linesman-line");
        };
        let request = Request::get("/version")
            .header("impersonate-user", PROBE)
            .body(full(bytes::Bytes::new()))?;
        let answer = timeout(DEADLINE, upstream.send(request, &bearer)).await;
        let answer = answer
            .context("no answer in 20 s")?
            .with_context(|| format!("ask for /version as {PROBE}"))?;
        let status = answer.status();
        let body = timeout(DEADLINE, Limited::new(answer.into_body(), ANSWER).collect()).await;
        let body = body
            .context("no answer in 20 s")?
            .map_err(|e| anyhow::anyhow!("read the answer to /version: {e}"))?;
        match judge(status, &String::from_utf8_lossy(&body.to_bytes())) {
            Some(true) => return Ok(true),
            Some(false) if Instant::now() < deadline => sleep(Duration::from_millis(100)).await,
            Some(false) => return Ok(false),
            None => anyhow::bail!("the API server answered /version with {status}"),
        }
    }
}

/// `None` = says nothing about it.
fn judge(status: StatusCode, body: &str) -> Option<bool> {
    match status {
        status if status.is_success() => Some(true),
        // A cluster may keep /version from its users; that it was refused to the probe shows that it was the probe.
        StatusCode::FORBIDDEN => {
            let probe = format!("User \"{PROBE}\"");
            Some(body.replace('\\', "").contains(&probe))
        }
        _ => None,
    }
}

/// All resources that can be read, by API group.
pub(super) async fn readable(kube: &kube::Client) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let discovery = timeout(DEADLINE, Discovery::new(kube.clone()).run_aggregated()).await;
    let discovery = discovery
        .context("no answer in 20 s")?
        .context("discover the cluster's resources")?;
    let mut kinds: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut found = 0;
    for group in discovery.groups() {
        for (resource, _) in group.resources_by_stability() {
            found += 1;
            if found <= MOST && !resource.plural.contains('/') {
                let of = kinds.entry(resource.group).or_default();
                of.insert(resource.plural);
            }
        }
    }
    Ok(kinds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_probe_is_told_says_which_form_it_is() {
        let of = |code: u16, body| judge(StatusCode::from_u16(code).unwrap(), body);
        assert_eq!(of(200, "{}"), Some(true));
        let theirs =
            r#"{"message":"forbidden: User \"linesman:/probe\" cannot get path \"/version\""}"#;
        assert_eq!(of(403, theirs), Some(true));
        let ours = r#"{"message":"users \"linesman:/probe\" is forbidden: User \"system:serviceaccount:linesman:linesman-line\" cannot impersonate resource \"users\""}"#;
        assert_eq!(of(403, ours), Some(false));
        for other in [401, 404, 429, 500, 503] {
            assert_eq!(of(other, ""), None);
        }
    }
}
