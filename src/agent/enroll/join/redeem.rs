//! The token of the YAML: redeemed once, or again where it is another one, and kept out of the cluster when that is done.

use std::time::Duration;

use kube::api::Api;
use kube::runtime::events::EventType;
use tokio::time::Instant;
use tracing::{info, warn};

use super::believe::Unmet;
use super::{Again, Join, Joining, Object, Progress, Retry, State, Way};
use crate::agent::caller::{Answer, Reach};
use crate::agent::enroll::told::{self, Unfollowed};
use crate::agent::enroll::{answer, stored};
use crate::agent::identity;
use crate::wire::api::Assignment;
use crate::wire::report::{ConditionType, Status};

/// Between tries to drop the token.
pub(super) const FORGET: Duration = Duration::from_secs(2);
const NO_TOKEN: &str =
    "there is no join token; run 'linesman cluster readopt' and apply the YAML it prints";

impl Joining {
    pub(super) fn wants_join(&self, applied: Option<&Join>) -> bool {
        let Some(token) = applied.and_then(|join| join.token.as_ref()) else {
            return false;
        };
        let redeemed = self.state.as_ref().map(|s| s.redeemed.as_str());
        redeemed.is_none() || redeemed != identity::token_id(token)
    }

    /// Drops a token that was redeemed, redeems one that was not.
    pub(super) async fn turn(
        &mut self,
        secrets: &Api<Object>,
        join: &Join,
        progress: &mut Progress,
        retry: &mut Retry,
    ) {
        if !retry.is_due() {
            return;
        }
        let joins = self.wants_join(Some(join));
        if !joins && !self.wants_back(join) {
            retry.due = None;
            if self.state.is_none() {
                progress.waiting(NO_TOKEN).await;
            } else if join.token.is_some() || join.echoed {
                self.forget(secrets, join, retry).await;
            }
            return;
        }
        progress.running().await;
        let answer = if joins {
            self.asking().redeem(join).await
        } else {
            self.asking().come_back(join).await
        };
        match answer {
            Ok(answer) if answer.status.is_success() => match self.told(&answer) {
                Ok(told) => match self.accept(secrets, join, told.assignment).await {
                    Ok(()) => {
                        self.understood(&told.unknown).await;
                        self.forget(secrets, join, retry).await;
                    }
                    Err(unmet) => {
                        progress.failed(&unmet.text).await;
                        retry.after(unmet.again, None);
                    }
                },
                Err(error) => {
                    let fresh = self.state.is_none().then_some(&answer.body);
                    let again = if let Some(answer) = fresh.and_then(|b| told::unfollowed(b)) {
                        self.confess(answer, join, progress).await
                    } else {
                        progress.waiting(&format!("{error:#}")).await;
                        Again::Soon
                    };
                    retry.after(again, None);
                }
            },
            Ok(answer) => self.refused(&answer, joins, progress, retry).await,
            Err(error) => {
                let text = format!("{error:#}");
                warn!(error = text, "hub not reached");
                progress.waiting(&text).await;
                retry.after(Again::Soon, None);
            }
        }
    }

    /// What the hub said in place of an assignment; `joins` = of a token.
    async fn refused(
        &self,
        answer: &Answer,
        joins: bool,
        progress: &mut Progress,
        retry: &mut Retry,
    ) {
        let refusal = answer::judge(answer.status.as_u16(), &answer.slug());
        let text = answer.refusal();
        warn!(text, next = refusal.next, "join refused");
        if joins && answer.slug() == "revoked" {
            let own = self.keys.borrow().identity.public();
            self.disowned.send_replace(Some(own));
        }
        if let Some(reason) = refusal.event {
            let note = format!("{text}; {}", refusal.next);
            self.context.event(EventType::Warning, reason, &note).await;
            progress.failed(&note).await;
        } else {
            progress.waiting(&text).await;
        }
        retry.after(refusal.again, answer.retry_after);
    }

    /// All that is left of a cluster that has joined is its deploy key, and there is no token: the catalog's copy of the
    /// agent brought it back.
    fn wants_back(&self, join: &Join) -> bool {
        self.state.is_none() && join.token.is_none() && self.keys.borrow().lost
    }

    /// Tells a hub that took the cluster in that its agent cannot be what it is told to be.
    async fn confess(&mut self, answer: Unfollowed, join: &Join, progress: &mut Progress) -> Again {
        let Unfollowed {
            cluster,
            hub,
            trust,
            trust_chain,
            unknown,
        } = answer;
        let signed = (trust.as_ref(), trust_chain.as_slice());
        let hub = match self.settle(&hub, signed, Some(join), true) {
            Ok((hub, _)) => hub,
            Err(refusal) => {
                let unmet = self.distrust(&refusal).await;
                progress.failed(&unmet.text).await;
                return unmet.again;
            }
        };
        let (name, parts) = (&cluster.name, unknown.join("; "));
        let text = format!(
            "the agent is older than the hub and does not know what it is told to be; nothing is installed; apply the \
             YAML of a newer agent: linesman cluster readopt {name}; not known: {parts}"
        );
        warn!(parts, "the hub says what this version does not know");
        let reach = Reach {
            cluster: cluster.name,
            hub,
            proxy: self.around.way(join.proxy.as_ref()),
        };
        self.caller.introduce(reach);
        let kind = ConditionType::HubUnderstood;
        self.context
            .condition(kind, Status::False, "AgentOlder", &text)
            .await;
        progress.failed(&text).await;
        self.doubts = true;
        Again::Slowly
    }

    /// The answer is stored before the token is forgotten ([`Self::forget`]): a kill between the two costs nothing.
    async fn accept(
        &mut self,
        secrets: &Api<Object>,
        join: &Join,
        mut assignment: Assignment,
    ) -> Result<(), Unmet> {
        let trust = self.believe(&mut assignment, Some(join), true).await?;
        info!(cluster = %assignment.cluster.name, revision = assignment.revision, "joined");
        let token = join.token.as_ref().and_then(identity::token_id);
        let proven = self.state.as_ref().map(|s| s.proven.clone());
        let state = State {
            assignment,
            trust,
            redeemed: token.unwrap_or_default().to_owned(),
            proven: proven.unwrap_or_default(),
            way: Some(Way::of(join)),
        };
        self.keep_trust(secrets, &state).await?;
        self.publish(secrets, state, Some(join)).await;
        let note = "the hub accepted this cluster";
        self.context.event(EventType::Normal, "Joined", note).await;
        Ok(())
    }

    /// Drops the token once what it brought is stored; tried again soon where that fails.
    async fn forget(&self, secrets: &Api<Object>, join: &Join, retry: &mut Retry) {
        *retry = Retry {
            attempt: 0,
            due: None,
        };
        let stored = match &self.state {
            Some(state) => self.store(secrets, state).await,
            None => true,
        };
        if !stored {
            retry.due = Some(Instant::now() + FORGET);
            return;
        }
        if let Err(error) = stored::forget_token(secrets, join.token.as_ref()).await {
            warn!(error = format!("{error:#}"), "token not removed");
            retry.due = Some(Instant::now() + FORGET);
        }
    }
}
