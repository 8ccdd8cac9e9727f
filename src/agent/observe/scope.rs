//! One list and watch, and what it makes known.

mod astray;
mod events;
mod list;
mod starts;

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use kube::api::{Api, DynamicObject, WatchEvent, WatchParams};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::found::Newer;
use super::{View, found};
use crate::agent::engine::Install;
use crate::agent::plan::state::Answer;
use crate::bundle::{Kind, ObjectId};
use crate::clock;
use list::Listed;
use starts::{End, Starts};

/// A full list this often where no bookmark comes, with which the API server says about once a minute that a watch told all there was:
/// <https://kubernetes.io/docs/reference/using-api/api-concepts/#watch-bookmarks>. With the list's own time it is less than
/// `plan::find::FRESH`.
const RELIST: Duration = Duration::from_secs(66);
/// The API server closes watches by itself after 290 s; it is asked to, so that both ends agree.
const WATCH_SECONDS: u32 = 290;
/// A watch may say nothing for so long where the API server sends bookmarks; where it does not, for the server's own time and a little
/// more. After that its connection is dead, which nobody says: a node that is gone closes none.
const SILENT: Duration = Duration::from_secs(90);
const OVERDUE: Duration = Duration::from_secs(295);
const CALL: Duration = Duration::from_secs(20);
/// A full list this often, whatever the watch says; also of what is far from sudden.
const SELDOM: Duration = Duration::from_mins(5);

pub(super) struct Scope {
    pub(super) what: What,
    pub(super) api: Api<DynamicObject>,
    pub(super) selector: Selector,
    /// Objects that are kept; for children those that are none.
    pub(super) wanted: BTreeSet<ObjectId>,
    /// The engine's namespace.
    pub(super) home: String,
    /// What lets the agent list here, where that comes and goes: the engine's namespace and the binding in it.
    pub(super) rights: Vec<ObjectId>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    Objects(Kind),
    /// Sync objects below the root.
    Children(Kind),
    /// What other controllers may be asked with.
    Witnesses(Kind),
    Pods,
    /// Leases of the engine's controllers; listed only, for they change all the time.
    Leases,
    /// Controllers of another install of the engine; listed only.
    Elsewhere,
}

#[derive(Debug, Clone)]
pub(super) enum Selector {
    All,
    Field(String),
    Label(String),
}

impl Scope {
    /// All that the API has, for which no right is waited for.
    pub(super) fn of(what: What, api: Api<DynamicObject>, install: &Install) -> Self {
        Self {
            what,
            api,
            selector: Selector::All,
            wanted: BTreeSet::new(),
            home: install.namespace.clone(),
            rights: Vec::new(),
        }
    }

    pub(super) async fn run(self, view: View, stop: CancellationToken) {
        stop.run_until_cancelled(self.observe(&view)).await;
    }

    async fn observe(&self, view: &View) {
        let mut place = Place::new(Instant::now());
        loop {
            if Instant::now() >= place.relist_at && !self.relist(view, &mut place).await {
                continue;
            }
            let due = self.due(view, place.relist_at, place.wide);
            if self.turn(view, &mut place, due).await == Some(true) {
                // Not beside the watch: the next one goes on from that list.
                place.events = None;
                place.relist_at = Instant::now();
            }
        }
    }

    /// Until something is `done`, or the watch has told something or is begun. What it tells is taken in at once.
    async fn turn<T>(
        &self,
        view: &View,
        place: &mut Place,
        done: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::select! {
            done = done => Some(done),
            event = next(&mut place.events), if place.hears() => {
                self.hear(view, place, event).await;
                None
            }
            () = sleep_until(place.silent_at), if place.hears() => {
                debug!(what = ?self.what, "watch is silent");
                // Nor does a server send any where nothing happens that it hears of.
                place.marks = false;
                place.ended(End::Broken);
                None
            }
            () = sleep_until(place.starts.next), if self.begins(place) => {
                self.begin(view, place).await;
                None
            }
        }
    }

