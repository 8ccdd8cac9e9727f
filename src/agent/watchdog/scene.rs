//! Events about what is at fault, read beside the mending: they wait for nothing, and nothing waits for them.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use tokio::task::{JoinError, JoinSet};
use tracing::debug;

use super::Watchdog;
use crate::agent::apply::AtMost as _;
use crate::agent::plan::scene;
use crate::bundle::ObjectId;
use crate::clock;
use crate::wire::report::ObjectEvent;

/// Looks at a time; a heal for which there is no place goes without its Events.
const MAX_LOOKS: usize = 4;
const LOOK: Duration = Duration::from_secs(5);
/// Of one list.
const PAGE: u32 = 500;

/// A heal and what was found about it.
type Seen = (String, Vec<ObjectEvent>);

/// The looks under way.
pub(super) type Looks = JoinSet<Seen>;

impl Watchdog {
    /// Begins to look for the Events of heals that have opened.
    pub(super) fn look_around(&mut self) {
        for (heal, id) in self.records.unseen() {
            if !id.namespace.is_empty() && self.looks.len() < MAX_LOOKS {
                let kube = self.context.kube.clone();
                self.looks
                    .spawn(async move { (heal, events(kube, &id).await) });
            }
        }
    }

    /// Takes in what the looks have found.
    pub(super) fn take_looks(&mut self) {
        while let Some(seen) = self.looks.try_join_next() {
            self.took_look(seen);
        }
    }

    pub(super) fn took_look(&mut self, seen: Result<Seen, JoinError>) {
        match seen {
            Ok((heal, events)) => self.records.witnessed(&heal, events),
            Err(error) => debug!(%error, "a look for Events ended"),
        }
    }
}

async fn events(kube: kube::Client, id: &ObjectId) -> Vec<ObjectEvent> {
    let events: Api<Event> = Api::namespaced(kube, &id.namespace);
    let page = ListParams::default().limit(PAGE);
    match events.list(&page).await_at_most(LOOK).await {
        Ok(all) => scene::events(clock::now(), id, &all.items),
        Err(error) => {
            debug!(%id, %error, "Events not read");
            Vec::new()
        }
    }
}
