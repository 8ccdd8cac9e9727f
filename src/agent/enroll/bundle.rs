//! The bundle in force and, over a change of it, the one before: ConfigMaps `linesman-bundle` and `linesman-change`.
//!
//! Whatever a change may come to is written before it is begun, so that an agent that is killed at any point goes on
//! with it, or goes back.

mod maps;
mod replace;

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::Context;
use crate::agent::caller::{Call, Caller};
use crate::agent::engine::{self, Site};
use crate::agent::fault::Stage;
use crate::agent::gate::policy::Policy;
use crate::agent::plan;
use crate::agent::plan::change::{self, Change, Form, Next};
use crate::agent::{InForce, Rest, Verdict};
use crate::bundle::{Bundle, UnpackError};
use crate::clock;
use crate::manifests::{BUNDLE_MAP, CHANGE_MAP};
use crate::wire::api::{Assignment, EngineKind, EngineRef};
use crate::wire::id::Digest;
use maps::{AFTER, BEFORE};
pub(super) use maps::{NAMESPACE, PACKED};

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
    /// Since when the API server refuses to free its sync objects, on the way back.
    pinned: Option<Instant>,
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
            pinned: None,
        }
    }

    /// What is in force, as far as it is known.
    pub fn held(&self) -> Option<&InForce> {
        self.held.as_ref()
    }

    /// Whether [`Self::turn`] has nothing to do.
    pub fn is_settled(&self, engine: &EngineRef, told: Option<&Verdict>) -> bool {
        let held = self.held.as_ref();
        let keeps = |h: &InForce| {
            change::next(engine, &h.form, h.change.as_ref()) == Next::Keep
                && (h.form.kind != Some(engine.kind) || !h.form.path.is_empty())
        };
        held.is_some_and(keeps) && self.heeded.as_ref() == told
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
        let path = &wish.assignment.catalog.path;
        if self.held.is_none() {
            let mut kept = self.load().await?;
            let differs = |h: &InForce| h.form.kind == Some(engine.kind) && h.form.path != *path;
            if let Some(kept) = kept.as_mut().filter(|kept| differs(kept))
                && self.is_led_to(engine.kind, path).await?
            {
                kept.form.path.clear();
            }
            self.held = kept;
        }
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
        if held.form.kind == Some(engine.kind) && held.form.path.is_empty() {
            // An agent of before kept none, or not the last one. What is known stays, whatever the hub names: there the engine would prune.
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
                (self.ending, self.pinned) = (None, None);
                back
            }
        };
        self.held = Some(done);
        Ok(Turn::Done)
    }

    async fn begin(&self, held: InForce, wished: &Assignment, from: Form) -> Result<InForce> {
        let engine = &wished.engine;
        let known = held.change.as_ref();
        let path = change::follows(engine.kind, &held.form, known, &wished.catalog.path);
        let to = Form::of(engine).following(path);
        let replaces = held.form.is_another(&to);
        if replaces {
            self.may_replace(wished, &held.form).await?;
        }
        let bundle = if held.bundle.digest == to.bundle {
            Arc::clone(&held.bundle)
        } else {
            Arc::new(self.fetch(&to.bundle).await?)
        };
        // Another version of the same engine, too: a field that its projects do not have is dropped without a word.
        if plan::replace::is_unverified(wished, &bundle) {
            bail!("{}", plan::replace::UNVERIFIED);
        }
        let both = change::is_of_both(&from, &held.form, &to, known);
        let extras = if both {
            let extras = |kind| engine::extras(&Site::of(kind, &self.context.engines));
            [EngineKind::Flux, EngineKind::Argocd].map(extras).concat()
        } else {
            Vec::new()
        };
        let objects = change::all_places([&held.bundle, &bundle], &extras, known);
        info!(from = %from.bundle, to = %to.bundle, number = engine.change, "the engine changes");
        let change = Change {
            to: to.clone(),
            number: engine.change,
            since: clock::rfc3339(clock::now()),
            within: engine.within,
            both,
            objects,
            failed: None,
            ending: None,
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
        let engine = held.bundle.engine;
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
        let mut form = change.from.clone();
        // An agent of before kept neither engine nor path, or led the engine elsewhere since: back there it would prune.
        form.kind = Some(bundle.engine);
        if engine == bundle.engine && !held.form.path.is_empty() {
            form.path = held.form.path;
        }
        let old = InForce {
            bundle,
            form,
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

    /// Somebody may have deleted or changed what is kept; without it the next start needs the hub. Whether it is there now.
    pub async fn keep(&self) -> bool {
        let Some(held) = &self.held else {
            return true;
        };
        let kept = async {
            let stored = self.packed(BUNDLE_MAP, PACKED).await?;
            let whole = |p: Vec<u8>| Bundle::unpack(&p, &held.form.bundle).is_ok();
            if stored.is_some_and(whole) {
                return Ok(());
            }
            warn!("ConfigMap linesman-bundle missing or changed; writing it again");
            self.store(held).await
        };
        let kept: Result<()> = kept.await;
        if let Err(error) = &kept {
            warn!(error = format!("{error:#}"), "bundle not kept");
        }
        kept.is_ok()
    }
}

#[cfg(test)]
mod tests;
