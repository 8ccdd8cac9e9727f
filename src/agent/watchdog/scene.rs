//! Events about what is at fault, and what the engine made again after a collapse, read beside the mending: they wait for
//! nothing, and nothing waits for them.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use serde::de::DeserializeOwned;
use time::OffsetDateTime;
use tokio::task::{JoinError, JoinSet};
use tracing::debug;

use super::Watchdog;
use crate::agent::apply::AtMost as _;
use crate::agent::engine::Install;
use crate::agent::observe::api;
use crate::agent::plan::{remade, scene};
use crate::bundle::{Kind, ObjectId};
use crate::clock;
use crate::wire::api::EngineKind;
use crate::wire::report::{ObjectEvent, Remade};

/// Looks at a time; a heal for which there is no place goes without its Events.
const MAX_LOOKS: usize = 4;
const LOOK: Duration = Duration::from_secs(5);
/// Of one list.
const PAGE: u32 = 500;

/// Of one list of Applications, which may be large.
const APPLICATIONS: u32 = 50;
/// More is not read.
const PAGES: usize = 20;

/// A heal's id, and what was found about it.
type Seen = (String, Found);

pub(super) enum Found {
    Events(Vec<ObjectEvent>),
    Remade(Remade),
}

/// The looks under way.
pub(super) type Looks = JoinSet<Seen>;

impl Watchdog {
    /// Begins to look for the Events of heals that have opened, and for what the engine made after those of a collapse.
    pub(super) fn look_around(&mut self, install: &Install) {
        for (heal, id) in self.records.unseen() {
            if !id.namespace.is_empty() && self.looks.len() < MAX_LOOKS {
                let kube = self.context.kube.clone();
                self.looks
                    .spawn(async move { (heal, Found::Events(events(kube, &id).await)) });
            }
        }
        while self.looks.len() < MAX_LOOKS
            && let Some((heal, since)) = self.records.aftermath(clock::now())
        {
            let kube = self.context.kube.clone();
            let (kind, namespace) = (install.traits.kind, install.namespace.clone());
            self.looks.spawn(async move {
                let made = made(kube, kind, &namespace, since).await;
                (heal, Found::Remade(made))
            });
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
            Ok((heal, Found::Events(events))) => self.records.witnessed(&heal, events),
            Ok((heal, Found::Remade(remade))) => {
                self.remade.extend(self.records.remade(&heal, remade));
            }
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

/// What the engine made since then, as far as it can be read.
async fn made(
    kube: kube::Client,
    kind: EngineKind,
    namespace: &str,
    since: OffsetDateTime,
) -> Remade {
    let made = match kind {
        EngineKind::Flux => {
            let events: Api<Event> = Api::namespaced(kube, namespace);
            let of = format!("involvedObject.kind={}", Kind::Kustomization);
            let first = ListParams::default().fields(&of).limit(PAGE);
            paged(&events, first, |page| remade::by_flux(since, page)).await
        }
        EngineKind::Argocd => {
            let applications = api(&kube, Kind::Application, namespace);
            let first = ListParams::default().limit(APPLICATIONS);
            paged(&applications, first, |page| remade::by_argocd(since, page)).await
        }
    };
    remade::told(made)
}

/// What each page of a list has of it.
async fn paged<K>(
    all: &Api<K>,
    first: ListParams,
    of: impl Fn(&[K]) -> BTreeSet<String>,
) -> BTreeSet<String>
where
    K: Clone + DeserializeOwned + fmt::Debug,
{
    let mut found = BTreeSet::new();
    let mut params = first;
    for _ in 0..PAGES {
        let page = match all.list(&params).await_at_most(LOOK).await {
            Ok(page) => page,
            Err(error) => {
                debug!(%error, "what the engine made was not read");
                break;
            }
        };
        found.append(&mut of(&page.items));
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => break,
        }
    }
    found
}
