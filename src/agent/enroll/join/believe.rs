//! Whether it was the hub that answered: what it says of its URLs, CA and keys is judged before anything of the answer
//! is followed, and stored before it is used.

use kube::api::Api;
use kube::runtime::events::EventType;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{Again, Join, Joining, Object, State, stored};
use crate::agent::caller::{Call, Https};
use crate::agent::link::ProxyConfig;
use crate::clock;
use crate::lifetime::hearts::Heart;
use crate::manifests::STATE_SECRET;
use crate::trust::{self, Kept, Refusal, Roots};
use crate::wire::api::{Assignment, HubInfo, HubRef, TrustBundle};
use crate::wire::report::{ConditionType, Status};

/// Bytes of what an unverified hub may say of itself.
const MAX_INFO: usize = 256 << 10;

/// What is held of the hub's trust beside the stored set.
#[derive(Debug, Default)]
pub struct Belief {
    /// The last answer was refused.
    pub(super) refused: bool,
    /// When whoever answers in the hub's place was last asked.
    pub(super) asked: Option<Instant>,
}

/// Why an answer is not followed, and when to ask again.
#[derive(Debug)]
pub(super) struct Unmet {
    pub(super) text: String,
    pub(super) again: Again,
}

impl Joining {
    /// Puts the hub that is in force into the answer; gives the set to keep. `anew` = the answer is to a token.
    pub(super) async fn believe(
        &mut self,
        assignment: &mut Assignment,
        join: Option<&Join>,
        anew: bool,
    ) -> Result<Option<Kept>, Unmet> {
        let bundle = assignment.trust.take();
        let chain = std::mem::take(&mut assignment.trust_chain);
        match self.settle(&assignment.hub, (bundle.as_ref(), &chain), join, anew) {
            Ok((hub, kept)) => {
                assignment.hub = hub;
                self.trusted().await;
                Ok(kept)
            }
            Err(refusal) => Err(self.distrust(&refusal).await),
        }
    }

    pub(super) fn settle(
        &self,
        hub: &HubRef,
        (bundle, chain): (Option<&TrustBundle>, &[TrustBundle]),
        join: Option<&Join>,
        anew: bool,
    ) -> Result<(HubRef, Option<Kept>), Refusal> {
        let roots = self.roots(join, anew);
        let before = match (&self.state, join) {
            (Some(state), _) if !anew => state.assignment.hub.clone(),
            (_, Some(join)) => HubRef {
                id: hub.id.clone(),
                urls: vec![join.hub.clone()],
                ca: join.ca.clone(),
                keyset: join.hub_keys.clone(),
            },
            (_, None) => hub.clone(),
        };
        trust::settle(hub, bundle, chain, &roots, &before)
    }

    fn roots<'a>(&'a self, join: Option<&'a Join>, anew: bool) -> Roots<'a> {
        let kept = self.state.as_ref().and_then(|state| state.trust.as_ref());
        roots(join, kept, anew)
    }

    /// Asks whoever answers in the hub's place what the hub is, and believes nothing but what a trusted key signed; gives
    /// the state with the newer set, where there is one.
    pub(super) async fn ask(&mut self, join: Option<&Join>) -> Option<State> {
        let state = self.state.clone()?;
        let roots = self.roots(join, false);
        if !roots.is_rooted() {
            return None;
        }
        let proxy = self.joined.borrow().as_ref().and_then(|j| j.proxy.clone());
        let urls = &state.assignment.hub.urls;
        let asked = unverified(urls, proxy.as_ref(), Some(&self.heart));
        let info = match asked.await {
            Ok(info) => info,
            Err(error) => {
                info!(error = format!("{error:#}"), "the hub's keys not asked");
                return None;
            }
        };
        let bundle = info.trust.as_ref();
        match trust::unvouched(&info.hub_id, bundle, &info.trust_chain, &roots) {
            Ok(Some(kept)) => {
                let mut assignment = state.assignment;
                assignment.hub = kept.hub();
                Some(State {
                    assignment,
                    trust: Some(kept),
                    ..state
                })
            }
            // It is the hub, and is what it was: its certificate is at fault.
            Ok(None) => None,
            Err(refusal) => {
                self.distrust(&refusal).await;
                None
            }
        }
    }

    /// Tells the operator whose keys the answer says, and the next action.
    pub(super) async fn distrust(&mut self, refusal: &Refusal) -> Unmet {
        let name = &self.context.cluster;
        let text = format!(
            "{refusal}; nothing of the answer is followed, what was in force stays; if the hub's key was replaced, apply the \
             YAML that this prints: linesman cluster readopt {name}; if not, find out what answers in the hub's place"
        );
        if !self.belief.refused {
            warn!(%refusal, "the answer is not the hub's");
            let reason = "HubNotTrusted";
            self.context.event(EventType::Warning, reason, &text).await;
        }
        self.belief.refused = true;
        let kind = ConditionType::HubTrusted;
        self.context
            .condition(kind, Status::False, "KeyNotTrusted", &text)
            .await;
        Unmet {
            text,
            again: Again::Slowly,
        }
    }

    /// Nothing is said of a hub that was never refused.
    pub(super) async fn trusted(&mut self) {
        if self.belief.refused {
            info!("the hub's keys are trusted again");
            let kind = ConditionType::HubTrusted;
            self.context
                .condition(kind, Status::True, "KeyTrusted", "")
                .await;
        }
        self.belief.refused = false;
    }

    /// Stores a state with another set; an error = it must not be used yet.
    pub(super) async fn keep_trust(
        &self,
        secrets: &Api<Object>,
        state: &State,
    ) -> Result<(), Unmet> {
        let held = self.state.as_ref().and_then(|state| state.trust.as_ref());
        if held == state.trust.as_ref() {
            return Ok(());
        }
        let written = async {
            let data = state.to_data()?;
            // First, for its keeper would put back what it knows.
            self.kept.send_replace(Some(data.clone()));
            stored::write(secrets, STATE_SECRET, &data).await
        };
        written.await.map_err(|error| {
            let text = format!("keep the hub's keys: {error:#}");
            warn!(error = text, "answer not followed yet");
            Unmet {
                text,
                again: Again::Soon,
            }
        })?;
        let version = state.trust.as_ref().map(|kept| kept.bundle.version);
        info!(version, "the hub's URLs, CA and keys are kept");
        Ok(())
    }
}

/// What is trusted before an answer is read; `kept` is the stored set.
pub(super) fn roots<'a>(join: Option<&'a Join>, kept: Option<&'a Kept>, anew: bool) -> Roots<'a> {
    Roots {
        pins: join.map_or(&[][..], |join| &join.hub_keys),
        kept,
        anew,
        now: clock::now().unix_timestamp(),
    }
}

/// What whoever answers there says of the hub.
pub(super) async fn unverified(
    urls: &[String],
    proxy: Option<&ProxyConfig>,
    heart: Option<&Heart>,
) -> anyhow::Result<HubInfo> {
    let call = Call {
        limit: MAX_INFO,
        ..Call::get("/v1/hub")
    };
    let https = Https::unverified(urls, proxy)?.of(heart);
    https.send(&call, None).await?.json()
}
