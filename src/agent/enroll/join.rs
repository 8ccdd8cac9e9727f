//! From the token in the YAML to the hub's answer, and the answer kept current ever after.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Secret as Object;
use kube::api::Api;
use kube::runtime::events::EventType;
use kube::runtime::watcher;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::answer::{self, Again};
use super::stored::{self, Join, State, Way};
use super::told::{self, Told};
use super::{Context, Progress};
use crate::agent::Joined;
use crate::agent::caller::{Answer, Call, Caller};
use crate::agent::calls;
use crate::agent::identity::{Identity, SecretData};
use crate::agent::link::{Around, LinkState};
use crate::clock;
use crate::keys::Public;
use crate::lifetime::hearts::Heart;
use crate::manifests::{JOIN_SECRET, STATE_SECRET};
use crate::wire::api::DeployKeyState;
use crate::wire::report::{ConditionType, Status, StepName};

mod asking;
mod believe;
mod other;
mod redeem;
mod way;

pub use believe::Belief;
pub use other::Other;

/// Between looks at a deploy key that the Git host has not taken yet.
const PENDING: Duration = Duration::from_secs(5);
/// Between questions to whoever answers in the hub's place.
const ASKED: Duration = Duration::from_secs(5);
/// The longest pause between two turns of the loop.
const TURN: Duration = Duration::from_secs(20);

/// What joining needs and gives.
pub struct Joining {
    pub context: Context,
    pub keys: watch::Receiver<Identity>,
    pub caller: Caller,
    /// The proxy of the agent's environment.
    pub around: Around,
    pub state: Option<State>,
    /// The join Secret as it was at the start.
    pub applied: Option<Join>,
    pub heart: Heart,
    /// Out: the answer, for all that talk to the hub.
    pub joined: watch::Sender<Option<Joined>>,
    /// Out: what Secret `linesman-state` has to hold.
    pub kept: watch::Sender<Option<SecretData>>,
    /// In: the revision of the assignment that the hub spoke of last.
    pub spoken: watch::Receiver<u64>,
    /// Out: the identity that the hub revoked, where a good token waits for another.
    pub disowned: watch::Sender<Option<Public>>,
    /// In: what was proven readable, to be remembered.
    pub proven: watch::Receiver<String>,
    /// The hub's last answer was not understood in all its parts.
    pub doubts: bool,
    pub belief: Belief,
    /// YAML of another cluster that was applied in this one, which the hub has accepted.
    pub other: Option<Other>,
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
        let events = calls::object(secrets.clone(), JOIN_SECRET);
        tokio::pin!(events);
        let mut progress = Progress::new(&self.context, StepName::Join);
        let (mut retry, mut fetch) = (Retry::now(), Retry::now());
        let mut link = self.caller.link();
        let mut applied = self.applied.take();
        let mut trial = None;
        self.resume(&secrets, &mut applied).await;
        self.tell_way(applied.as_ref());
        if applied.is_none() {
            retry.due = None;
        }
        loop {
            self.heart.beat();
            if let Some(join) = applied.clone() {
                self.turn(&secrets, &join, &mut progress, &mut retry).await;
            }
            if self.state.is_some() {
                progress.done().await;
                Box::pin(self.try_other(&secrets, &mut trial)).await;
                if fetch.is_due() {
                    self.fetch(&secrets, applied.as_ref(), &mut fetch).await;
                }
            }
            let latest = Instant::now() + TURN;
            self.heart.rests(TURN);
            let fetched = fetch.due.filter(|_| self.state.is_some());
            let due = [retry.due, fetched, self.other_due()];
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
                (join, answer) = other::answered(&mut trial) => {
                    Box::pin(self.tried(&secrets, &join, answer)).await?;
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
                        self.take_way(&secrets, &join).await;
                        applied = Some(join);
                        retry = Retry::now();
                    }
                }
            }
        }
    }

    /// The Secret changed: what it says now.
    async fn applied(&mut self, seen: watcher::Result<Option<Object>>) -> Result<Option<Join>> {
        let join = match seen {
            Ok(Some(object)) => Join::read(&object),
            Ok(None) => {
                self.forget_other().await;
                return Ok(None);
            }
            Err(error) => {
                tracing::debug!(%error, "watch of the join secret failed");
                return Ok(None);
            }
        };
        match join {
            Ok(join) if join.cluster != self.context.cluster => {
                self.heard_other(join)?;
                Ok(None)
            }
            Ok(join) => {
                self.forget_other().await;
                Ok(Some(join))
            }
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

    /// A 2xx answer, as far as this build understands it.
    fn told(&self, answer: &Answer) -> Result<Told> {
        if !answer.status.is_success() {
            bail!("{}", answer.refusal());
        }
        let kept = self.state.as_ref().map(|s| &s.assignment);
        told::read(&answer.body, kept).context("read the hub's answer")
    }

    /// Names what a hub of a later version said and this build does not know. Nothing is said of a hub that was always
    /// understood.
    async fn understood(&mut self, unknown: &[String]) {
        let kind = ConditionType::HubUnderstood;
        if !unknown.is_empty() {
            let parts = unknown.join("; ");
            let name = &self.context.cluster;
            let text = format!(
                "the agent is older than the hub; upgrade it: linesman cluster upgrade {name} --image REF; what it \
                 does not know stays as it was, all else is followed: {parts}"
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

    /// Stores the state, then tells everybody.
    async fn publish(&mut self, secrets: &Api<Object>, state: State, join: Option<&Join>) {
        self.store(secrets, &state).await;
        let proxy = self.proxy_of(&state, join);
        let key = &state.assignment.catalog.deploy_key;
        let (registered, reason) = match key.state {
            DeployKeyState::Registered => (Status::True, "Registered"),
            DeployKeyState::Pending => (Status::False, "Pending"),
            DeployKeyState::Refused => (Status::False, "Refused"),
        };
        let known = ConditionType::DeployKeyRegistered;
        self.tell_joined().await;
        self.context
            .condition(known, registered, reason, &key.reason)
            .await;
        self.joined.send_replace(Some(Joined {
            assignment: state.assignment.clone(),
            proxy,
        }));
        self.state = Some(state);
    }

    /// With what was said of YAML of another cluster, where there is any.
    async fn tell_joined(&self) {
        let other = self.other.as_ref().map_or("", Other::said);
        let kind = ConditionType::Joined;
        self.context
            .condition(kind, Status::True, "Accepted", other)
            .await;
    }

    /// Whether it is stored now.
    async fn store(&self, secrets: &Api<Object>, state: &State) -> bool {
        let written = async {
            let data = state.to_data()?;
            self.kept.send_replace(Some(data.clone()));
            if stored::read_state(secrets).await?.as_ref() == Some(state) {
                return Ok(());
            }
            stored::write(secrets, STATE_SECRET, &data).await
        };
        // The keeper of the Secret goes on trying.
        let written = written.await;
        if let Err(error) = &written {
            warn!(error = format!("{error:#}"), "state not stored");
        }
        written.is_ok()
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
