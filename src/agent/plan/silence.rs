//! Since when a controller owes an answer.
//!
//! Each write of the agent's is asked about anew. Were the newest question the only one that counts, a controller that hangs would
//! be waited for as long as something is mended again and again; so it is the first one of those without an answer.

use time::{Duration, OffsetDateTime};

use super::find::known;
use super::probes::ROLLED;
use super::state::{History, Object, Observed, Probe};
use super::{argocd, health, latent, undecodable};
use crate::agent::engine::Install;
use crate::agent::engine::argocd::SKIP;
use crate::bundle::{Kind, ObjectId};
use crate::keys::sha256_hex;
use crate::wire::api::EngineKind;

/// A root or a canary whose controller owes an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    pub uid: String,
    /// When the first of the questions without an answer was asked, and later by the time in which none could be given.
    pub since: OffsetDateTime,
    /// When the last of them was asked.
    pub asked: OffsetDateTime,
    /// What of the object its controller alone writes, as it was: another one is a sign of life.
    pub said: String,
    /// When it was looked at last; none = by the agent before this one.
    pub seen: Option<OffsetDateTime>,
    /// Whether an answer could be given from then on.
    pub able: bool,
    /// When its controller was last seen to have taken a question of which no look came; none = it has taken none.
    pub taken: Option<OffsetDateTime>,
}

impl Silence {
    /// All of its times that have been.
    pub(super) fn times(&mut self) -> impl Iterator<Item = &mut OffsetDateTime> {
        let Self {
            uid: _,
            since,
            asked,
            said: _,
            seen,
            able: _,
            taken,
        } = self;
        [since, asked].into_iter().chain(seen).chain(taken)
    }

    /// The same as it is at a later look. `anew` = no Pod is left of those that were asked.
    fn goes_on(&self, now: OffsetDateTime, present: Self, anew: bool) -> Self {
        let lost = match self.seen {
            Some(seen) if !self.able => now - seen,
            Some(_) | None => Duration::ZERO,
        };
        let since = if self.said != present.said || anew && !present.able {
            now
        } else {
            self.since.saturating_add(lost).min(now)
        };
        Self {
            since,
            taken: present.taken.or(self.taken),
            ..present
        }
    }
}

impl History {
    /// Notes since when answers are owed, by roots and canaries. An answer ends that, as does another object in its place.
    pub(super) fn saw_silence(
        &mut self,
        now: OffsetDateTime,
        install: &Install,
        observed: &Observed,
    ) {
        let before = std::mem::take(&mut self.silent);
        let asked = install.roots().chain(install.canaries());
        let owed = asked.filter_map(|id| {
            let before = before.get(id);
            let Some(live) = observed.objects.get(id) else {
                let unknown = !known(now, observed, id.kind);
                return Some((id.clone(), before.filter(|_| unknown)?.clone()));
            };
            let before = before.filter(|silence| silence.uid == live.uid);
            let probe = live.probe();
            if probe.is_some_and(|probe| is_answered(now, id, live, probe)) {
                return None;
            }
            // What takes a question away answers none.
            let asked = match probe {
                Some(probe) => probe.sent,
                None => before?.asked,
            };
            let present = Silence {
                uid: live.uid.clone(),
                since: asked.min(now),
                asked,
                said: said(id, live),
                seen: Some(now),
                able: probe.is_some() && is_able(now, install, observed, (id, live)),
                taken: argocd::took_question(live).then_some(now),
            };
            let silence = match before {
                Some(before) => {
                    let anew = is_another_pod(install, observed, id, before.since);
                    before.goes_on(now, present, anew)
                }
                None => present,
            };
            Some((id.clone(), silence))
        });
        self.silent = owed.collect();
    }

    /// Since when the answer to a question that has none is owed.
    pub(super) fn owed_since(&self, id: &ObjectId, live: &Object, probe: Probe) -> OffsetDateTime {
        let silence = self.silent.get(id).filter(|s| s.uid == live.uid);
        silence.map_or(probe.sent, |silence| silence.since)
    }

    /// The same of a question that was asked after something was `changed`; none where there is no such one, or it has its answer.
    /// An earlier question counts as well, but from when a controller that was changed itself has its new Pod.
    pub(super) fn owed_after(
        &self,
        now: OffsetDateTime,
        (id, live): (&ObjectId, &Object),
        changed: Option<OffsetDateTime>,
    ) -> Option<OffsetDateTime> {
        let asked = live.probe().filter(|probe| Some(probe.sent) > changed);
        let probe = asked.filter(|probe| !is_answered(now, id, live, *probe))?;
        let owed = self.owed_since(id, live, probe);
        let settled = changed.map(|at| probe.sent.min(at + ROLLED));
        Some(settled.map_or(owed, |at| owed.max(at)))
    }

    /// Since when a question without an answer is left alone. Who took one before was at work, though that one's answer is owed on.
    pub(super) fn ignored_since(
        &self,
        id: &ObjectId,
        live: &Object,
        probe: Probe,
    ) -> OffsetDateTime {
        let owed = self.owed_since(id, live, probe);
        let silence = self.silent.get(id).filter(|s| s.uid == live.uid);
        let taken = silence.and_then(|silence| silence.taken);
        taken.map_or(owed, |at| at.max(owed))
    }
}

/// Whether its controller has shown since then that it is alive, be it by giving up.
pub(super) fn is_answered(now: OffsetDateTime, id: &ObjectId, live: &Object, probe: Probe) -> bool {
    let looked = || argocd::has_looked(live, probe, now) || argocd::gave_up(live);
    probe.answered || id.kind == Kind::Application && looked()
}

/// An answer to an earlier question is one, and so is progress.
fn said(id: &ObjectId, live: &Object) -> String {
    if id.kind == Kind::Application {
        // Of the rest a part of the controller writes that may work while the one that looks hangs.
        return live.text("/status/reconciledAt").to_owned();
    }
    let status = live.fields.get("status").map(ToString::to_string);
    sha256_hex(status.unwrap_or_default().as_bytes())
}

/// Whether nothing but the controller itself stands between the question and its answer.
fn is_able(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    (id, live): (&ObjectId, &Object),
) -> bool {
    let controller = install.controller(id);
    let up = match install.traits.kind {
        EngineKind::Flux => {
            health::answers(install, observed, &controller)
                && !health::is_led_by_former(now, observed, &controller)
        }
        EngineKind::Argocd => health::can_answer(install, observed),
    };
    let away = id.kind == Kind::GitRepository && latent::host_is_away(observed, live);
    let stopped = live.deleting.is_some() || live.annotation(SKIP) == Some("true");
    up && !away && !stopped && !undecodable::blinds(observed, id.kind)
}

/// Whether there is no Pod of its controller that has run since then.
fn is_another_pod(
    install: &Install,
    observed: &Observed,
    id: &ObjectId,
    since: OffsetDateTime,
) -> bool {
    let name = install.controller(id).name;
    let mut pods = health::pods_of(observed, &name);
    let there = pods.any(|pod| pod.running.or(pod.created).is_some_and(|at| at <= since));
    !there && !observed.pods_cut
}

#[cfg(test)]
mod tests;
