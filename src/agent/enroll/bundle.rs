//! The bundle in force and, over a change of it, the one before: ConfigMaps `linesman-bundle` and `linesman-change`.
//!
//! Whatever a change may come to is written before it is begun, so that an agent that is killed at any point goes on
//! with it, or goes back.

mod replace;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::stored::within;
use super::{Context, FIELD_MANAGER};
use crate::agent::caller::{Call, Caller};
use crate::agent::engine::{self, Site};
use crate::agent::fault::Stage;
use crate::agent::gate::policy::Policy;
use crate::agent::plan::change::{self, Change, Form, Next};
use crate::agent::{InForce, Rest, Verdict};
use crate::bundle::{Bundle, UnpackError};
use crate::clock;
use crate::manifests::{BUNDLE_MAP, CHANGE_MAP};
use crate::wire::api::{Assignment, EngineKind, EngineRef};
use crate::wire::id::Digest;

/// In [`BUNDLE_MAP`].
const PACKED: &str = "bundle.zst";
/// In [`BUNDLE_MAP`]: where its objects live.
pub(super) const NAMESPACE: &str = "namespace";
/// In [`CHANGE_MAP`]: the bundle of [`Change::from`].
const BEFORE: &str = "before.zst";
/// In [`CHANGE_MAP`]: the bundle of [`Change::to`], where another engine takes the place of the one in force.
const AFTER: &str = "after.zst";

/// What is kept, and where it comes from.
pub struct Keeper {
    context: Context,
    caller: Caller,
    owner: watch::Receiver<Option<Policy>>,
    held: Option<InForce>,
    /// What the watchdog said last is done.
    heeded: Option<Verdict>,
    /// Since when the Pods of an engine that failed are waited for, on the way back, and how many are left.
    ending: Option<(Instant, String)>,
}

/// How far one turn of the [`Keeper`] has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    Done,
    /// The engine in force is being made to stand still; what is left of that, for people.
    Stills(String),
}

/// What one turn goes by.
pub struct Wish<'a> {
    pub assignment: &'a Assignment,
    /// What the watchdog found last.
    pub told: Option<&'a Verdict>,
    /// Which engine the watchdog leaves alone.
    pub rest: Rest,
}

impl Keeper {
    pub fn new(context: Context, caller: Caller, owner: watch::Receiver<Option<Policy>>) -> Self {
        Self {
            context,
            caller,
            owner,
            held: None,
            heeded: None,
            ending: None,
        }
    }

    /// What is in force, as far as it is known.
    pub fn held(&self) -> Option<&InForce> {
        self.held.as_ref()
    }

    /// Whether [`Self::turn`] has nothing to do.
    pub fn is_settled(&self, engine: &EngineRef, told: Option<&Verdict>) -> bool {
        let held = self.held.as_ref();
        held.is_some_and(|h| change::next(engine, &h.form, h.change.as_ref()) == Next::Keep)
            && self.heeded.as_ref() == told
    }

    /// Whether the engine in force is to stand still, because another one takes its place.
    pub fn rests(&self, engine: &EngineRef) -> bool {
        self.held.as_ref().is_some_and(|held| {
            let next = change::next(engine, &held.form, held.change.as_ref());
            change::rests(&next, &held.form, held.change.as_ref())
        })
    }

