//! Sync objects while their CRD dies: let them go without a prune, and keep what Git does not bring back.

mod found;

use std::time::Duration;

use anyhow::{Result, anyhow};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::refused::{is_silent, unread};
use super::{AtMost as _, CALL, Hands, Refused, Told};
use crate::agent::engine::GUARD;
use crate::agent::observe::{Page, Unread};
use crate::agent::plan::history::Outcome;
use crate::agent::plan::project;
use crate::agent::plan::state::Saved;
use crate::agent::saves::Stored;
use crate::bundle::{Kind, ObjectId};
use crate::clock;
use crate::wire::api::EngineKind;
use found::{Found, Pinned};

/// To put on record what is to be brought back, and the pause in between. None is begun after so long: what keeps one write for as long
/// as a call may take keeps the next one, too.
const TRIES: usize = 3;
const AGAIN: Duration = Duration::from_millis(500);
const LAST: Duration = Duration::from_secs(5);
/// Objects of one answer, at most: their CRD waits until all are read, and the API server may be slow.
const PAGE: u32 = 50;
/// Objects of all answers.
const OBJECTS: usize = 32_000;
/// So many are let go, or brought back, at once; and after so long a step begins with no more of them: nothing else is mended, told or
/// heeded meanwhile. The next one goes on.
pub(super) const AT_ONCE: usize = 8;
pub(super) const ATTEMPT: Duration = Duration::from_secs(30);

