//! Stored versions of a CRD: every object is written once, so that the API server stores it in the version that it
//! stores new ones in, and then the versions that nothing is stored in are forgotten (KEP-4192 describes the same).

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::Status;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::refused::unread;
use super::{AtMost as _, CALL, Hands, Refused, resource};
use crate::agent::engine::{MANAGER, OUTDATED};
use crate::agent::observe::{Page, served};
use crate::agent::plan::find::Named;
use crate::agent::plan::history::Outcome;
use crate::bundle::ObjectId;

/// One attempt; the next one begins anew, and finds most objects written.
const ATTEMPT: Duration = Duration::from_mins(2);
/// The same where objects were named by others: what else is to be mended waits no longer than for a call. The next attempt leaves
/// alone what this one wrote.
const NAMED: Duration = CALL;
/// Objects of one answer, at most.
const PAGE: u32 = 100;
/// So many writes are under way at once: one after the other, an API server that takes 50 ms for each gets through 2,400 in an
/// attempt, and no attempt would come to an end where there are more.
const AT_ONCE: usize = 8;
/// So often is an object that somebody else writes at the same time read and written again. Its controller writes it every few
/// seconds at most.
const AGAIN: u32 = 5;

impl Hands<'_> {
    /// Writes all objects of a CRD in version `to`, then takes all other versions from its status. Where objects are `named`, nothing is
    /// stored in another version, and it is their field managers alone.
    pub(super) async fn migrate(
        &self,
        crd: &ObjectId,
        to: &str,
        named: &[Named],
    ) -> Result<Outcome> {
        let served = self.served_in(crd, to)?;
        if !named.is_empty() {
            let renewing = timeout(NAMED, self.renew_all(crd, &served, named));
            return renewing.await.with_context(|| {
                let seconds = NAMED.as_secs();
                format!("renew the field managers of the objects of {crd} in {seconds} s")
            })?;
        }
        let any = timeout(ATTEMPT, self.rewrite(crd, &served, None))
            .await
            .with_context(|| {
                format!("rewrite the objects of {crd} in {} s", ATTEMPT.as_secs())
            })??;
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let stored = Patch::Merge(json!({"status": {"storedVersions": [to]}}));
        let api = self.api(crd);
        let call = api.patch_status(&crd.name, &params, &stored);
        match call.await_at_most(CALL).await {
            Ok(live) => {
                let outcome = self.learn(crd, live);
                Ok(if any { Outcome::Done } else { outcome })
            }
            Err(refused) => Err(anyhow!(refused).context(format!("patch the status of {crd}"))),
        }
    }

    /// Makes the field managers of one object of the install speak of the version of today.
    pub(super) async fn renew(&self, id: &ObjectId) -> Result<()> {
        let read = self.api(id).get(&id.name).await_at_most(CALL).await;
        let live = read.with_context(|| format!("read {id}"))?;
        self.written_anew(&live, &resource(id.kind)).await.map(drop)
    }

    /// Makes the field managers of a CRD's objects speak of the version that is `served`, where they speak of one that the CRD does not
    /// have. What is said of the `named` ones may be old, or not so at all: they are looked at first.
    async fn renew_all(
        &self,
        crd: &ObjectId,
        served: &ApiResource,
        named: &[Named],
    ) -> Result<Outcome> {
        if !self.is_any_so(served, named).await? {
            let all: Vec<String> = named.iter().map(place).collect();
            let all = all.join(", ");
            return Ok(Outcome::Failed(format!(
                "no field manager of {all} speaks of a version that {crd} does not have: nothing was written"
            )));
        }
        let versions = self.versions(crd, served);
        let any = self.rewrite(crd, served, Some(&versions)).await?;
        Ok(if any {
            Outcome::Done
        } else {
            Outcome::Unchanged
        })
    }

    async fn is_any_so(&self, served: &ApiResource, named: &[Named]) -> Result<bool> {
        for one in named {
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.kube.clone(), &one.namespace, served);
            let read = api.get_opt(&one.name).await_at_most(CALL).await;
            let read = read.with_context(|| format!("read {}", place(one)))?;
            let said = format!("{}/{}", served.group, one.version);
            if read.is_some_and(|live| spoken_of(&live).any(|version| version == said)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The versions that a CRD has, as field managers say them.
    fn versions(&self, crd: &ObjectId, served: &ApiResource) -> Vec<String> {
        let live = self.observed.objects.get(crd);
        let all = live.and_then(|live| live.fields.pointer("/spec/versions")?.as_array());
        let names = all.into_iter().flatten();
        let names = names.filter_map(|version| version.get("name")?.as_str());
        let versions = names.map(|name| format!("{}/{name}", served.group));
        versions.chain([served.api_version.clone()]).collect()
    }

    /// How the objects of a CRD are asked for in a version.
    fn served_in(&self, crd: &ObjectId, version: &str) -> Result<ApiResource> {
        let body = self.install.body(crd).unwrap_or_default();
        let kind = body.pointer("/spec/names/kind").and_then(Value::as_str);
        let served = served_as(&crd.name, version, kind.unwrap_or_default());
        served.with_context(|| format!("{crd} names no group"))
    }

    /// Writes all objects of a CRD; where the `versions` that it has are given, just those with a field manager of another one. Whether
    /// anything was to be written.
    async fn rewrite(
        &self,
        crd: &ObjectId,
        served: &ApiResource,
        versions: Option<&[String]>,
    ) -> Result<bool> {
        let is_due = |live: &DynamicObject| {
            let is_gone = |version: &str| {
                let of_group = version.starts_with(&format!("{}/", served.group));
                of_group && versions.is_some_and(|all| !all.iter().any(|one| one == version))
            };
            versions.is_none() || spoken_of(live).any(is_gone)
        };
        let all: Api<DynamicObject> = Api::all_with(self.kube.clone(), served);
        let params = ListParams::default().limit(PAGE);
        let mut pages = self.view.pages(&all, params, CALL);
        let mut any = false;
        loop {
            let mut due = Vec::new();
            let take = |mut live: DynamicObject| {
                if is_due(&live) {
                    // What it says is not written, and may be large.
                    live.data = Value::Null;
                    due.push(live);
                }
            };
            let page = pages.next(take).await;
            let page =
                page.map_err(|why| unread(why).context(format!("list the objects of {crd}")))?;
            let write = |live| self.written_anew(live, served).boxed();
            let written: Vec<_> = due.iter().map(write).collect();
            let written: Vec<bool> = stream::iter(written)
                .buffer_unordered(AT_ONCE)
                .try_collect()
                .await?;
            any |= written.contains(&true);
            if page != Page::More {
                return Ok(any);
            }
        }
    }

    /// An empty patch is a write where the API server would store the object in another way than it has. Whether it was one.
    async fn written_anew(&self, live: &DynamicObject, served: &ApiResource) -> Result<bool> {
        let name = live.metadata.name.as_deref().unwrap_or_default();
        let namespace = live.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<DynamicObject> = if namespace.is_empty() {
            Api::all_with(self.kube.clone(), served)
        } else {
            Api::namespaced_with(self.kube.clone(), namespace, served)
        };
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let mut anew: Option<DynamicObject> = None;
        let mut tries = 0;
        loop {
            let seen = anew.as_ref().unwrap_or(live);
            let patch = Patch::Merge(renewed(seen, &served.api_version));
            let refused = match api.patch(name, &params, &patch).await_at_most(CALL).await {
                Ok(now) => {
                    let version = |object: &DynamicObject| object.metadata.resource_version.clone();
                    return Ok(version(&now) != version(seen));
                }
                Err(refused) => refused,
            };
            tries += 1;
            match after(tries, &refused) {
                Then::Gone => return Ok(false),
                Then::Again => {}
                Then::Fail => {
                    let what = format!("write {namespace}/{name} anew");
                    return Err(anyhow!(refused).context(what));
                }
            }
            let read = api.get_opt(name).await_at_most(CALL).await;
            let read = read.with_context(|| format!("read {namespace}/{name} again"))?;
            if read.is_none() {
                return Ok(false);
            }
            anew = read;
        }
    }
}

/// What comes of an object that was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Nothing of it is stored any more.
    Gone,
    /// Somebody else wrote it meanwhile, and it may be as it was for all that: only its status, say.
    Again,
    /// Of an object that may be stored as it was, no version is forgotten.
    Fail,
}