    /// Brings about what the hub wants, or what the watchdog found of it. Done again after an error, it goes on.
    pub async fn turn(&mut self, wish: &Wish<'_>) -> Result<Turn> {
        let (engine, told) = (&wish.assignment.engine, wish.told);
        if self.held.is_none() {
            self.held = self.load().await?;
        }
        let path = &wish.assignment.catalog.path;
        let Some(mut held) = self.held.clone() else {
            let bundle = self.obtain(&engine.bundle).await?;
            let first = InForce {
                bundle: Arc::new(bundle),
                form: Form::of(engine).following(path),
                change: None,
                since: None,
            };
            self.store(&first).await?;
            self.heeded = told.cloned();
            self.held = Some(first);
            return Ok(Turn::Done);
        };
        if held.form.kind == Some(engine.kind) && held.form.path != *path {
            // Another engine that takes its place follows another one; then the hub no longer names this.
            held.form.path.clone_from(path);
            self.store(&held).await?;
            self.held = Some(held.clone());
        }
        if let Some(told) = told.filter(|told| self.heeded.as_ref() != Some(told)) {
            self.heed(&mut held, told).await?;
            self.held = Some(held.clone());
        }
        self.heeded = told.cloned();
        let next = change::next(engine, &held.form, held.change.as_ref());
        let done = match next {
            Next::Keep => held,
            Next::Forget => {
                self.drop_change().await?;
                InForce {
                    change: None,
                    ..held
                }
            }
            Next::Begin { from } => self.begin(held, wish.assignment, from).await?,
            Next::Switch => {
                let (done, turn) = self.switch(held, wish).await?;
                self.held = Some(done);
                return Ok(turn);
            }
            Next::Back => {
                if let Some(what) = self.stills_on_the_way_back(&mut held, wish.rest).await? {
                    return Ok(Turn::Stills(what));
                }
                let back = self.back(held).await?;
                self.ending = None;
                back
            }
        };
        self.held = Some(done);
        Ok(Turn::Done)
    }

    async fn begin(&self, held: InForce, wished: &Assignment, from: Form) -> Result<InForce> {
        let engine = &wished.engine;
        let to = Form::of(engine).following(&wished.catalog.path);
        let replaces = held.form.is_another(&to);
        if replaces {
            self.may_replace(wished, &held.form).await?;
        }
        let bundle = if held.bundle.digest == to.bundle {
            Arc::clone(&held.bundle)
        } else {
            Arc::new(self.fetch(&to.bundle).await?)
        };
        let mut objects: Vec<change::Place> = change::places(&held.bundle).collect();
        objects.extend(change::places(&bundle));
        let both = change::is_of_both(&from, &held.form, &to, held.change.as_ref());
        if both {
            let extras = |kind| engine::extras(&Site::of(kind, &self.context.engines));
            let extras = [EngineKind::Flux, EngineKind::Argocd].map(extras);
            objects.extend(extras.iter().flatten().map(change::Place::of));
        }
        let known = held.change.as_ref();
        objects.extend(known.into_iter().flat_map(|c| c.objects.iter().cloned()));
        objects.sort();
        objects.dedup();
        info!(from = %from.bundle, to = %to.bundle, number = engine.change, "the engine changes");
        let change = Change {
            to: to.clone(),
            number: engine.change,
            since: clock::rfc3339(clock::now()),
            within: engine.within,
            both,
            objects,
            failed: None,
            from,
        };
        // What was before is in that ConfigMap already, unless it is what is in force.
        let before = (change.from == held.form).then(|| held.bundle.pack());
        if replaces {
            self.remember_both(&change, before, Some(bundle.pack()))
                .await?;
            return Ok(InForce {
                change: Some(change),
                ..held
            });
        }
        self.remember(&change, before).await?;
        self.context.faults.change(Stage::Remembered);
        let new = InForce {
            bundle,
            form: to,
            since: Some(change.since.clone()),
            change: Some(change),
        };
        self.store(&new).await?;
        self.context.faults.change(Stage::Stored);
        Ok(new)
    }

    /// Puts back what was before a change that failed.
    async fn back(&self, held: InForce) -> Result<InForce> {
        let change = held
            .change
            .context("nothing is known of what was in force before")?;
        let bundle = if change.from.bundle == held.bundle.digest {
            held.bundle
        } else {
            let packed = self.packed(CHANGE_MAP, BEFORE).await?;
            let kept = packed.and_then(|packed| self.unpack(&packed, &change.from.bundle).ok());
            Arc::new(match kept {
                Some(bundle) => bundle,
                // Somebody took it away; the hub has it, too.
                None => self.fetch(&change.from.bundle).await?,
            })
        };
        warn!(to = %change.from.bundle, "what was in force before the change comes back");
        let old = InForce {
            bundle,
            form: change.from.clone(),
            since: Some(clock::rfc3339(clock::now())),
            change: Some(change),
        };
        self.store(&old).await?;
        self.context.faults.change(Stage::Returned);
        Ok(old)
    }

