//! From the token in the YAML to the hub's answer, and the answer kept current ever after.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Secret as Object;
use kube::api::Api;
use kube::runtime::events::EventType;
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::answer::{self, Again};
use super::stored::{self, Join, State};
use super::told::{self, Told, Unfollowed};
use super::{Context, Progress};
use crate::agent::caller::{Answer, Call, Caller, Https, Reach};
use crate::agent::identity::{self, Identity, SecretData, Signed};
use crate::agent::link::LinkState;
use crate::agent::{Joined, facts};
use crate::clock;
use crate::keys::Public;
use crate::lifetime::hearts::Heart;
use crate::manifests::{JOIN_SECRET, STATE_SECRET};
use crate::wire::PROTOCOL;
use crate::wire::api::{Assignment, DeployKeyState, HubInfo, JoinRequest};
use crate::wire::report::{ConditionType, Status, StepName};

mod believe;

pub use believe::Belief;
use believe::Unmet;

/// Between looks at a deploy key that the Git host has not taken yet.
const PENDING: Duration = Duration::from_secs(5);
/// Between tries to drop the token.
const FORGET: Duration = Duration::from_secs(2);
const NO_TOKEN: &str = "Secret linesman-join has no token; run 'linesman cluster readopt' and apply the YAML it prints";
/// Between questions to whoever answers in the hub's place.
const ASKED: Duration = Duration::from_secs(5);
/// The longest pause between two turns of the loop.
const TURN: Duration = Duration::from_secs(20);

/// What joining needs and gives.
pub struct Joining {
    pub context: Context,
    pub keys: watch::Receiver<Identity>,
    pub caller: Caller,
    pub state: Option<State>,
    /// The join Secret as it was at the start.
    pub applied: Option<Join>,
    pub heart: Heart,
    /// Out: the answer, for all that talk to the hub.
    pub joined: watch::Sender<Option<Joined>>,
    /// Out: what Secret `linesman-state` has to hold.
    pub kept: watch::Sender<Option<SecretData>>,
    /// In: the newest revision of the assignment that the hub spoke of.
    pub spoken: watch::Receiver<u64>,
    /// Out: the identity that the hub revoked, where a good token waits for another.
    pub disowned: watch::Sender<Option<Public>>,
    /// In: what was proven readable, to be remembered.
    pub proven: watch::Receiver<String>,
    /// The hub's last answer was not understood in all its parts.
    pub doubts: bool,
    pub belief: Belief,
}

/// When the next try is due, and how many there were.
struct Retry {
    attempt: u32,
    /// `None` = not before the YAML is applied again.
    due: Option<Instant>,
}

impl Retry {
    fn now() -> Self {
        Self {
            attempt: 0,
            due: Some(Instant::now()),
        }
    }

    fn is_due(&self) -> bool {
        self.due.is_some_and(|due| due <= Instant::now())
    }

    fn after(&mut self, again: Again, asked: Option<Duration>) {
        let wait = answer::wait(again, self.attempt, asked, clock::unit());
        self.due = wait.map(|wait| Instant::now() + wait);
        self.attempt = self.attempt.saturating_add(1);
    }
}