fn after(tries: u32, refused: &Refused) -> Then {
    match refused {
        Refused::Status(status) if status.code == 404 => Then::Gone,
        Refused::Status(status) if status.code == 409 && tries <= AGAIN => Then::Again,
        Refused::Status(_) | Refused::Late | Refused::Transport(_) => Then::Fail,
    }
}

/// Whether it is the field managers of an object for which it is not applied.
pub(super) fn is_outdated(status: &Status) -> bool {
    status.message.contains(OUTDATED)
}

/// How the objects of a CRD are asked for; its name is `PLURAL.GROUP`.
fn served_as(crd: &str, version: &str, kind: &str) -> Option<ApiResource> {
    let (plural, group) = crd.split_once('.')?;
    Some(served((group, version), kind, plural))
}

fn place(one: &Named) -> String {
    format!("{}/{}", one.namespace, one.name)
}

/// The versions, with their group, of which an object's field managers speak.
fn spoken_of(live: &DynamicObject) -> impl Iterator<Item = &str> {
    let entries = live.metadata.managed_fields.iter().flatten();
    entries.filter_map(|entry| entry.api_version.as_deref())
}

/// Server-side apply refuses an object whose field managers speak of a version that is gone (fluxcd/flux2#5598).
fn renewed(live: &DynamicObject, api_version: &str) -> Value {
    let mut entries = live.metadata.managed_fields.clone().unwrap_or_default();
    let old = |version: &Option<String>| version.as_deref() != Some(api_version);
    if !entries.iter().any(|entry| old(&entry.api_version)) {
        return json!({});
    }
    for entry in &mut entries {
        entry.api_version = Some(api_version.to_owned());
    }
    let version = &live.metadata.resource_version;
    json!({"metadata": {"managedFields": entries, "resourceVersion": version}})
}

#[cfg(test)]
mod tests;
