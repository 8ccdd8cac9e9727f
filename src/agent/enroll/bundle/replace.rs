//! One engine in the other's place: whether it may be, how the one in force comes to stand still, and the moment at which
//! the other one is in force.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{AFTER, CHANGE_MAP, Keeper, Turn, Wish};
use crate::agent::engine::{Policy, Site, argocd, flux};
use crate::agent::enroll::stored::within;
use crate::agent::gate::policy::CONFIG_MAP;
use crate::agent::observe::api;
use crate::agent::plan::change::{self, Change, Form};
use crate::agent::plan::{replace, window};
use crate::agent::replace::{hindered, still};
use crate::agent::{InForce, Rest};
use crate::bundle::{Bundle, Kind, ObjectId};
use crate::clock;
use crate::wire::api::{Assignment, EngineKind};

/// How far an engine has come in standing still.
enum Stands {
    Still,
    /// What was done about it last, if something was, and for people.
    Not(Option<replace::Next>, String),
}

impl Keeper {
    /// Before what was in force comes back, the engine that failed stands still; none = it does. Its Pods are waited for only
    /// so long: one on a node that is gone ends never. So are sync objects that the API server refuses to free: without rights
    /// and Pods nobody prunes by them, and they stay until they are free.
    pub(super) async fn stills_on_the_way_back(
        &mut self,
        held: &mut InForce,
        rest: Rest,
    ) -> Result<Option<String>> {
        let change = held.change.as_ref();
        let Some(change) = change.filter(|c| held.form.is_another(&c.from)) else {
            return Ok(None);
        };
        let since = self.ending.as_ref().map(|(since, _)| *since);
        let late = since.is_some_and(|since| since.elapsed() >= replace::ENDS);
        let stands = self.still(held, change, (rest, late)).await;
        let stands = stands.with_context(|| {
            let (from, to) = (held.form.words(), change.from.words());
            format!(
                "{to} does not come back before {from} stands still; if this goes on, mend what the API server refuses, or \
                 'linesman cluster readopt' gives the agent its rights again"
            )
        })?;
        let mut refused = None;
        if let Stands::Not(next, what) = stands {
            let now = Instant::now();
            let waits = |next| replace::waits(next, (since, late), now);
            let since = next.as_ref().and_then(waits);
            let pinned = |next| replace::refused(next, self.pinned, now);
            self.pinned = next.as_ref().and_then(pinned);
            let before = self.ending.take().map(|(_, left)| left);
            let left = match &next {
                Some(replace::Next::Ends(left)) => left.clone(),
                _ => before.unwrap_or_default(),
            };
            self.ending = since.map(|since| (since, left));
            let long = |since: Instant| since.elapsed() >= replace::REFUSED;
            match next {
                Some(replace::Next::Pinned(why)) if self.pinned.is_some_and(long) => {
                    refused = Some(why);
                }
                _ => return Ok(Some(what)),
            }
        }
        self.tell_left(held, (late, refused)).await?;
        Ok(None)
    }

    /// Notes why what was in force comes back beside something that is left of the engine that failed.
    async fn tell_left(
        &self,
        held: &mut InForce,
        (late, refused): (bool, Option<String>),
    ) -> Result<()> {
        let ending = self.ending.as_ref().filter(|_| late);
        let pods = ending.map(|(_, left)| {
            let seconds = replace::ENDS.as_secs();
            format!(
                "{left}: without rights they were not waited for longer than {seconds} s, look at them"
            )
        });
        let refused = refused.map(|why| {
            let seconds = replace::REFUSED.as_secs();
            format!("{why}; that was not waited for longer than {seconds} s, and it is not deleted before")
        });
        let texts: Vec<String> = pods.into_iter().chain(refused).collect();
        let Some(change) = held.change.as_mut().filter(|_| !texts.is_empty()) else {
            return Ok(());
        };
        for text in texts {
            warn!(text, "what was in force before comes back all the same");
            let why = change.failed.get_or_insert_default();
            let text = format!("; {text}");
            if !why.contains(&text) {
                why.push_str(&text);
            }
        }
        if let Some((since, _)) = ending {
            change.ending = Some(clock::rfc3339(clock::now() - since.elapsed()));
        }
        self.remember(change, None).await
    }

    /// Makes the engine in force stand still.
    async fn still(
        &self,
        held: &InForce,
        change: &Change,
        (rest, late): (Rest, bool),
    ) -> Result<Stands> {
        let kind = held.bundle.engine;
        let (from, to) = (held.form.words(), change.other(&held.form).words());
        let what = |what: &str| {
            let number = change.number;
            format!("change {number}: {to} takes the place of {from}: {what}")
        };
        if rest != Some((change.number, kind)) {
            let what = what("what is being done with it comes to its end");
            return Ok(Stands::Not(None, what));
        }
        let objects: Vec<ObjectId> = change::places(&held.bundle)
            .filter_map(|place| place.id())
            .collect();
        let site = Site::of(kind, &self.context.engines);
        let next = still(&self.context.kube, &site, &objects, late);
        Ok(match next.await? {
            replace::Next::Still => Stands::Still,
            next => {
                let words = what(&replace::words(&next));
                Stands::Not(Some(next), words)
            }
        })
    }

