//! YAML of another cluster that was applied in this one, most often in the wrong context. This cluster stays what the hub accepted
//! it as, line and watchdog with it. The token is redeemed as a trial: only a hub that accepts the cluster as the other one makes
//! it that. A refusal is told, with what each of the things that may have been meant takes.

use std::future::pending;
use std::time::Duration;

use anyhow::{Result, bail};
use futures_util::future::BoxFuture;
use kube::api::Api;
use kube::runtime::events::EventType;
use tokio::time::Instant;
use tracing::{info, warn};

use super::redeem::FORGET;
use super::{Again, Join, Joining, Object, Retry, State, Way};
use crate::agent::caller::Answer;
use crate::agent::enroll::{answer, stored, told};
use crate::agent::identity;

/// Its hub may be out of reach for a moment. Whoever waits for longer wants to know for what.
const TOLD: u32 = 5;
const NO_TOKEN: &str =
    "there is no join token in it, or no more: one that its hub refuses is removed";

/// The YAML, and how far it was asked about.
pub struct Other {
    join: Join,
    retry: Retry,
    /// What became of it, for people; empty = nothing yet.
    said: String,
    /// Its hub refused the token for good, and Secret `linesman-join` may hold it still.
    spent: bool,
}

/// A question to the other one's hub that is under way. It may take as long as it likes: the loop goes on meanwhile.
pub(super) struct Trial {
    join: Join,
    answer: BoxFuture<'static, Result<Answer>>,
}

/// What came of a trial, as soon as it is over.
pub(super) async fn answered(trial: &mut Option<Trial>) -> (Join, Result<Answer>) {
    let Some(begun) = trial else {
        return pending().await;
    };
    let answer = begun.answer.as_mut().await;
    let join = begun.join.clone();
    *trial = None;
    (join, answer)
}

/// This cluster is not the other one, or not yet.
struct Refused {
    text: String,
    again: Again,
    asked: Option<Duration>,
}

impl Refused {
    fn new(text: String, again: Again) -> Self {
        Self {
            text,
            again,
            asked: None,
        }
    }
}

impl Other {
    fn new(join: Join) -> Self {
        Self {
            join,
            retry: Retry::now(),
            said: String::new(),
            spent: false,
        }
    }

    pub(super) fn said(&self) -> &str {
        &self.said
    }
}

/// An identity that is new because the former one was `lost` is nobody's until it is recovered: by it the hub would take the
/// cluster for the other one.
fn known(lost: bool) -> Result<(), Refused> {
    if lost {
        let text =
            "the identity key of this cluster was lost, and no hub has taken another one yet";
        return Err(Refused::new(text.to_owned(), Again::Slowly));
    }
    Ok(())
}

impl Joining {
    /// Goes on as the cluster that the hub has accepted, with what was applied while no agent was there. Of another cluster's YAML
    /// nothing is followed, but its way to the hub where an agent of before kept none: it leads out of the same place.
    pub(super) async fn resume(&mut self, secrets: &Api<Object>, applied: &mut Option<Join>) {
        let Some(mut state) = self.state.clone() else {
            return;
        };
        let is_own = |join: &&Join| join.cluster == self.context.cluster;
        if let Some(join) = applied.as_ref().filter(is_own) {
            state.way = Some(Way::of(join));
        }
        self.publish(secrets, state, applied.as_ref()).await;
        let own = &self.context.cluster;
        if let Some(join) = applied.take_if(|join| join.cluster != *own) {
            self.aside(join);
        }
    }

    /// The Secret names another cluster now.
    ///
    /// # Errors
    /// The hub has not accepted this one: the process is to be started again as that.
    pub(super) fn heard_other(&mut self, join: Join) -> Result<()> {
        if self.state.is_none() {
            bail!("Secret linesman-join names another cluster now: starting again as it");
        }
        if self.other.as_ref().is_none_or(|other| other.join != join) {
            self.aside(join);
        }
        Ok(())
    }

    fn aside(&mut self, join: Join) {
        let (own, other) = (&self.context.cluster, &join.cluster);
        warn!(%own, %other, "Secret linesman-join names another cluster: this one goes on, and asks that one's hub");
        self.other = Some(Other::new(join));
    }

    /// The Secret is this cluster's again, or gone.
    pub(super) async fn forget_other(&mut self) {
        let other = self.other.take();
        if other.is_some_and(|other| !other.said.is_empty()) {
            self.tell_joined().await;
        }
    }

    pub(super) fn other_due(&self) -> Option<Instant> {
        self.other.as_ref()?.retry.due
    }

    /// Begins to ask whether this cluster is the other one, where that is due. For YAML that is there no more nobody waits.
    pub(super) async fn try_other(&mut self, secrets: &Api<Object>, trial: &mut Option<Trial>) {
        let named = self.other.as_ref().map(|other| &other.join);
        *trial = trial.take().filter(|begun| Some(&begun.join) == named);
        let Some(other) = self.other.as_mut().filter(|other| other.retry.is_due()) else {
            return;
        };
        // Its answer says when the next one is.
        other.retry.due = None;
        let (join, spent) = (other.join.clone(), other.spent);
        if spent {
            return self.forget_refused(secrets, &join).await;
        }
        match self.trial(&join) {
            Ok(begun) => *trial = Some(begun),
            Err(refused) => self.refused_as(secrets, &join, refused).await,
        }
    }

