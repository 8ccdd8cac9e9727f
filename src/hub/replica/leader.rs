//! What must be done once in a hub is done by the replica that leads. Who leads is a lock of the database, which ends with
//! the connection that holds it. For seconds after it broke, two may believe that they lead: whatever is done here bears
//! that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::Own;
use crate::hub::{Hub, chain_of};
use crate::lifetime::Tasks;

const LOOK: Duration = Duration::from_secs(3);
/// The leader's tasks have this long to end.
const LEAVE: Duration = Duration::from_secs(5);
const ABANDONED_LOOK: Duration = Duration::from_secs(30);
/// When a replica that fell silent is forgotten, and a little more.
const FORGOTTEN: Duration = Duration::from_mins(11);

/// Runs what `start` spawns while this replica leads, until `stop`. A hub that is alone always leads.
pub async fn run(
    hub: Arc<Hub>,
    start: impl Fn(&Arc<Hub>, &mut Tasks) + Send + 'static,
    stop: CancellationToken,
) -> Result<()> {
    let Some(own) = &hub.replica else {
        let mut tasks = Tasks::watched(stop.clone(), &hub.hearts);
        start(&hub, &mut tasks);
        return tasks.run(LEAVE).await;
    };
    while !stop.is_cancelled() {
        let leads = hub.store.leads().await.unwrap_or_else(|error| {
            if !hub.store.is_away() {
                tracing::warn!(error = chain_of(&error), "try to lead the hub's replicas");
            }
            false
        });
        if leads {
            tracing::info!(replica = own.record.id, "this replica leads");
            own.leads.store(true, Ordering::Relaxed);
            let mut tasks = Tasks::watched(stop.child_token(), &hub.hearts);
            start(&hub, &mut tasks);
            tasks.spawn("abandoned records", |stop| abandoned(hub.clone(), stop));
            tasks.spawn("leading", |stop| still(hub.clone(), stop));
            let ended = tasks.run(LEAVE).await;
            own.leads.store(false, Ordering::Relaxed);
            hub.tried.forget();
            ended?;
        }
        stop.run_until_cancelled(sleep(LOOK)).await;
    }
    hub.store.cede().await;
    Ok(())
}

/// Ends when another replica may lead.
async fn still(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    while stop.run_until_cancelled(sleep(LOOK)).await.is_some() {
        match hub.store.leads().await {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!("another replica leads now");
                return Ok(());
            }
            Err(error) => {
                tracing::warn!(error = chain_of(&error), "this replica leads no longer");
                return Ok(());
            }
        }
    }
    Ok(())
}

/// When records are to be closed that dead replicas left open.
#[derive(Debug)]
struct Due {
    /// Those that lived at the last look; None = there was none yet.
    known: Option<BTreeSet<String>>,
    now: bool,
    /// When replicas that vanished are forgotten: at most one for each look of the last [`FORGOTTEN`].
    later: Vec<Instant>,
}

impl Due {
    fn new() -> Self {
        Self {
            known: None,
            now: true,
            later: Vec::new(),
        }
    }

    fn is_now(&mut self, now: Instant) -> bool {
        let before = self.later.len();
        self.later.retain(|at| *at > now);
        self.now |= self.later.len() < before;
        self.now
    }

    fn closed(&mut self) {
        self.now = false;
    }

    /// Takes in who lives. One that died before the first look is missing there as well, and may be forgotten only later.
    fn look(&mut self, live: BTreeSet<String>, now: Instant) {
        let known = self.known.as_ref();
        if known.is_none_or(|known| !known.is_subset(&live)) {
            self.later.push(now + FORGOTTEN);
        }
        self.known = Some(live);
    }
}

/// Closes the audit's records that dead replicas left open: at first, and when those that died before or vanish are forgotten.
async fn abandoned(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let mut due = Due::new();
    loop {
        if due.is_now(Instant::now()) {
            match close(&hub).await {
                Ok(()) => due.closed(),
                Err(error) => {
                    tracing::error!(
                        error = format!("{error:#}"),
                        "close abandoned audit records"
                    );
                }
            }
        }
        match hub.store.replicas().await {
            Ok(live) => {
                let live = live.into_iter().map(|r| r.id);
                due.look(live.collect(), Instant::now());
            }
            Err(error) => tracing::error!(error = chain_of(&error), "list the replicas"),
        }
        let wait = stop.run_until_cancelled(sleep(ABANDONED_LOOK));
        if wait.await.is_none() {
            return Ok(());
        }
    }
}

async fn close(hub: &Hub) -> Result<()> {
    let open = hub.store.audit_abandoned().await?;
    if !open.is_empty() {
        tracing::info!(records = open.len(), "requests of a replica that is gone");
        hub.audit.interrupt(open).await?;
    }
    Ok(())
}

impl Own {
    /// For tests and `/metrics`: who this is.
    pub fn id(&self) -> &str {
        &self.record.id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H54: the leader's machine dies and its lease is over before another one leads, or all of them are started anew.
    #[test]
    fn what_died_before_this_one_led_is_looked_for_when_it_is_forgotten() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let live =
            |ids: &[&str]| -> BTreeSet<String> { ids.iter().map(|id| (*id).to_owned()).collect() };
        let mut due = Due::new();
        assert!(due.is_now(at(0)));
        // What could not be closed is tried again.
        assert!(due.is_now(at(30)));
        due.closed();
        due.look(live(&["a", "b"]), at(30));
        assert!(!due.is_now(at(60)));
        // One that comes and goes all the time puts nothing off.
        for minute in 1..11 {
            due.look(live(&["a"]), at(60 * minute));
            due.look(live(&["a", "b"]), at(60 * minute + 30));
        }
        assert!(!due.is_now(at(30 + 659)));
        assert!(due.is_now(at(30 + 660)));
        due.closed();
        assert!(due.is_now(at(60 + 660)));
        due.closed();
        assert!(due.is_now(at(3_600)));
        due.closed();
        due.look(live(&["a", "b", "c"]), at(3_600));
        assert!(!due.is_now(at(7_200)));
    }
}
