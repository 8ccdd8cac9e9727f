//! Keeps the bindings in the namespaces that the owner's `ConfigMap` `linesman-scope` names. The list, the namespaces and
//! the bindings are watched: one that appears is covered at once, one that leaves the list is left at once. Where a watch hears nothing
//! that is so a minute later for the list, and five for the rest ([`named`], [`watched`]).

use std::time::Duration;

use anyhow::Result;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream, SelectAll};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::api::{Api, DeleteParams, PartialObjectMeta, Patch, PatchParams};
use kube::runtime::watcher::{Config, Error};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::calls::{named, watched};
use super::engine::MANAGER;
use super::enroll;
use super::gate::Covered;
use super::lease::Term;
use super::plan::coverage::{self, Step};
use crate::lifetime::hearts::Heart;
use crate::manifests::scope::{BINDINGS, SCOPE, binding};
use crate::wire::report::{ConditionType, Status};

mod known;

use known::{Known, News, verdict};

/// Events that come together become one look.
const TOGETHER: Duration = Duration::from_millis(100);
/// A look without an event, as a net below the watches.
const EVERY: Duration = Duration::from_mins(1);
/// After something failed.
const AGAIN: Duration = Duration::from_secs(5);
const CALL: Duration = Duration::from_secs(10);
/// How long a watch may fail before that is told.
const PATIENCE: Duration = Duration::from_secs(20);
const READOPT: &str = "apply the adoption YAML again: 'linesman cluster readopt'";

/// What the keeper of the bindings needs.
pub(super) struct Covering {
    pub(super) context: enroll::Context,
    pub(super) heart: Heart,
    pub(super) term: Term,
    /// Out: where requests of the line may lie.
    pub(super) covered: watch::Sender<Covered>,
}