impl Joining {
    /// Joins, keeps the answer current, and keeps the token out of the cluster, until `stop`.
    pub async fn run(mut self, stop: CancellationToken) -> Result<()> {
        let secrets = stored::secrets(&self.context.kube, &self.context.namespace);
        let events = watcher::watch_object(secrets.clone(), JOIN_SECRET).default_backoff();
        tokio::pin!(events);
        let mut progress = Progress::new(&self.context, StepName::Join);
        let (mut retry, mut fetch) = (Retry::now(), Retry::now());
        let mut link = self.caller.link();
        let mut applied = self.applied.take();
        if applied.is_none() {
            retry.due = None;
        }
        if let Some(state) = self.state.clone() {
            self.publish(&secrets, state, applied.as_ref()).await;
        }
        loop {
            self.heart.beat();
            if let Some(join) = applied.clone() {
                self.turn(&secrets, &join, &mut progress, &mut retry).await;
            }
            if self.state.is_some() {
                progress.done().await;
                if fetch.is_due() {
                    self.fetch(&secrets, applied.as_ref(), &mut fetch).await;
                }
            }
            let latest = Instant::now() + TURN;
            let due = [retry.due, fetch.due.filter(|_| self.state.is_some())];
            let due = due.into_iter().flatten().fold(latest, Instant::min);
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = sleep_until(due) => {}
                Ok(()) = self.spoken.changed() => {
                    let spoken = *self.spoken.borrow_and_update();
                    let known = self.state.as_ref().map(|s| s.assignment.revision);
                    if known.is_some_and(|known| known != spoken) {
                        fetch = Retry::now();
                    }
                    if known.is_none() && self.doubts {
                        // It may be told something else now.
                        retry = Retry::now();
                    }
                }
                Ok(()) = link.changed() => {
                    let now = link.borrow_and_update().clone();
                    if self.met(now, &secrets, applied.as_ref()).await {
                        fetch = Retry::now();
                    }
                }
                Ok(()) = self.proven.changed() => self.remember(&secrets).await,
                Ok(()) = self.keys.changed() => {
                    if self.wants_join(applied.as_ref()) {
                        retry = Retry::now();
                    }
                }
                event = events.next() => {
                    let seen = event.context("the watch of Secret linesman-join ended")?;
                    if let Some(join) = self.applied(seen).await? {
                        applied = Some(join);
                        retry = Retry::now();
                    }
                }
            }
        }
    }

    /// The Secret changed: what it says now.
    async fn applied(&self, seen: watcher::Result<Option<Object>>) -> Result<Option<Join>> {
        let join = match seen {
            Ok(Some(object)) => Join::read(&object),
            Ok(None) => return Ok(None),
            Err(error) => {
                tracing::debug!(%error, "watch of the join secret failed");
                return Ok(None);
            }
        };
        match join {
            Ok(join) if join.cluster != self.context.cluster => {
                bail!("Secret linesman-join names another cluster now: starting again as it")
            }
            Ok(join) => Ok(Some(join)),
            Err(error) => {
                let text = format!("{error:#}");
                warn!(error = text, "join secret not understood");
                self.context
                    .event(EventType::Warning, "JoinSecretInvalid", &text)
                    .await;
                Ok(None)
            }
        }
    }

    fn wants_join(&self, applied: Option<&Join>) -> bool {
        let Some(token) = applied.and_then(|join| join.token.as_ref()) else {
            return false;
        };
        let redeemed = self.state.as_ref().map(|s| s.redeemed.as_str());
        redeemed.is_none() || redeemed != identity::token_id(token)
    }

    /// Drops a token that was redeemed, redeems one that was not.
    async fn turn(
        &mut self,
        secrets: &Api<Object>,
        join: &Join,
        progress: &mut Progress,
        retry: &mut Retry,
    ) {
        if !retry.is_due() {
            return;
        }
        if !self.wants_join(Some(join)) {
            retry.due = None;
            if self.state.is_none() {
                progress.waiting(NO_TOKEN).await;
            } else if join.token.is_some() || join.echoed {
                self.forget(secrets, retry).await;
            }
            return;
        }
        progress.running().await;
        match self.redeem(join).await {
            Ok(answer) if answer.status.is_success() => match self.told(&answer) {
                Ok(told) => match self.accept(secrets, join, told.assignment).await {
                    Ok(()) => {
                        self.understood(&told.unknown).await;
                        self.forget(secrets, retry).await;
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
            Ok(answer) => {
                let refusal = answer::judge(answer.status.as_u16(), &answer.slug());
                let text = answer.refusal();
                warn!(text, next = refusal.next, "join refused");
                if answer.slug() == "revoked" {
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
            Err(error) => {
                let text = format!("{error:#}");
                warn!(error = text, "hub not reached");
                progress.waiting(&text).await;
                retry.after(Again::Soon, None);
            }
        }
    }

    /// A 2xx answer, as far as this build understands it.
    fn told(&self, answer: &Answer) -> Result<Told> {
        if !answer.status.is_success() {
            bail!("{}", answer.refusal());
        }
        let kept = self.state.as_ref().map(|s| &s.assignment);
        told::read(&answer.body, kept).context("read the hub's answer")
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
            proxy: join.proxy.clone(),
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

    /// Names what a hub of a later version said and this build does not know. Nothing is said of a hub that was always
    /// understood.
    async fn understood(&mut self, unknown: &[String]) {
        let kind = ConditionType::HubUnderstood;
        if !unknown.is_empty() {
            let parts = unknown.join("; ");
            let name = &self.context.cluster;
            let text = format!(
                "the agent is older than the hub; upgrade it: linesman cluster upgrade {name}; what it does not know \
                 stays as it was, all else is followed: {parts}"
            );
            if !self.doubts {
                warn!(parts, "the hub says what this version does not know");
            }
            self.context
                .condition(kind, Status::False, "AgentOlder", &text)
                .await;
        } else if self.doubts {
            self.context
                .condition(kind, Status::True, "Understood", "")
                .await;
        }
        self.doubts = !unknown.is_empty();
    }

    /// M0 for the hub's id, then M1.
    async fn redeem(&self, join: &Join) -> Result<Answer> {
        let token = join.token.as_ref().context("no token")?;
        let https = Https::new(
            std::slice::from_ref(&join.hub),
            &join.ca,
            join.proxy.as_ref(),
        )?;
        let asked = https.send(&Call::get("/v1/hub"), None).await;
        let (https, hub) = match asked.and_then(|answer| answer.json::<HubInfo>()) {
            Ok(hub) => (https, hub),
            // Its CA may be another one since the YAML was made.
            Err(error) => self.led(join).await.ok_or(error)?,
        };
        self.caller.set_hub_time(hub.time);
        let cluster = &self.context.cluster;
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
            facts: facts::collect(&self.context.kube, &self.context.namespace, None).await,
        };
        let call = Call::post("/v1/join", &request)?;
        let signed = Signed {
            hub_id: &hub.hub_id,
            method: "POST",
            path_and_query: &call.path,
            time: hub.time,
            body: &call.body,
        };
        let signature = identity::signature(&keys.identity, signed);
        https.send(&call, Some(signature)).await
    }

    /// The answer is stored before the token is forgotten: a kill between the two costs nothing.
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
        };
        self.keep_trust(secrets, &state).await?;
        self.publish(secrets, state, Some(join)).await;
        let note = "the hub accepted this cluster";
        self.context.event(EventType::Normal, "Joined", note).await;
        Ok(())
    }

    /// Drops the token; tried again soon where that fails.
    async fn forget(&self, secrets: &Api<Object>, retry: &mut Retry) {
        *retry = Retry {
            attempt: 0,
            due: None,
        };
        if let Err(error) = stored::forget_token(secrets).await {
            warn!(error = format!("{error:#}"), "token not removed");
            retry.due = Some(Instant::now() + FORGET);
        }
    }

    /// Stores the state, then tells everybody.
    async fn publish(&mut self, secrets: &Api<Object>, state: State, join: Option<&Join>) {
        self.store(secrets, &state).await;
        let known = self.joined.borrow().as_ref().and_then(|j| j.proxy.clone());
        let proxy = join.map_or(known, |join| join.proxy.clone());
        let key = &state.assignment.catalog.deploy_key;
        let (registered, reason) = match key.state {
            DeployKeyState::Registered => (Status::True, "Registered"),
            DeployKeyState::Pending => (Status::False, "Pending"),
            DeployKeyState::Refused => (Status::False, "Refused"),
        };
        let (joined, known) = (ConditionType::Joined, ConditionType::DeployKeyRegistered);
        self.context
            .condition(joined, Status::True, "Accepted", "")
            .await;
        self.context
            .condition(known, registered, reason, &key.reason)
            .await;
        self.joined.send_replace(Some(Joined {
            assignment: state.assignment.clone(),
            proxy,
        }));
        self.state = Some(state);
    }

    async fn store(&self, secrets: &Api<Object>, state: &State) {
        let written = async {
            let data = state.to_data()?;
            self.kept.send_replace(Some(data.clone()));
            if stored::read_state(secrets).await?.as_ref() == Some(state) {
                return Ok(());
            }
            stored::write(secrets, STATE_SECRET, &data).await
        };
        // The keeper of the Secret goes on trying.
        if let Err(error) = written.await {
            warn!(error = format!("{error:#}"), "state not stored");
        }
    }

    async fn remember(&mut self, secrets: &Api<Object>) {
        let proven = self.proven.borrow_and_update().clone();
        if let Some(state) = self.state.as_mut().filter(|s| s.proven != proven) {
            state.proven = proven;
            let state = state.clone();
            self.store(secrets, &state).await;
        }
    }

    /// What the line says of the hub; true = ask for the assignment now.
    async fn met(&mut self, link: LinkState, secrets: &Api<Object>, join: Option<&Join>) -> bool {
        match link {
            // It is the hub, as it is known: what was refused is over.
            LinkState::Up { .. } => self.belief.refused,
            LinkState::Down { strange: false, .. } => false,
            LinkState::Down { strange: true, .. } => {
                let due = |at: Instant| at.elapsed() >= ASKED;
                if !self.belief.asked.is_none_or(due) {
                    return false;
                }
                self.belief.asked = Some(Instant::now());
                self.renew(secrets, join).await
            }
        }
    }

    /// M0 unverified, because whoever answers is not the hub as it is known; true = it is, and what it is now is in force.
    async fn renew(&mut self, secrets: &Api<Object>, join: Option<&Join>) -> bool {
        let Some(state) = self.ask(join).await else {
            return false;
        };
        // Tried again with the next dial.
        if self.keep_trust(secrets, &state).await.is_err() {
            return false;
        }
        self.trusted().await;
        self.publish(secrets, state, join).await;
        let note = "the hub has another URL, CA or key, signed by a key that was trusted";
        self.context
            .event(EventType::Normal, "HubTrustRenewed", note)
            .await;
        true
    }

    /// M3: the assignment as it is now. The stored one stands while the hub is away.
    async fn fetch(&mut self, secrets: &Api<Object>, join: Option<&Join>, retry: &mut Retry) {
        let call = |base: String| Ok(Call::get(format!("{base}/assignment")));
        let answer = self.caller.cluster(call).await;
        let Told {
            mut assignment,
            unknown,
        } = match answer.and_then(|a| self.told(&a)) {
            Ok(told) => told,
            Err(error) => {
                info!(error = format!("{error:#}"), "assignment not fetched");
                return retry.after(Again::Soon, None);
            }
        };
        let trust = match self.believe(&mut assignment, join, false).await {
            Ok(trust) => trust,
            Err(unmet) => return retry.after(unmet.again, None),
        };
        self.understood(&unknown).await;
        *retry = Retry {
            attempt: 0,
            due: None,
        };
        if assignment.catalog.deploy_key.state == DeployKeyState::Pending {
            retry.due = Some(Instant::now() + PENDING);
        }
        let other = |s: &State| s.assignment != assignment || s.trust != trust;
        let Some(state) = self.state.clone().filter(other) else {
            return;
        };
        info!(revision = assignment.revision, "assignment changed");
        let state = State {
            assignment,
            trust,
            ..state
        };
        if let Err(unmet) = self.keep_trust(secrets, &state).await {
            return retry.after(unmet.again, None);
        }
        self.publish(secrets, state, join).await;
    }
}