    /// None = the usual end of a watch: the next one goes on where it stopped.
    async fn hear(
        &self,
        view: &View,
        place: &mut Place,
        event: Option<kube::Result<WatchEvent<DynamicObject>>>,
    ) {
        match event {
            Some(Ok(WatchEvent::Added(live) | WatchEvent::Modified(live))) => {
                place.note(&live, true);
                place.at(self.changed(view, live, place.floor));
            }
            Some(Ok(WatchEvent::Deleted(gone))) => self.called_gone(view, place, gone).await,
            Some(Ok(WatchEvent::Bookmark(mark))) => {
                place.marks = true;
                place.at(Some(mark.metadata.resource_version));
                if place.wide || !self.is_deaf(&view.0.borrow()) {
                    found::confirmed(self.what, view);
                    place.relist_at = spread(self.every()).min(place.whole_by);
                }
            }
            Some(Ok(WatchEvent::Error(status))) => place.ended(End::of(&status)),
            Some(Err(error)) => place.ended(End::of_error(&error)),
            None => place.ended(End::Closed),
        }
    }

    /// Whether a watch is to be begun, as soon as it may be.
    fn begins(&self, place: &Place) -> bool {
        let watches = !matches!(self.what, What::Leases | What::Elsewhere);
        watches && place.events.is_none() && place.resume.is_some()
    }

    /// Begins the watch; it goes on where the last one stopped.
    async fn begin(&self, view: &View, place: &mut Place) {
        let Some(resume) = &place.resume else {
            return;
        };
        place.wide = place.wide && self.is_deaf(&view.0.borrow());
        let params = self.watch_params(place.wide);
        match timeout(CALL, self.api.watch(&params, resume)).await {
            Ok(Ok(events)) => {
                place.events = Some(events.boxed());
                place.starts.begun(Instant::now());
                place.listen();
            }
            Ok(Err(error)) => {
                debug!(what = ?self.what, %error, "watch failed");
                place.ended(End::of_error(&error));
            }
            Err(_) => place.ended(End::Broken),
        }
    }

    /// Whether the watch is heard beside a list: one that goes on from what was told last, or else it would tell what follows from
    /// what only the list knows. The lists of the install's own objects are short, and wait for the begin of none.
    fn follows(&self, place: &Place) -> bool {
        let children = matches!(self.what, What::Children(_));
        place.events.is_some() || children && self.begins(place)
    }

    /// The list, beside the watch: its pages may take minutes, and somebody deletes a hundred objects in a second.
    async fn listed(&self, view: &View, place: &mut Place) -> Listed {
        if !self.follows(place) {
            return self.list(view).await;
        }
        place.newer = Some(Newer::default());
        let mut list = pin!(self.list(view));
        loop {
            if let Some(listed) = self.turn(view, place, &mut list).await {
                return listed;
            }
        }
    }

    /// Whether the watch can go on from here.
    async fn relist(&self, view: &View, place: &mut Place) -> bool {
        place.failures = place.failures.saturating_add(1);
        let (follows, told) = (self.follows(place), place.told());
        let listed = self.listed(view, place).await;
        let newer = place.newer.take().unwrap_or_default();
        match listed {
            Listed::Whole(found, version) => {
                let at: u64 = version.parse().unwrap_or_default();
                // The lists are as of now, and never of a time before what was told already.
                let undone = at > 0 && at < told || found.belies(&view.0.borrow(), at);
                if undone {
                    warn!(what = ?self.what, told, at, "the API server has an earlier state than it had; what was known gives way");
                    found.put_anew(view);
                } else {
                    found.put_beside(view, Answer::Whole, &newer.after(at));
                }
                if let What::Objects(kind) = self.what {
                    found::listed(view, kind, at);
                }
                place.floor = at;
                place.failures = 0;
                place.whole_by = spread(SELDOM);
                if undone {
                    // It would wait for numbers that come again only after many other changes.
                    place.events = None;
                }
                if undone || !follows {
                    place.resume = Some(version);
                    place.wide = self.is_deaf(&view.0.borrow());
                }
                // A watch that lost its place meanwhile goes on from another list, which is due then.
                if place.resume.is_some() {
                    place.relist_at = spread(self.every());
                }
                return true;
            }
            Listed::Unserved => {
                (place.events, place.resume) = (None, None);
                let wait = match (self.optional(), place.failures) {
                    (true, _) => RELIST,
                    (false, ..60) => Duration::from_secs(1),
                    (false, _) => Duration::from_secs(5),
                };
                place.relist_at = Instant::now() + wait;
            }
            Listed::Failed(least) => {
                let wait = Duration::from_millis(500) * 2_u32.pow(place.failures.min(4));
                let wait = wait.mul_f64(0.5 + clock::unit() / 2.0).max(least);
                place.relist_at = Instant::now() + wait;
                if place.events.is_some() || follows && place.resume.is_some() {
                    return true;
                }
            }
        }
        sleep_until(place.relist_at).await;
        false
    }