    /// What the watchdog found.
    async fn heed(&self, held: &mut InForce, told: &Verdict) -> Result<()> {
        let Some(change) = held.change.as_mut().filter(|c| c.number == told.number()) else {
            return Ok(());
        };
        match told {
            Verdict::Works(_) => {
                info!(number = change.number, "the engine works with the change");
                self.drop_change().await?;
                self.context.faults.change(Stage::Dropped);
                held.change = None;
            }
            Verdict::Failed(_, why) => {
                warn!(number = change.number, why, "the change did not work");
                change.failed = Some(why.clone());
                self.remember(change, None).await?;
                self.context.faults.change(Stage::Failed);
            }
            Verdict::Trimmed(_) => {
                change.objects.clear();
                self.remember(change, None).await?;
            }
        }
        Ok(())
    }

    async fn drop_change(&self) -> Result<()> {
        let params = DeleteParams::default();
        match within(self.maps().delete(CHANGE_MAP, &params)).await {
            Ok(_) => Ok(()),
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(error).context("delete ConfigMap linesman-change"),
        }
    }

    async fn load(&self) -> Result<Option<InForce>> {
        let map = within(self.maps().get_opt(BUNDLE_MAP)).await;
        let Some(map) = map.context("read ConfigMap linesman-bundle")? else {
            return Ok(None);
        };
        let data = map.data.unwrap_or_default();
        // An agent before this one kept the digest alone.
        let form: Option<Form> = match data.get("form.json") {
            Some(text) => serde_json::from_str(text).ok(),
            None => data.get("digest").and_then(|digest| {
                Some(Form {
                    kind: None,
                    version: String::new(),
                    bundle: digest.parse().ok()?,
                    registry: None,
                    path: String::new(),
                })
            }),
        };
        let packed = map.binary_data.and_then(|mut d| d.remove(PACKED));
        let (Some(mut form), Some(packed)) = (form, packed) else {
            return Ok(None);
        };
        let Ok(bundle) = self.unpack(&packed.0, &form.bundle) else {
            return Ok(None);
        };
        form.version.clone_from(&bundle.version);
        form.kind = Some(bundle.engine);
        Ok(Some(InForce {
            bundle: Arc::new(bundle),
            form,
            change: self.recall().await?,
            since: data.get("since").cloned(),
        }))
    }

    async fn recall(&self) -> Result<Option<Change>> {
        let map = within(self.maps().get_opt(CHANGE_MAP)).await;
        let map = map.context("read ConfigMap linesman-change")?;
        let data = map.and_then(|m| m.data).unwrap_or_default();
        let text = data.get("change.json");
        // What cannot be read is no change: then the hub's wish begins it anew.
        Ok(text.and_then(|text| serde_json::from_str(text).ok()))
    }

    /// The bundle: from what is stored, or from the hub.
    async fn obtain(&self, digest: &Digest) -> Result<Bundle> {
        if let Some(packed) = self.packed(BUNDLE_MAP, PACKED).await?
            && let Ok(bundle) = self.unpack(&packed, digest)
        {
            return Ok(bundle);
        }
        self.fetch(digest).await
    }

    async fn fetch(&self, digest: &Digest) -> Result<Bundle> {
        let mut call = Call::get(format!("/v1/bundles/{digest}"));
        call.limit = crate::wire::api::MAX_BUNDLE;
        let answer = self.caller.call(&call).await.context("fetch the bundle")?;
        if !answer.status.is_success() {
            bail!("fetch the bundle: {}", answer.refusal());
        }
        let bundle = self.unpack(&answer.body, digest);
        let bundle = bundle.context("read the bundle")?;
        info!(%digest, bytes = answer.body.len(), "bundle fetched");
        Ok(bundle)
    }

