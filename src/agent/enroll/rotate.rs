//! Keys are replaced in two phases: the new one is stored, registered and proven before the old one goes.
//!
//! Where a rotation stands is read off Secret `linesman-keys` alone, and each step can be done again, so that it goes
//! on after a kill at any point and ends with one key. The deploy key: stored as `deploy.next` → registered at the Git
//! host → read with by our own SSH client → made the present one, whereupon the engine's Secret follows → the engine
//! fetched with it → the others are deleted at the host. The identity key: stored as `identity.next` → told to the hub,
//! signed by both → made the present one, whereupon the line moves → the hub ends the old one.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use kube::runtime::events::EventType;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::gitpath::{self, GitPath};
use super::keyring::Keyring;
use super::{Context, clip, stored};
use crate::agent::Joined;
use crate::agent::caller::{Call, Caller};
use crate::agent::fault::Boundary;
use crate::agent::identity::{self, Identity};
use crate::backoff::Schedule;
use crate::clock;
use crate::keys::{KeyPair, Public};
use crate::lifetime::hearts::Heart;
use crate::wire::api::{Assignment, DeployKeyRequest, DeployKeyState, DeployKeyStatus};
use crate::wire::report::{ConditionType, Status};

mod asks;
mod due;
mod identity_key;

use asks::Asks;
use due::{Moment, Work, due};

const RETRY: Schedule = Schedule {
    floor: Duration::from_millis(500),
    first: Duration::from_secs(1),
    cap: Duration::from_secs(30),
};
/// The longest pause between two turns of the loop.
const TURN: Duration = Duration::from_secs(20);
/// The longest wait that the hub can ask for before the next try to recover.
const LONGEST_WAIT: Duration = Duration::from_mins(2);
/// What replacing keys needs.
pub struct Rotating {
    pub context: Context,
    pub keyring: Keyring,
    pub caller: Caller,
    pub path: GitPath,
    pub heart: Heart,
    pub joined: watch::Receiver<Option<Joined>>,
    /// The fingerprint of the deploy key that the engine last fetched with, as far as that is proven.
    pub fetched: watch::Receiver<String>,
    /// The identity that the hub revoked, where a good token waits for another.
    pub disowned: watch::Receiver<Option<Public>>,
    /// How many looks at the catalog in a row the Git host refused the deploy key.
    pub denied: watch::Receiver<u32>,
}

/// The hub said when to come again.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Later {
    text: String,
    after: Duration,
}