    fn trial(&self, join: &Join) -> Result<Trial, Refused> {
        if join.token.is_none() {
            return Err(Refused::new(NO_TOKEN.to_owned(), Again::Never));
        }
        known(self.keys.borrow().lost)?;
        let (asking, named) = (self.asking().beside(), join.clone());
        Ok(Trial {
            join: join.clone(),
            answer: Box::pin(async move { asking.redeem(&named).await }),
        })
    }

    /// Follows the answer to a trial.
    ///
    /// # Errors
    /// This cluster is the other one: the process is to be started again as that, and finds it stored.
    pub(super) async fn tried(
        &mut self,
        secrets: &Api<Object>,
        join: &Join,
        answer: Result<Answer>,
    ) -> Result<()> {
        let refused = match self.accepted_as(join, answer) {
            Ok(state) => {
                if self.store(secrets, &state).await {
                    let name = &join.cluster;
                    let note = format!("the hub accepted this cluster as {name}");
                    self.context.event(EventType::Normal, "Joined", &note).await;
                    bail!("the hub accepted this cluster as {name}: starting again as it");
                }
                let text = "the hub accepted it, which is not stored yet";
                Refused::new(text.to_owned(), Again::Soon)
            }
            Err(refused) => refused,
        };
        self.refused_as(secrets, join, refused).await;
        Ok(())
    }

    /// What is to be stored of the cluster that the YAML names, where its hub accepts this one as that.
    fn accepted_as(&self, join: &Join, answer: Result<Answer>) -> Result<State, Refused> {
        let answer = answer.map_err(|error| Refused::new(format!("{error:#}"), Again::Soon))?;
        if !answer.status.is_success() {
            let slug = answer.slug();
            let refusal = answer::judge(answer.status.as_u16(), &slug);
            return Err(Refused {
                text: answer.refusal(),
                again: answer::on_trial(refusal.again, &slug),
                asked: answer.retry_after,
            });
        }
        let unfit = |text: String| Refused::new(text, Again::Quarter);
        let told = told::read(&answer.body, None);
        let told = told.map_err(|error| unfit(format!("read the hub's answer: {error}")))?;
        let mut assignment = told.assignment;
        if assignment.cluster.name != join.cluster {
            let name = &assignment.cluster.name;
            return Err(unfit(format!("the hub's answer is for {name}")));
        }
        let bundle = assignment.trust.take();
        let chain = std::mem::take(&mut assignment.trust_chain);
        let signed = (bundle.as_ref(), chain.as_slice());
        let (hub, trust) = self
            .settle(&assignment.hub, signed, Some(join), true)
            .map_err(|refusal| unfit(refusal.to_string()))?;
        assignment.hub = hub;
        let token = join.token.as_ref().and_then(identity::token_id);
        Ok(State {
            assignment,
            trust,
            redeemed: token.unwrap_or_default().to_owned(),
            proven: String::new(),
            way: Some(Way::of(join)),
        })
    }

    async fn refused_as(&mut self, secrets: &Api<Object>, join: &Join, refused: Refused) {
        let Refused { text, again, asked } = refused;
        let (own, other) = (&self.context.cluster, &join.cluster);
        let said = format!(
            "the YAML of cluster {other} was applied in this cluster, which is {own} and goes on as that; was it a mistake: \
             linesman cluster readopt {own}, and apply what it prints; is it to become {other}: linesman cluster remove {own}; \
             is it a copy of {own}: kubectl delete namespace linesman here; then apply that YAML again; {text}"
        );
        if again == Again::Soon {
            info!(text, "not known yet whether this cluster is the other one");
        } else {
            warn!(text, "this cluster is not the other one");
            let reason = "OtherCluster";
            self.context.event(EventType::Warning, reason, &said).await;
        }
        let Some(other) = &mut self.other else {
            return;
        };
        other.retry.after(again, asked);
        other.spent = again == Again::Never && join.token.is_some();
        let spent = other.spent;
        if again != Again::Soon || other.retry.attempt > TOLD {
            other.said = said;
            self.tell_joined().await;
        }
        if spent {
            self.forget_refused(secrets, join).await;
        }
    }

    /// Drops a token that its hub refused for good. The next process would send it once more, and put a cluster into Conflict that
    /// has redeemed it since. YAML that is applied again brings it back, and is a new trial.
    async fn forget_refused(&mut self, secrets: &Api<Object>, join: &Join) {
        let forgotten = stored::forget_token(secrets, join.token.as_ref()).await;
        let Some(other) = &mut self.other else {
            return;
        };
        if let Err(error) = forgotten {
            warn!(error = format!("{error:#}"), "refused token not removed");
            other.retry.due = Some(Instant::now() + FORGET);
            return;
        }
        other.spent = false;
        // As the watch will tell it: what was said of it stands.
        (other.join.token, other.join.echoed) = (None, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hub that does not know the new key yet would bind it to the other cluster.
    #[test]
    fn a_cluster_that_lost_its_identity_asks_for_no_other_one_until_it_has_one() {
        let again = |lost| known(lost).err().map(|refused| refused.again);
        assert_eq!([true, false].map(again), [Some(Again::Slowly), None]);
    }
}