    /// With its objects where the engine lives in this cluster.
    fn unpack(&self, packed: &[u8], digest: &Digest) -> Result<Bundle, UnpackError> {
        let bundle = Bundle::unpack(packed, digest)?;
        let namespace = self.context.engines.of(bundle.engine);
        Ok(bundle.within(namespace))
    }

    pub fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.context.kube.clone(), &self.context.namespace)
    }

    async fn packed(&self, map: &str, key: &str) -> Result<Option<Vec<u8>>> {
        let found = within(self.maps().get_opt(map)).await;
        let found = found.with_context(|| format!("read ConfigMap {map}"))?;
        let data = found.and_then(|m| m.binary_data);
        Ok(data.and_then(|mut d| d.remove(key)).map(|b| b.0))
    }

    async fn store(&self, held: &InForce) -> Result<()> {
        let form = serde_json::to_string(&held.form).context("write the form's JSON")?;
        let mut data = BTreeMap::from([
            ("digest".to_owned(), held.form.bundle.to_string()),
            ("form.json".to_owned(), form),
            (NAMESPACE.to_owned(), held.bundle.namespace.clone()),
        ]);
        data.extend(held.since.iter().map(|at| ("since".to_owned(), at.clone())));
        let binary = [(PACKED.to_owned(), ByteString(held.bundle.pack()))];
        self.write(BUNDLE_MAP, data, binary.into()).await
    }

    /// Keeps a change, with what was before it; `None` = that is kept already.
    async fn remember(&self, change: &Change, before: Option<Vec<u8>>) -> Result<()> {
        let after = self.packed(CHANGE_MAP, AFTER).await?;
        self.remember_both(change, before, after).await
    }

    async fn remember_both(
        &self,
        change: &Change,
        before: Option<Vec<u8>>,
        after: Option<Vec<u8>>,
    ) -> Result<()> {
        let before = match before {
            Some(packed) => Some(packed),
            None => self.packed(CHANGE_MAP, BEFORE).await?,
        };
        let text = serde_json::to_string(change).context("write the change's JSON")?;
        let data = BTreeMap::from([("change.json".to_owned(), text)]);
        let both = [(BEFORE, before), (AFTER, after)].into_iter();
        let binary = both.filter_map(|(key, packed)| Some((key.to_owned(), ByteString(packed?))));
        self.write(CHANGE_MAP, data, binary.collect()).await
    }

    async fn write(
        &self,
        name: &str,
        data: BTreeMap<String, String>,
        binary: BTreeMap<String, ByteString>,
    ) -> Result<()> {
        let part_of = ("app.kubernetes.io/part-of", "linesman");
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some([(part_of.0.to_owned(), part_of.1.to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some(data),
            binary_data: Some(binary),
            ..ConfigMap::default()
        };
        let params = PatchParams::apply(FIELD_MANAGER).force();
        within(self.maps().patch(name, &params, &Patch::Apply(map)))
            .await
            .with_context(|| format!("write ConfigMap {name}"))?;
        Ok(())
    }

    /// Somebody may have deleted or changed what is kept; without it the next start needs the hub.
    pub async fn keep(&self) {
        let Some(held) = &self.held else { return };
        let kept = async {
            let stored = self.packed(BUNDLE_MAP, PACKED).await?;
            let whole = |p: Vec<u8>| Bundle::unpack(&p, &held.form.bundle).is_ok();
            if stored.is_some_and(whole) {
                return Ok(());
            }
            warn!("ConfigMap linesman-bundle missing or changed; writing it again");
            self.store(held).await
        };
        if let Err(error) = kept.await {
            let error: anyhow::Error = error;
            warn!(error = format!("{error:#}"), "bundle not kept");
        }
    }
}

fn is_missing(error: &anyhow::Error) -> bool {
    let api = error.downcast_ref::<kube::Error>();
    matches!(api, Some(kube::Error::Api(status)) if status.code == 404)
}