impl Hands<'_> {
    /// Takes the engine's finalizer from every object of this CRD that is being deleted, in all namespaces, and
    /// keeps those that Git does not bring back: also the one of which the engine has taken its finalizer itself by then,
    /// where somebody else's still holds it. What is to be told to people, if anything is, is in `told`.
    pub(super) async fn release(
        &self,
        crd: &ObjectId,
        saved: &[Saved],
        kept: &mut Vec<Saved>,
        told: &mut Told,
    ) -> Result<Outcome> {
        let Some(served) = self.served(crd) else {
            return Ok(Outcome::Unchanged);
        };
        let mut found = Found::nothing(&served, self.install.traits, saved);
        let read = self.read_dying(crd, &mut found).await;
        let Found {
            pinned, new, bare, ..
        } = found;
        told.bare = (bare > 0).then(|| {
            format!("the inventories of {bare} objects of {crd} are too large to be kept: what leaves the catalog before they are back is not pruned")
        });
        let now = clock::now();
        kept.extend(new.into_iter().map(|object| Saved::new(object, now)));
        // On record before the first one goes: this process may end before they are back.
        if !kept.is_empty() {
            let all = [saved, kept.as_slice()].concat();
            told.unrecorded = self.put_on_record(crd, &all).await.err();
        }
        // Also where they could not be read to the end: the next list is the shorter for it.
        let stripped = self.strip(&served, pinned, self.outlives(crd)).await;
        read.and(stripped)
    }

    /// Whether an object of this CRD that is let go, and that somebody else's finalizer holds on, is there when the engine has its
    /// rights again, and is pruned then: controllers of Flux look whether it is being deleted, and not by what it is held.
    fn outlives(&self, crd: &ObjectId) -> bool {
        let traits = self.install.traits;
        let prunes = traits.pruning_crds.contains(&crd.name.as_str());
        let live = self.observed.objects.get(crd);
        // With its CRD it is gone before the engine has any right.
        let stays = live.is_some_and(|live| live.deleting.is_none());
        traits.kind == EngineKind::Flux && prunes && stays
    }

    /// Reads which objects are being deleted, page by page: of each no more is kept than is needed.
    async fn read_dying(&self, crd: &ObjectId, found: &mut Found<'_>) -> Result<()> {
        let all: Api<DynamicObject> = Api::all_with(self.kube.clone(), found.served);
        let params = ListParams::default().limit(PAGE);
        let mut pages = self.view.pages(&all, params, CALL);
        let mut seen: usize = 0;
        while seen < OBJECTS {
            let before = seen;
            let take = |live: DynamicObject| {
                seen += 1;
                if live.metadata.deletion_timestamp.is_some() {
                    let dies_along = self.dies_along(crd, &live);
                    found.add(live, dies_along);
                }
            };
            let page = pages.next(take).await;
            // Also a page of nothing counts.
            seen = seen.max(before + 1);
            match page {
                Ok(Page::More) => {}
                Ok(Page::Last(_)) => break,
                // The CRD is gone, and they with it.
                Err(Unread::Kube(kube::Error::Api(status))) if status.code == 404 => return Ok(()),
                Err(why) => {
                    let what = format!("list {}", found.served.plural);
                    return Err(unread(why).context(what));
                }
            }
        }
        Ok(())
    }

    /// Tried more than once: nobody prunes meanwhile, the engine's rights are cut. But without an end it is not waited for
    /// either, or nothing would come back as long as a ConfigMap cannot be written. Why it was not written, for people.
    async fn put_on_record(&self, crd: &ObjectId, all: &[Saved]) -> Result<(), String> {
        let mut said = String::new();
        let begun = Instant::now();
        for tried in 0..TRIES {
            if tried > 0 {
                if begun.elapsed() >= LAST {
                    break;
                }
                sleep(AGAIN).await;
            }
            match self.saves.store(crd, all, clock::now()).await {
                Ok(Stored::Alone | Stored::Beside(_)) => return Ok(()),
                Err(error) => said = format!("{error:#}"),
            }
        }
        let many = all.len();
        Err(format!(
            "{many} objects of {crd} that are to be brought back are known to this process alone, and lost if it ends before: {said}"
        ))
    }

    /// Whether an object was deleted because its CRD or its Namespace is, and not by somebody who meant it.
    fn dies_along(&self, crd: &ObjectId, object: &DynamicObject) -> bool {
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let namespace = ObjectId::new(Kind::Namespace, "", &namespace);
        let since = [crd, &namespace].into_iter().filter_map(|id| {
            let live = self.observed.objects.get(id)?;
            live.deleting
        });
        let deleted = object.metadata.deletion_timestamp.as_ref();
        let deleted = deleted.and_then(project::at);
        let (Some(since), Some(deleted)) = (since.min(), deleted) else {
            return false;
        };
        deleted >= since
    }

    /// How the objects of a CRD are served: by the bundle, and of one that it does not have by itself.
    fn served(&self, crd: &ObjectId) -> Option<ApiResource> {
        let (plural, group) = crd.name.split_once('.')?;
        let live = || Some(self.observed.objects.get(crd)?.fields.clone());
        let body = self.install.body(crd).or_else(live).unwrap_or_default();
        let versions = body.pointer("/spec/versions").and_then(Value::as_array);
        let stored = |v: &&Value| v.get("storage") == Some(&Value::Bool(true));
        let version = versions
            .and_then(|all| all.iter().find(stored).or_else(|| all.first()))
            .and_then(|v| v.get("name")?.as_str())
            .unwrap_or("v1");
        let kind = body
            .pointer("/spec/names/kind")
            .and_then(Value::as_str)
            .unwrap_or_default();
        Some(ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: format!("{group}/{version}"),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        })
    }

    /// Takes the engine's finalizers from objects that are being deleted; one that `outlives` that is to prune nothing afterwards. One
    /// that is refused keeps no other one back: until they are let go the engine has no rights. Where no answer comes, the next
    /// step goes on.
    async fn strip(
        &self,
        served: &ApiResource,
        mut pinned: Vec<Pinned>,
        outlives: bool,
    ) -> Result<Outcome> {
        if pinned.len() > AT_ONCE {
            // Elsewhere each time: what is refused, and slowly, is listed first each time, too.
            let many = pinned.len();
            pinned.rotate_left(usize::from_le_bytes(clock::random()) % many);
        }
        let (begun, mut waiting) = (Instant::now(), pinned.as_slice());
        let (mut outcome, mut first, mut silent) = (Outcome::Unchanged, None, false);
        while !waiting.is_empty() && !silent && begun.elapsed() < ATTEMPT {
            let (now, later) = waiting.split_at(waiting.len().min(AT_ONCE));
            waiting = later;
            let calls = now
                .iter()
                .map(|one| self.let_go(served, one, outlives).boxed());
            let ends = join_all(calls.collect::<Vec<_>>()).await;
            for (one, end) in now.iter().zip(ends) {
                match end {
                    Ok(()) => outcome = Outcome::Done,
                    Err(Refused::Status(status)) if matches!(status.code, 404 | 409) => {}
                    Err(refused) => {
                        let error = anyhow!(refused).context(format!("release {}", one.name));
                        silent |= is_silent(&error);
                        first.get_or_insert(error);
                    }
                }
            }
        }
        match (first, waiting.len()) {
            (Some(error), _) => Err(error),
            (None, 0) => Ok(outcome),
            (None, many) => Ok(Outcome::Failed(format!(
                "{many} {} are let go later: there are too many for one step",
                served.plural
            ))),
        }
    }

    async fn let_go(
        &self,
        served: &ApiResource,
        one: &Pinned,
        outlives: bool,
    ) -> Result<(), Refused> {
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.kube.clone(), &one.namespace, served);
        let params = PatchParams {
            field_manager: Some(GUARD.to_owned()),
            ..PatchParams::default()
        };
        let free = json!({"metadata": {"finalizers": one.others, "uid": one.uid}});
        if outlives && !one.others.is_empty() {
            let mut still = free.clone();
            // What is suspended ends without a prune.
            still["spec"] = json!({"suspend": true});
            let done = api
                .patch(&one.name, &params, &Patch::Merge(&still))
                .await_at_most(CALL)
                .await;
            match done {
                // Where somebody's policy lets nothing be suspended, the engine would have no rights for as long.
                Err(Refused::Status(status)) if matches!(status.code, 400 | 403 | 422) => {
                    warn!(
                        kind = served.kind,
                        namespace = one.namespace,
                        name = one.name,
                        error = status.message,
                        "may not be suspended: what it brought may be pruned when the engine is back"
                    );
                }
                done => return done.map(drop),
            }
        }
        let done = api
            .patch(&one.name, &params, &Patch::Merge(&free))
            .await_at_most(CALL)
            .await;
        done.map(drop)
    }
}

#[cfg(test)]
mod tests;
