//! The hub that YAML names: met, and asked with a token or for a way back. What that takes is held apart, so that the loop can go on
//! beside a question whose answer it does not need.

use anyhow::{Context as _, Result};
use tokio::sync::watch;

use super::{Context, Join, Joining, believe};
use crate::agent::caller::{Answer, Call, Caller, Https};
use crate::agent::facts;
use crate::agent::identity::{self, Identity, Signed};
use crate::agent::link::Around;
use crate::lifetime::hearts::Heart;
use crate::trust::{self, Kept};
use crate::wire::PROTOCOL;
use crate::wire::api::{HubInfo, JoinRequest};

pub(super) struct Asking {
    context: Context,
    keys: watch::Receiver<Identity>,
    caller: Caller,
    around: Around,
    /// The stored set of the hub's URLs, CA and keys.
    kept: Option<Kept>,
    /// Of the loop, where that waits for the answer.
    heart: Option<Heart>,
}

impl Joining {
    pub(super) fn asking(&self) -> Asking {
        let kept = self.state.as_ref().and_then(|state| state.trust.clone());
        Asking {
            context: self.context.clone(),
            keys: self.keys.clone(),
            caller: self.caller.clone(),
            around: self.around.clone(),
            kept,
            heart: Some(self.heart.clone()),
        }
    }
}

impl Asking {
    /// The same for a question that the loop goes on beside.
    pub(super) fn beside(self) -> Self {
        Self {
            heart: None,
            ..self
        }
    }

    /// The hub that is named, verified, and what it says of itself. The clock of another cluster's hub is not followed.
    async fn meet(&self, join: &Join) -> Result<(Https, HubInfo)> {
        let proxy = self.around.way(join.proxy.as_ref());
        let urls = std::slice::from_ref(&join.hub);
        let https = Https::new(urls, &join.ca, proxy.as_ref())?;
        let https = https.of(self.heart.as_ref());
        let asked = https.send(&Call::get("/v1/hub"), None).await;
        let (https, hub) = match asked.and_then(|answer| answer.json::<HubInfo>()) {
            Ok(hub) => (https, hub),
            // Its CA may be another one since the YAML was made.
            Err(error) => self.led(join).await.ok_or(error)?,
        };
        if join.cluster == self.context.cluster {
            self.caller.set_hub_time(hub.time);
        }
        Ok((https, hub))
    }

    /// Where the pinned key of a YAML leads whose hub cannot be verified by its CA.
    async fn led(&self, join: &Join) -> Option<(Https, HubInfo)> {
        let roots = believe::roots(Some(join), self.kept.as_ref(), true);
        if !roots.is_rooted() {
            return None;
        }
        let proxy = self.around.way(join.proxy.as_ref());
        let (urls, proxy) = (std::slice::from_ref(&join.hub), proxy.as_ref());
        let asked = believe::unverified(urls, proxy, self.heart.as_ref());
        let info = asked.await.ok()?;
        let bundle = info.trust.as_ref();
        let kept = trust::unvouched(&info.hub_id, bundle, &info.trust_chain, &roots).ok()??;
        let hub = kept.hub();
        let https = Https::new(&hub.urls, &hub.ca, proxy).ok()?;
        let https = https.of(self.heart.as_ref());
        // Once more, from whom that set vouches for.
        let answer = https.send(&Call::get("/v1/hub"), None).await.ok()?;
        Some((https, answer.json().ok()?))
    }

    /// M0 for the hub's id, then M8, whose answer is that of a join. That the identity is not lost any more is stored
    /// by whoever replaces keys.
    pub(super) async fn come_back(&self, join: &Join) -> Result<Answer> {
        let (https, hub) = self.meet(join).await?;
        let keys = self.keys.borrow().clone();
        let incarnation = facts::incarnation(&self.context.kube).await?;
        let cluster = &self.context.cluster;
        let request = identity::recovery(&keys, &hub.hub_id, cluster, incarnation)?;
        let call = Call::post("/v1/recover", &request)?;
        let signature = signed(&keys, &hub, &call);
        https.send(&call, Some(signature)).await
    }

    /// M0 for the hub's id, then M1, as the cluster that the YAML names.
    pub(super) async fn redeem(&self, join: &Join) -> Result<Answer> {
        let token = join.token.as_ref().context("no token")?;
        let (https, hub) = self.meet(join).await?;
        let cluster = &join.cluster;
        let keys = self.keys.borrow().clone();
        let request = JoinRequest {
            protocol: PROTOCOL,
            token: token.expose().clone(),
            cluster: cluster.clone(),
            incarnation: facts::incarnation(&self.context.kube).await?,
            identity_key: keys.identity.public().to_base64(),
            deploy_key: identity::public_line(&keys.deploy, cluster)?,
            deploy_proof: keys.deploy_proof(&keys.deploy, &hub.hub_id, cluster),
            agent: self.context.build.clone(),
            facts: Box::pin(facts::collect(
                &self.context.kube,
                &self.context.namespace,
                None,
            ))
            .await,
        };
        let call = Call::post("/v1/join", &request)?;
        let signature = signed(&keys, &hub, &call);
        https.send(&call, Some(signature)).await
    }
}

/// The signature of a call to a hub that was just met.
fn signed(keys: &Identity, hub: &HubInfo, call: &Call) -> String {
    let signed = Signed {
        hub_id: &hub.hub_id,
        method: call.method.as_str(),
        path_and_query: &call.path,
        time: hub.time,
        body: &call.body,
    };
    identity::signature(&keys.identity, signed)
}