    fn optional(&self) -> bool {
        match self.what {
            What::Objects(kind) => kind.optional(),
            // An older version of the engine has some of them in an older version only, and an adoption YAML may not give the
            // right to see them.
            What::Leases | What::Elsewhere | What::Witnesses(_) => true,
            // An older version of the engine has some of them in an older version only.
            What::Children(kind) => kind.is_source(),
            What::Pods => false,
        }
    }

    fn every(&self) -> Duration {
        match self.what {
            What::Elsewhere => SELDOM,
            // Many of them are large, and the watch tells what matters of them.
            What::Children(kind) if kind.is_source() => SELDOM,
            What::Objects(_)
            | What::Children(_)
            | What::Witnesses(_)
            | What::Pods
            | What::Leases => RELIST,
        }
    }

    fn watch_params(&self, wide: bool) -> WatchParams {
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        match &self.selector {
            _ if wide => params,
            Selector::All => params,
            Selector::Field(text) => params.fields(text),
            Selector::Label(text) => params.labels(text),
        }
    }

    fn id(&self, kind: Kind, live: &DynamicObject) -> Option<ObjectId> {
        let namespace = live.metadata.namespace.as_deref().unwrap_or_default();
        let id = ObjectId::new(kind, namespace, live.metadata.name.as_deref()?);
        let listed = self.wanted.contains(&id);
        let kept = match self.what {
            What::Objects(_) | What::Pods | What::Leases | What::Elsewhere => listed,
            What::Children(_) | What::Witnesses(_) => !listed,
        };
        kept.then_some(id)
    }
}

/// After about so long; all of an agent's lists are not at one moment.
fn spread(every: Duration) -> Instant {
    Instant::now() + every + every.mul_f64(clock::unit() / 20.0)
}

type Events = BoxStream<'static, kube::Result<WatchEvent<DynamicObject>>>;

/// What a watch tells next; none = it has ended.
async fn next(events: &mut Option<Events>) -> Option<kube::Result<WatchEvent<DynamicObject>>> {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}

/// How far one scope has come.
struct Place {
    relist_at: Instant,
    /// No bookmark puts the next list off beyond this.
    whole_by: Instant,
    /// Events up to this resourceVersion are older than the last list.
    floor: u64,
    /// Where the next watch goes on; none = only a list tells.
    resume: Option<String>,
    events: Option<Events>,
    /// Whether the watch is one of all that the API has, beyond what is selected.
    wide: bool,
    /// When the watch counts as dead, unless it tells something before.
    silent_at: Instant,
    /// Whether the API server sends bookmarks: one came, and no watch was silent since.
    marks: bool,
    /// What the watch has told of since the list began that runs now beside it.
    newer: Option<Newer>,
    starts: Starts,
    /// Lists in a row that told nothing.
    failures: u32,
}

impl Place {
    /// Nothing is known yet.
    fn new(now: Instant) -> Self {
        Self {
            relist_at: now,
            whole_by: now,
            floor: 0,
            resume: None,
            events: None,
            wide: false,
            silent_at: now,
            marks: false,
            newer: None,
            starts: Starts::new(now),
            failures: 0,
        }
    }

    /// Whether the watch may be read on.
    fn hears(&self) -> bool {
        self.events.is_some() && !self.newer.as_ref().is_some_and(Newer::is_full)
    }

    /// From now on the watch has its time to tell something.
    fn listen(&mut self) {
        let silence = if self.marks { SILENT } else { OVERDUE };
        self.silent_at = Instant::now() + silence;
    }

    /// Up to which resourceVersion the server has told what there is.
    fn told(&self) -> u64 {
        let resume = self.resume.as_deref().and_then(|at| at.parse().ok());
        self.floor.max(resume.unwrap_or_default())
    }

    fn note(&mut self, live: &DynamicObject, there: bool) {
        if let Some(newer) = &mut self.newer {
            newer.note(live, there);
        }
    }

    /// There is no watch now.
    fn ended(&mut self, end: End) {
        self.events = None;
        self.starts.over(end, clock::unit(), Instant::now());
        match end {
            End::Closed | End::Broken => {}
            // As late as the next watch, for which it is.
            End::Lost => {
                self.resume = None;
                self.relist_at = self.starts.next;
            }
        }
    }

    fn at(&mut self, version: Option<String>) {
        self.starts.heard();
        self.listen();
        if version.is_some() {
            self.resume = version;
        }
    }
}

#[cfg(test)]
mod tests;
