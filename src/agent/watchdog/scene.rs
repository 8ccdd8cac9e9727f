//! Events about what is at fault, the last words of a container that ended, and what the engine made again after a collapse, read beside the mending: they wait for
//! nothing, and nothing waits for them.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams, LogParams};
use serde::de::DeserializeOwned;
use time::OffsetDateTime;
use tokio::task::{JoinError, JoinSet};
use tracing::debug;

use super::Watchdog;
use crate::agent::apply::AtMost as _;
use crate::agent::engine::Install;
use crate::agent::observe::api;
use crate::agent::plan::{Observed, remade, scene};
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
    Around(Vec<ObjectEvent>, Vec<String>),
    Remade(Remade),
}

/// The looks under way.
pub(super) type Looks = JoinSet<Seen>;

impl Watchdog {
    /// Begins to look for the Events of heals that have opened, for the log of a container that ended, and for what the engine made
    /// after those of a collapse.
    pub(super) fn look_around(&mut self, install: &Install, observed: &Observed) {
        for (heal, id) in self.records.unseen() {
            if !id.namespace.is_empty() && self.looks.len() < MAX_LOOKS {
                let kube = self.context.kube.clone();
                let pod = scene::log::crashed(observed, &id).map(str::to_owned);
                self.looks.spawn(async move {
                    let log = log(kube.clone(), &id.namespace, pod);
                    let (events, log) = tokio::join!(events(kube, &id), log);
                    (heal, Found::Around(events, log))
                });
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
            Ok((heal, Found::Around(events, log))) => {
                self.records.witnessed(&heal, events);
                self.records.logged(&heal, log);
            }
            Ok((heal, Found::Remade(remade))) => {
                self.told_again.extend(self.records.remade(&heal, remade));
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

/// What the container before said last, in a Pod of the engine in which one ended.
async fn log(kube: kube::Client, namespace: &str, pod: Option<String>) -> Vec<String> {
    let Some(pod) = pod else {
        return Vec::new();
    };
    let pods: Api<Pod> = Api::namespaced(kube, namespace);
    let last = LogParams {
        previous: true,
        tail_lines: Some(scene::log::LINES),
        limit_bytes: Some(scene::log::BYTES),
        ..LogParams::default()
    };
    match pods.logs(&pod, &last).await_at_most(LOOK).await {
        Ok(text) => scene::log::told(&text),
        Err(error) => {
            debug!(pod, %error, "its log was not read");
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