    /// Puts the other engine in force, as soon as the one that is stands still.
    pub(super) async fn switch(
        &self,
        mut held: InForce,
        wish: &Wish<'_>,
    ) -> Result<(InForce, Turn)> {
        let change = held.change.clone().context("no change is known")?;
        let began = clock::parse_rfc3339(&change.since);
        let late = began.is_some_and(|began| clock::now() - began >= change.limit());
        let rest = wish.rest;
        let left = match self.still(&held, &change, (rest, false)).await {
            Ok(Stands::Still) => match self.after(&change).await {
                Ok(bundle) if replace::is_unverified(wish.assignment, &bundle) => {
                    let why = replace::UNVERIFIED.to_owned();
                    held.change = Some(self.give_up(change, why).await?);
                    return Ok((held, Turn::Done));
                }
                Ok(bundle) => {
                    info!(to = %change.to.bundle, "the other engine is put in force");
                    let new = InForce {
                        bundle: Arc::new(bundle),
                        form: change.to.clone(),
                        since: Some(change.since.clone()),
                        change: Some(change),
                    };
                    self.store(&new).await?;
                    return Ok((new, Turn::Done));
                }
                Err(error) => Err(error),
            },
            Ok(Stands::Not(_, left)) => Ok(left),
            Err(error) => Err(error),
        };
        if !late {
            return left.map(|left| (held, Turn::Stills(left)));
        }
        let why = left.unwrap_or_else(|error| format!("{error:#}"));
        let why = format!("the engine in force did not stand still: {why}");
        held.change = Some(self.give_up(change, why).await?);
        Ok((held, Turn::Done))
    }

    /// The engine in force goes on; the other one never was.
    async fn give_up(&self, mut change: Change, why: String) -> Result<Change> {
        warn!(
            number = change.number,
            why, "no engine takes another's place"
        );
        change.failed = Some(why);
        self.remember(&change, None).await?;
        Ok(change)
    }

    /// The bundle that comes: as it was kept at the beginning, or from the hub where somebody took it away.
    async fn after(&self, change: &Change) -> Result<Bundle> {
        let packed = self.packed(CHANGE_MAP, AFTER).await?;
        let kept = packed.and_then(|p| self.unpack(&p, &change.to.bundle).ok());
        match kept {
            Some(bundle) => Ok(bundle),
            None => self.fetch(&change.to.bundle).await,
        }
    }

    /// Whether the root of an engine follows this path already: an agent of before led it there, and did not keep that.
    pub(super) async fn is_led_to(&self, kind: EngineKind, path: &str) -> Result<bool> {
        let site = Site::of(kind, &self.context.engines);
        let (root, name) = match kind {
            EngineKind::Flux => (Kind::Kustomization, flux::NAME),
            EngineKind::Argocd => (Kind::Application, argocd::ROOT),
        };
        let [_, at] = site.traits.follows;
        let roots = api(&self.context.kube, root, &site.namespace);
        let live = match within(roots.get_opt(name)).await {
            Err(error) if is_forbidden(&error) => None,
            read => read.context("read what the engine follows")?,
        };
        let follows = live
            .as_ref()
            .and_then(|live| live.data.pointer(at)?.as_str());
        let plain = |path: &str| path.trim_start_matches("./").trim_matches('/').to_owned();
        Ok(follows.is_some_and(|follows| plain(follows) == plain(path)))
    }

    /// An engine takes the place of another one only where nothing speaks against it; else nothing is touched.
    pub(super) async fn may_replace(&self, wished: &Assignment, in_force: &Form) -> Result<()> {
        let engine = &wished.engine;
        let now = clock::now();
        let owner = self.owner.borrow().as_ref().map(|p| p.mending);
        if owner.is_none() {
            bail!("{} waits until ConfigMap {CONFIG_MAP} is read", engine.kind);
        }
        let policy = Policy::of(&wished.policy, owner);
        if let Some(window) = window::paused(now, &policy) {
            bail!("{} {}", engine.kind, window.waits());
        }
        if window::careful(now, &policy).is_some() {
            bail!(
                "{} waits until more than safe heals are allowed",
                engine.kind
            );
        }
        if in_force.path.is_empty() {
            bail!(
                "what {} follows in the catalog was not kept before the hub named another path; set its engine back with \
                 'linesman cluster engine {} {} --replace --path PATH' once, with what it followed, then try again",
                in_force.words(),
                wished.cluster.name,
                engine.kind.other(),
            );
        }
        let kube = &self.context.kube;
        let site = |kind| Site::of(kind, &self.context.engines);
        let against = hindered(kube, &site(engine.kind), &site(engine.kind.other())).await?;
        match against {
            Some(against) => bail!("{against}"),
            None => Ok(()),
        }
    }
}

fn is_forbidden(error: &anyhow::Error) -> bool {
    let api = error.downcast_ref::<kube::Error>();
    matches!(api, Some(kube::Error::Api(status)) if status.code == 403)
}