impl Covering {
    /// Watches and mends until stopped.
    pub(super) async fn run(self, stop: CancellationToken) -> Result<()> {
        let mut events = self.events();
        let mut known = Known::new(self.context.engines.clone());
        let mut due = Instant::now() + PATIENCE;
        loop {
            self.heart
                .rests(due.saturating_duration_since(Instant::now()));
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                event = events.next() => {
                    let Some(event) = event else { return Ok(()) };
                    if known.take(event) {
                        self.publish(&known);
                    }
                    if known.is_whole() {
                        due = due.min(Instant::now() + TOGETHER);
                    }
                }
                () = sleep_until(due) => {
                    self.heart.beat();
                    let look = Box::pin(self.look(&mut known));
                    let Some(well) = stop.run_until_cancelled(look).await else {
                        return Ok(());
                    };
                    due = Instant::now() + if well { EVERY } else { AGAIN };
                }
            }
        }
    }

    fn events(&self) -> SelectAll<BoxStream<'static, Result<News, Error>>> {
        let kube = &self.context.kube;
        let maps: Api<ConfigMap> = Api::namespaced(kube.clone(), &self.context.namespace);
        let maps = named(maps, SCOPE);
        let namespaces = Api::<PartialObjectMeta<Namespace>>::all(kube.clone());
        let namespaces = watched(namespaces, Config::default());
        let mut all = vec![
            maps.map(|e| e.map(News::Map)).boxed(),
            namespaces.map(|e| e.map(News::Namespace)).boxed(),
        ];
        for (at, name) in BINDINGS.into_iter().enumerate() {
            // By their names: other bindings are none of the agent's business, nor within its rights.
            let bindings = Api::<RoleBinding>::all(kube.clone());
            let only = Config::default().fields(&format!("metadata.name={name}"));
            let bindings = watched(bindings, only);
            all.push(
                bindings
                    .map(move |e| e.map(|e| News::Binding(at, e)))
                    .boxed(),
            );
        }
        stream::select_all(all)
    }

    /// The gate holds to the list from now on.
    fn publish(&self, known: &Known) {
        let names = known.scope.as_ref().map(|scope| scope.namespaces.clone());
        let now = Covered::Namespaces(names.unwrap_or_default());
        self.covered.send_if_modified(|covered| {
            let changed = *covered != now;
            *covered = now;
            changed
        });
    }

    /// Puts right what is wrong; says whether all went well.
    async fn look(&self, known: &mut Known) -> bool {
        if !known.is_whole() {
            let why = known
                .failed
                .clone()
                .unwrap_or_else(|| "no answer".to_owned());
            let text = format!("namespaces or bindings cannot be watched: {why}; {READOPT}");
            self.tell(known, (Status::True, "NotWatched", text)).await;
            return false;
        }
        let mut failures = Vec::new();
        if !known.swept {
            match self.sweep().await {
                Ok(()) => known.swept = true,
                Err(why) => failures.push(why),
            }
        }
        let plan = known.plan();
        for step in &plan.steps {
            self.heart.beat();
            if !self.term.holds() {
                return false;
            }
            match self.carry_out(step).await {
                Ok(()) => info!(?step, "coverage"),
                Err(why) => {
                    warn!(?step, why, "coverage");
                    failures.push(why);
                }
            }
        }
        let verdict = verdict(known, &plan, &failures);
        self.tell(known, verdict).await;
        failures.is_empty()
    }

    async fn tell(&self, known: &mut Known, verdict: (Status, &'static str, String)) {
        if known.told.as_ref() == Some(&verdict) {
            return;
        }
        let (status, reason, text) = &verdict;
        self.context
            .condition(ConditionType::Uncovered, *status, reason, text)
            .await;
        known.told = Some(verdict);
    }

    async fn carry_out(&self, step: &Step) -> Result<(), String> {
        let api =
            |namespace: &str| Api::<RoleBinding>::namespaced(self.context.kube.clone(), namespace);
        let (done, what) = match step {
            Step::Apply(namespace, name) => {
                let params = PatchParams::apply(MANAGER).force();
                let patch = Patch::Apply(binding(name, namespace));
                let call = timeout(CALL, api(namespace).patch(name, &params, &patch)).await;
                let what = format!("make RoleBinding {namespace}/{name}");
                (call.map(|done| done.map(drop)), what)
            }
            Step::Delete(namespace, name) => {
                let params = DeleteParams::default();
                let call = timeout(CALL, api(namespace).delete(name, &params)).await;
                let what = format!("delete RoleBinding {namespace}/{name}");
                (call.map(|done| done.map(drop)), what)
            }
        };
        settled(done, &what)
    }

    /// Takes away what an adoption of the whole cluster left.
    async fn sweep(&self) -> Result<(), String> {
        let api = Api::<ClusterRoleBinding>::all(self.context.kube.clone());
        for name in BINDINGS {
            self.heart.beat();
            let what = format!("delete ClusterRoleBinding {name}");
            let found = match timeout(CALL, api.get_metadata_opt(name)).await {
                Ok(Ok(found)) => found,
                Ok(Err(error)) => return settled(Ok(Err(error)), &what),
                Err(late) => return settled(Err(late), &what),
            };
            if !found.is_some_and(|binding| coverage::ours(&binding.metadata)) {
                continue;
            }
            if !self.term.holds() {
                return Err("this replica no longer leads".to_owned());
            }
            let call = timeout(CALL, api.delete(name, &DeleteParams::default())).await;
            settled(call.map(|done| done.map(drop)), &what)?;
            info!(name, "binding for the whole cluster taken away");
        }
        Ok(())
    }
}

/// What is gone already is as it should be: a namespace may end meanwhile.
fn settled(
    done: Result<kube::Result<()>, tokio::time::error::Elapsed>,
    what: &str,
) -> Result<(), String> {
    match done {
        Ok(Ok(())) => Ok(()),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(()),
        Ok(Err(error)) => Err(format!("{what}: {error}")),
        Err(_) => Err(format!("{what}: no answer")),
    }
}
