//! Another identity key: told to the hub and signed by both, or taken on the word of the deploy key.

use anyhow::{Context as _, Result, anyhow};
use kube::runtime::events::EventType;
use tokio::sync::watch;
use tracing::{info, warn};

use super::{Later, Rotating};
use crate::agent::caller::{Call, Caller};
use crate::agent::facts;
use crate::agent::fault::Boundary;
use crate::agent::identity::{self, Identity};
use crate::agent::link::LinkState;
use crate::clock;
use crate::keys::KeyPair;
use crate::wire::api::Assignment;

impl Rotating {
    pub(super) async fn recover(&self, identity: Identity, assignment: &Assignment) -> Result<()> {
        let cluster = &self.context.cluster;
        let incarnation = facts::incarnation(&self.context.kube).await?;
        let hub_id = &assignment.hub.id;
        let request = identity::recovery(&identity, hub_id, cluster, incarnation)?;
        let answer = self
            .caller
            .call(&Call::post("/v1/recover", &request)?)
            .await;
        let answer = answer.context("recover the identity")?;
        if !answer.status.is_success() {
            let text = format!("recover the identity: {}", answer.refusal());
            let refused = matches!(answer.status.as_u16(), 403 | 409 | 410);
            if refused && answer.slug() != "line-live" {
                let reason = "IdentityLost";
                self.context.event(EventType::Warning, reason, &text).await;
            }
            return Err(match answer.retry_after {
                Some(after) => Later { text, after }.into(),
                None => anyhow!(text),
            });
        }
        let print = identity.identity.public().fingerprint();
        self.replace(Identity {
            lost: false,
            ..identity
        })
        .await
        .context("store that the identity is recovered")?;
        info!(new = print, "identity recovered by the deploy key");
        let note =
            "the identity key was lost; the hub took a new one on the word of the deploy key";
        let reason = "IdentityRecovered";
        self.context.event(EventType::Normal, reason, note).await;
        Ok(())
    }

    pub(super) async fn make_identity(&self, identity: Identity) -> Result<()> {
        let next = KeyPair::from_seed(&clock::random());
        info!(
            old = identity.identity.public().fingerprint(),
            new = next.public().fingerprint(),
            "replacing the identity key"
        );
        self.replace(Identity {
            next_identity: Some(next),
            ..identity
        })
        .await
        .context("store the next identity key")?;
        self.context.faults.key(Boundary::IdentityMade).await;
        Ok(())
    }

    pub(super) async fn prove_identity(
        &self,
        identity: Identity,
        assignment: &Assignment,
    ) -> Result<()> {
        let Some(next) = identity.next_identity.clone() else {
            return Ok(());
        };
        let cluster = &self.context.cluster;
        let request =
            identity::identity_change(&identity.identity, &next, &assignment.hub.id, cluster);
        let call = |base: String| Call::post(format!("{base}/identity"), &request);
        let answer = self.caller.cluster(call).await;
        let answer = answer.context("tell the hub the next identity key")?;
        match (answer.status.as_u16(), answer.slug().as_str()) {
            (200..=299, _) => {}
            // The answer to an earlier try was lost for so long that the hub has ended the old key since; or the cluster was revoked.
            (403, "revoked" | "unknown-identity") => {
                self.is_in_force(&identity).await?;
                warn!("the hub has ended the identity key; going on with the next one");
            }
            (409, "key-known") => {
                warn!("the next identity key was refused; making another");
                return self.make_identity(identity).await;
            }
            _ => {
                let text = answer.refusal();
                return Err(anyhow!("tell the hub the next identity key: {text}"));
            }
        }
        self.context.faults.key(Boundary::IdentityRegistered).await;
        let print = next.public().fingerprint();
        self.replace(identity.with_identity_promoted())
            .await
            .context("store the next identity key as the present one")?;
        info!(new = print, "identity key replaced; the line follows");
        self.context.faults.key(Boundary::IdentityPromoted).await;
        Ok(())
    }

    /// Asks as the next identity, whose call is not one over the line of the present one. A key that the hub never heard of is no
    /// successor: were it promoted, it would come back where an operator has revoked all that the cluster had.
    async fn is_in_force(&self, identity: &Identity) -> Result<()> {
        let keys = watch::channel(identity.clone().with_identity_promoted()).1;
        let link = watch::channel(LinkState::Down {
            since: clock::now(),
            cause: "the next identity key has no line yet".to_owned(),
            attempt: 0,
            strange: false,
        });
        let caller = Caller::new(keys, self.joined.clone(), link.1).of(&self.heart);
        let call = |base: String| Ok(Call::get(format!("{base}/assignment")));
        let answer = caller.cluster(call).await;
        let answer = answer.context("ask the hub with the next identity key")?;
        anyhow::ensure!(
            answer.status.is_success(),
            "the hub has ended the identity key and does not take the next one: {}",
            answer.refusal()
        );
        Ok(())
    }
}