impl Rotating {
    /// Replaces keys when the hub wishes it, until `stop`.
    pub async fn run(mut self, stop: CancellationToken) -> Result<()> {
        let mut keys = self.keyring.current();
        let (mut attempt, mut wake, mut asks) = (0, Instant::now(), Asks::default());
        loop {
            self.heart.beat();
            let now = Instant::now();
            let wish = self.due();
            let work = wish.filter(|work| *work != Work::Ask || asks.allow(now));
            if let Some(work) = work.filter(|_| wake <= now) {
                if work == Work::Ask {
                    asks = asks.and(now);
                }
                let done = Box::pin(self.work(work));
                let Some(done) = stop.run_until_cancelled(done).await else {
                    return Ok(());
                };
                let Err(error) = done else {
                    (attempt, wake) = (0, Instant::now());
                    continue;
                };
                let text = format!("{error:#}");
                warn!(?work, error = text, "key not replaced yet");
                if !matches!(
                    work,
                    Work::Renew | Work::Recover | Work::MakeIdentity | Work::ProveIdentity
                ) {
                    self.tell("Rotating", &text).await;
                }
                let asked = error.downcast_ref::<Later>().map(|later| later.after);
                let own = RETRY.full_jitter(attempt, clock::unit());
                wake = Instant::now() + asked.map_or(own, |asked| asked.min(LONGEST_WAIT));
                attempt = attempt.saturating_add(1);
            }
            let latest = Instant::now() + TURN;
            self.heart.rests(TURN);
            let due = match (work, wish) {
                (Some(_), _) => wake.min(latest),
                (None, Some(_)) => asks.next().unwrap_or(latest).min(latest),
                (None, None) => latest,
            };
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = sleep_until(due) => {}
                changed = self.joined.changed() => {
                    changed.context("the task that joins has ended")?;
                    // A readoption may have made the hub know what it refused a moment ago.
                    wake = Instant::now();
                }
                changed = self.fetched.changed() => changed.context("the watchdog has ended")?,
                changed = self.disowned.changed() => {
                    changed.context("the task that joins has ended")?;
                    wake = Instant::now();
                }
                changed = self.denied.changed() => changed.context("the task that looks at Git has ended")?,
                changed = keys.changed() => changed.context("the keys are gone")?,
            }
        }
    }

    fn due(&mut self) -> Option<Work> {
        let own = self.keyring.current().borrow().identity.public();
        if *self.disowned.borrow_and_update() == Some(own) {
            return Some(Work::Renew);
        }
        let joined = self.joined.borrow_and_update();
        let assignment = &joined.as_ref()?.assignment;
        let fetched = self.fetched.borrow_and_update();
        let moment = Moment {
            wish: &assignment.rotate,
            registered: assignment.catalog.deploy_key.state,
            fetched: &fetched,
            denied: *self.denied.borrow_and_update(),
        };
        due(&self.keyring.current().borrow(), moment)
    }

    async fn work(&self, work: Work) -> Result<()> {
        if work == Work::Renew {
            // Also of an agent that lost what it was told when it joined.
            return self.renew().await;
        }
        let joined = self.joined.borrow().clone().context("not joined yet")?;
        let assignment = joined.assignment;
        let identity = self.keyring.current().borrow().clone();
        match work {
            Work::Renew => Ok(()),
            Work::Recover => self.recover(identity, &assignment).await,
            Work::Make => self.make_deploy(identity).await,
            Work::Prove => self.try_deploy(identity, &assignment).await,
            Work::Settle => self.settle_deploy(identity, &assignment).await,
            Work::Ask => self.ask_deploy(identity, &assignment).await,
            Work::MakeIdentity => self.make_identity(identity).await,
            Work::ProveIdentity => self.prove_identity(identity, &assignment).await,
        }
    }

    /// What was revoked may be in somebody else's hands: neither key is used again.
    async fn renew(&self) -> Result<()> {
        let keys = Identity::from_seeds(&clock::random(), &clock::random());
        let new = keys.identity.public().fingerprint();
        let replaced = self.replace(keys).await;
        replaced.context("store new keys in place of the revoked ones")?;
        info!(
            new,
            "the keys were revoked; new ones are made for the token"
        );
        let note = "an operator revoked the keys of this cluster; the new YAML's token is redeemed with new ones";
        self.context
            .event(EventType::Normal, "KeysRenewed", note)
            .await;
        Ok(())
    }

    /// As of the keyring.
    async fn replace(&self, next: Identity) -> Result<()> {
        let _wait = self.heart.wait(stored::DEADLINE);
        self.keyring.replace(next).await
    }

    async fn make_deploy(&self, identity: Identity) -> Result<()> {
        let next = KeyPair::from_seed(&clock::random());
        info!(
            old = identity.deploy.public().fingerprint(),
            new = next.public().fingerprint(),
            "replacing the deploy key"
        );
        self.replace(Identity {
            next_deploy: Some(next),
            ..identity
        })
        .await
        .context("store the next deploy key")?;
        self.context.faults.key(Boundary::Made).await;
        Ok(())
    }

    async fn try_deploy(&self, identity: Identity, assignment: &Assignment) -> Result<()> {
        let Some(next) = identity.next_deploy.clone() else {
            return Ok(());
        };
        let replaces = identity::public_line(&identity.deploy, &self.context.cluster)?;
        let request = self.request(&identity, &next, assignment)?;
        let request = DeployKeyRequest {
            replaces: Some(replaces),
            ..request
        };
        let status = self.register(&request).await?;
        match status.state {
            DeployKeyState::Registered => {}
            DeployKeyState::Pending => {
                return Err(anyhow!(
                    "the Git host has not taken the next deploy key yet"
                ));
            }
            DeployKeyState::Refused => {
                warn!(reason = status.reason, "the next deploy key was refused");
                return self.make_deploy(identity).await;
            }
        }
        self.context.faults.key(Boundary::Registered).await;
        let print = next.public().fingerprint();
        self.tell(
            "Rotating",
            &format!("{print} is registered and has to read the catalog"),
        )
        .await;
        let catalog = &assignment.catalog;
        let url = catalog.source().parse().context("the catalog's URL")?;
        let private = identity::private_file(&next, &self.context.cluster)?;
        let wait = self.heart.wait(gitpath::LONGEST);
        let read = self.path.walk(&url, catalog, &private).await;
        drop(wait);
        read.context("read the catalog with the next deploy key")?;
        self.context.faults.key(Boundary::Proven).await;
        let promoted = identity.with_deploy_promoted();
        self.replace(promoted)
            .await
            .context("store the next deploy key as the present one")?;
        info!(
            new = print,
            "deploy key replaced; the engine's Secret follows"
        );
        let text = format!("{print} is in use; the engine has to fetch with it");
        self.tell("Rotating", &text).await;
        self.context.faults.key(Boundary::Promoted).await;
        Ok(())
    }

    async fn settle_deploy(&self, identity: Identity, assignment: &Assignment) -> Result<()> {
        self.context.faults.key(Boundary::Fetched).await;
        let request = self.request(&identity, &identity.deploy, assignment)?;
        let request = DeployKeyRequest {
            in_use: true,
            ..request
        };
        let status = self.register(&request).await?;
        anyhow::ensure!(
            status.state == DeployKeyState::Registered,
            "the hub does not know the deploy key any more: {}",
            status.reason
        );
        self.context.faults.key(Boundary::Dropped).await;
        info!(
            key = request.public_key,
            "deploy key settled: no other of this cluster is left at the Git host"
        );
        self.replace(Identity {
            unsettled: false,
            ..identity
        })
        .await
        .context("store that the deploy key is settled")?;
        self.tell("Registered", "").await;
        self.context.faults.key(Boundary::Settled).await;
        Ok(())
    }

    /// The Git host does not know the key any more, or never took it: the hub registers it again, or says that it
    /// never will.
    async fn ask_deploy(&self, identity: Identity, assignment: &Assignment) -> Result<()> {
        let request = self.request(&identity, &identity.deploy, assignment)?;
        let status = self.register(&request).await?;
        info!(state = ?status.state, reason = status.reason, "asked the hub for the deploy key");
        match status.state {
            DeployKeyState::Registered | DeployKeyState::Pending => Ok(()),
            DeployKeyState::Refused => self.make_deploy(identity).await,
        }
    }

    fn request(
        &self,
        identity: &Identity,
        key: &KeyPair,
        assignment: &Assignment,
    ) -> Result<DeployKeyRequest> {
        let cluster = &self.context.cluster;
        Ok(DeployKeyRequest {
            public_key: identity::public_line(key, cluster)?,
            proof: identity.deploy_proof(key, &assignment.hub.id, cluster),
            replaces: None,
            in_use: false,
        })
    }

    async fn register(&self, request: &DeployKeyRequest) -> Result<DeployKeyStatus> {
        let call = |base: String| Call::post(format!("{base}/deploy-keys"), request);
        let answer = self.caller.cluster(call).await;
        answer
            .and_then(|a| a.json())
            .context("register a deploy key at the hub")
    }

    async fn tell(&self, reason: &str, text: &str) {
        let kind = ConditionType::DeployKeyRegistered;
        self.context
            .condition(kind, Status::True, reason, &clip(text))
            .await;
    }
}
