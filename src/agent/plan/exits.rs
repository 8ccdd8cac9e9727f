//! Controllers that end again and again and come up in between (F6, F8): the kubelet backs off for a moment only, and
//! whoever looks at any other moment finds them at work.

use std::mem;

use time::{Duration, OffsetDateTime};

use super::fault::Class;
use super::find::Finding;
use super::health::pods_of;
use super::state::{History, Observed, Pod};
use crate::agent::engine::Install;

/// So many failures of one Pod within [`WINDOW`] are a fault.
const MANY: usize = 3;
const WINDOW: Duration = Duration::minutes(10);
/// The same of those for want of memory.
const MEMORY: Duration = Duration::minutes(15);
/// So many are remembered of a Pod.
const KEPT: usize = 8;
const OUT_OF_MEMORY: &str = "OOMKilled";

/// What is remembered of a Pod. One that was restarted by being deleted is another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exits {
    /// How often the kubelet had restarted its containers when it was looked at last.
    pub restarts: i32,
    /// When its last failures were seen, oldest first, and whether each was for want of memory.
    pub failed: Vec<(OffsetDateTime, bool)>,
}

impl Exits {
    /// The same at a later look. How long ago the failures before the first look were is not known.
    fn goes_on(mut self, now: OffsetDateTime, pod: &Pod) -> Self {
        let more = usize::try_from(pod.restarts.saturating_sub(self.restarts)).unwrap_or(0);
        let failed = pod.ended.as_ref().filter(|(code, _)| *code != 0);
        if let Some((_, why)) = failed {
            let one = (now, why == OUT_OF_MEMORY);
            self.failed.extend(std::iter::repeat_n(one, more.min(KEPT)));
        }
        let surplus = self.failed.len().saturating_sub(KEPT);
        self.failed.drain(..surplus);
        self.failed.retain(|(at, _)| now - *at < MEMORY);
        self.restarts = pod.restarts;
        self
    }

    pub(super) fn times(&mut self) -> impl Iterator<Item = &mut OffsetDateTime> {
        let Self {
            restarts: _,
            failed,
        } = self;
        failed.iter_mut().map(|(at, _)| at)
    }
}

impl History {
    /// Notes how often the Pods of the install's controllers have failed.
    pub(super) fn saw_exits(
        &mut self,
        now: OffsetDateTime,
        install: &Install,
        observed: &Observed,
    ) {
        let mut before = mem::take(&mut self.exits);
        let pods = install
            .workloads()
            .flat_map(|id| pods_of(observed, &id.name));
        let pods = pods.filter(|pod| !pod.uid.is_empty());
        let noted = pods.map(|pod| {
            let fresh = Exits {
                restarts: pod.restarts,
                failed: Vec::new(),
            };
            let exits = before.remove(&pod.uid).unwrap_or(fresh);
            (pod.uid.clone(), exits.goes_on(now, pod))
        });
        self.exits = noted.collect();
    }
}

/// Controllers that fail too often, where nothing else is said of them.
pub(super) fn failing(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    found: &mut Vec<Finding>,
) {
    for id in install.workloads() {
        let there = observed
            .objects
            .get(id)
            .is_some_and(|l| l.deleting.is_none());
        let said = often(now, observed, history, (&id.name, None)).filter(|_| there);
        let Some((class, text)) = said else {
            continue;
        };
        let mut named = found.iter_mut().filter(|f| f.object == *id);
        match named.next() {
            None => found.push(Finding::new(class, id, text)),
            // That is between two of them.
            Some(only) if only.class == Class::NotAvailable => {
                *only = Finding::new(class, id, text);
            }
            Some(_) => {}
        }
    }
}

/// Whether a Pod of a controller has failed too often lately, and after it was `changed`.
pub(super) fn often(
    now: OffsetDateTime,
    observed: &Observed,
    history: &History,
    (controller, changed): (&str, Option<OffsetDateTime>),
) -> Option<(Class, String)> {
    pods_of(observed, controller).find_map(|pod| {
        let failed = &history.exits.get(&pod.uid)?.failed;
        let within = |window: Duration, memory: bool| {
            let of_late = |at: OffsetDateTime| now - at < window && Some(at) > changed;
            let fits =
                |(at, of_memory): &&(OffsetDateTime, bool)| of_late(*at) && (*of_memory || !memory);
            failed.iter().filter(fits).count() >= MANY
        };
        let (class, window) = if within(MEMORY, true) {
            (Class::OomKilled, MEMORY)
        } else if within(WINDOW, false) {
            (Class::CrashLoop, WINDOW)
        } else {
            return None;
        };
        let (code, why) = pod.ended.clone().unwrap_or_default();
        Some((
            class,
            format!(
                "failed {MANY} times or more within {} min; exit code {code} ({why}), {} restarts",
                window.whole_minutes(),
                pod.restarts
            ),
        ))
    })
}

#[cfg(test)]
mod tests;
