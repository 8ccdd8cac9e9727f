//! Writes that are no heals: questions to the engine whether it works, and permissions to delete that are over.

use std::collections::BTreeSet;

use time::{Duration, OffsetDateTime};

use super::fault::Class;
use super::state::{History, Object, Observed, OwnLook, Probe};
use super::steps::{Action, Step};
use super::window::{counts, until};
use super::{argocd, doubt, health, latent, quarantine};
use crate::agent::engine::Install;
use crate::agent::engine::argocd::PROJECT;
use crate::agent::engine::guard::{ALLOW_DELETE, is_guarded};
use crate::bundle::{Kind, ObjectId};
use crate::clock::parse_rfc3339;
use crate::wire::api::EngineKind;

/// Guarded objects whose permission to be deleted is over, or was never one.
pub fn locks(now: OffsetDateTime, install: &Install, observed: &Observed) -> Vec<Step> {
    let guarded = install.wanted.keys().filter(|id| {
        let live = observed.objects.get(*id);
        let word = live
            .filter(|l| l.deleting.is_none())
            .and_then(|l| l.annotation(ALLOW_DELETE));
        let holds = live.is_some_and(|l| until(now, l, ALLOW_DELETE).is_some());
        is_guarded(id, [&install.source, &install.sync]) && word.is_some() && !holds
    });
    let step = |id: &ObjectId| Step {
        action: Action::Lock,
        target: id.clone(),
        cause: None,
    };
    guarded.map(step).collect()
}

/// Why a permission to delete an object is taken away, where it is not just over: whoever gave it waits for what it allows.
pub fn refused_word(now: OffsetDateTime, id: &ObjectId, live: &Object) -> Option<String> {
    let word = live.annotation(ALLOW_DELETE)?;
    let why = match parse_rfc3339(word) {
        None => "is no time as in RFC 3339 (UTC)",
        Some(at) if at > now && !counts(now, at) => "is more than a day ahead",
        Some(_) => return None,
    };
    let word: String = word.chars().take(100).collect();
    Some(format!(
        "{id}: {ALLOW_DELETE}={word} {why}; it allows nothing and was taken away"
    ))
}

/// Between two questions to an Application below the root, and how many are asked at once.
const MISLED: Duration = Duration::seconds(30);
const MAX_MISLED: usize = 16;
/// How long a question waits for its answer before it is asked again, should the root have lost it.
const SPACING: Duration = Duration::seconds(5);
/// A controller that Git changed has its new Pod by then.
pub(super) const ROLLED: Duration = Duration::seconds(20);
/// For so long after such a change its answers are looked for every [`SPACING`].
const WATCHED: Duration = Duration::minutes(5);

/// An answer is missed from then on.
const LATE: Duration = health::WEDGED.saturating_add(Duration::SECOND);

/// For so long after the hub named a head Argo CD is asked for it again where it took the question and has not seen the head: a look that
/// began before ends with the annotation taken away, whoever set it meanwhile.
const SWALLOWED: Duration = Duration::minutes(1);

/// Keys that a Pod mounts reach it a moment after they were written, or in a minute or two.
const MOUNTED: Duration = Duration::minutes(2);
/// By then Argo CD has looked at every Application with the keys that one has to have signed with. What it made of their commits
/// before it says nothing of any signature.
const VERIFIES: Duration = Duration::minutes(5);
/// Until then Argo CD is asked so often even though it answers: for three minutes it keeps to itself that it cannot read the
/// catalog (`--repo-error-grace-period-seconds`), and it looks by itself after as long.
const UNSURE: Duration = Duration::seconds(30);

/// Probes that are due: after a heal, now and then, when the engine should have looked by itself and has not, when the agent
/// reads the catalog again, and when the hub says that it moved.
pub fn probes(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
) -> (Vec<Step>, OffsetDateTime) {
    let every = install.policy.probe_every;
    let (Some(source), Some(sync)) = (
        observed.objects.get(&install.source),
        observed.objects.get(&install.sync),
    ) else {
        return (Vec::new(), now + every);
    };
    let argocd = install.traits.kind == EngineKind::Argocd;
    let changed = quarantine::changed(install, observed);
    let mounts = history.host_keys.is_some_and(|at| now - at < MOUNTED);
    let due = |live: &Object| {
        let Some(probe) = live.probe() else {
            return true;
        };
        // The Pod before a commit may have answered what was asked meanwhile: the new one is asked, too.
        let rolled = changed.map(|at| at + ROLLED).filter(|at| *at <= now);
        let written = history.last_write.max(changed).max(rolled);
        let unproven = written.is_some_and(|at| probe.sent < at);
        let in_vain = argocd::stumbled(live) || argocd::lost_question(live);
        let in_vain = in_vain && now - probe.sent >= SPACING;
        // What a clock that is far behind wrote is always so old; once it was asked it has its time.
        let stale = argocd::is_stale(live, now) && now - probe.sent >= argocd::AGAIN;
        let old = now - probe.sent >= every || stale || in_vain;
        // The clock was set back: it would prove what is yet to be done, and be missed by nobody.
        let ahead = probe.sent > now;
        // The look that was asked for may have come before the keys: by itself Argo CD looks a minute later.
        let unread = !probe.answered || argocd::doubts_host(live) || argocd::doubts_signer(live);
        let pause = if argocd && !unread { UNSURE } else { SPACING };
        let unread = mounts && (unread || argocd) && now - probe.sent >= pause;
        let again = by_own_look(install, observed, live, probe) || doubt::asks(now, observed, live);
        unproven || ahead || unread || again || old && is_over(live, probe)
    };
    let spaced = |id: &ObjectId| {
        let last = history.nudged.get(id);
        last.is_none_or(|at| now - *at >= SPACING)
    };
    let up = health::can_answer(install, observed);
    let unfetched = unfetched(install, observed, history);
    let ordered = quarantine::unlooked(now, install, observed, history);
    let asked = history.nudged.get(&install.source).copied();
    let moved = moved(now, source, asked, [unfetched, ordered]);
    let answered = source.probe().is_some_and(|p| p.answered);
    let fetched = answered && (argocd || source.is_true("Ready"));
    // What keeps source-controller from Git keeps kustomize-controller from no answer.
    let failed = || source.condition("Ready").is_some_and(|c| c.0 == "False");
    let over = fetched || answered && failed();
    let asked = if (moved.is_some() || up && due(source)) && spaced(&install.source) {
        Some(&install.source)
    } else if up && over && due(sync) && spaced(&install.sync) {
        Some(&install.sync)
    } else {
        None
    };
    let mut steps: Vec<Step> = asked.map(nudge).into_iter().collect();
    if let Some(told) = moved {
        steps.extend(below(install, observed, (history, told)));
    }
    let canaries: Vec<&ObjectId> = canaries(install, observed, due).filter(|_| up).collect();
    let answers = |id: &ObjectId| health::answers(install, observed, &install.controller(id));
    let asked = canaries.iter().filter(|id| spaced(id) && answers(id));
    steps.extend(asked.map(|id| nudge(id)));
    let project = ObjectId::new(Kind::AppProject, &install.namespace, PROJECT);
    if up && observed.objects.contains_key(&project) {
        let reached = fetched && !latent::awaits_network(install, observed);
        let moment = Moment::of((now, history), install, source, reached, every);
        steps.extend(misled(now, observed, history, moment));
    }
    let soonest = soonest(now, install, observed, history);
    let waiting = now + SPACING;
    let at = soonest.unwrap_or(waiting).max(now + Duration::seconds(1));
    let watched = changed.is_some_and(|at| is_watched(install, observed, now - at));
    let quiet = up && fetched && !due(source) && !due(sync) && canaries.is_empty();
    let told = ordered.is_some() || argocd && unfetched.is_some_and(|at| now - at < SWALLOWED);
    let quiet = quiet && moved.is_none() && !told && !watched && !mounts;
    (steps, if quiet { at } else { waiting })
}

/// Whether the answers are waited for, so long after a commit to the engine: silence is what shows that it did harm.
fn is_watched(install: &Install, observed: &Observed, since: Duration) -> bool {
    let questions = install.roots().chain(install.canaries());
    let mut questions = questions.filter_map(|id| observed.objects.get(id)?.probe());
    let answered = questions.all(|probe| probe.answered);
    since <= ROLLED || since < WATCHED && !answered
}

/// Whether nothing more comes of a question. Argo CD that took one away may have given up its look.
fn is_over(live: &Object, probe: Probe) -> bool {
    probe.answered || argocd::took_question(live)
}

/// Whether what the agent itself met since makes it ask: what failed for long the engine tries again ever later; and where the
/// agent is refused, what the engine says of that is told before anything is done about it.
fn by_own_look(install: &Install, observed: &Observed, live: &Object, probe: Probe) -> bool {
    let met = match observed.own_look {
        OwnLook::Read(own) => probe.sent < own.since && cannot_read(install, live),
        OwnLook::Refused(since) => probe.sent < since,
        OwnLook::Failed => false,
    };
    met && is_over(live, probe)
}

/// What other controllers are asked with, where that is due.
fn canaries<'a>(
    install: &'a Install,
    observed: &'a Observed,
    due: impl Fn(&Object) -> bool + 'a,
) -> impl Iterator<Item = &'a ObjectId> + 'a {
    install.canaries().filter(move |id| {
        let live = observed.objects.get(*id);
        live.is_some_and(|live| live.deleting.is_none() && due(live))
    })
}

/// When the first of these is asked again, or its answer is missed.
fn soonest(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
) -> Option<OffsetDateTime> {
    let every = install.policy.probe_every;
    let asked = install.roots().chain(install.canaries());
    let asked = asked.filter_map(|id| {
        let live = observed.objects.get(id)?;
        let probe = live.probe()?;
        Some((probe, history.owed_since(id, live, probe)))
    });
    let asked: Vec<(Probe, OffsetDateTime)> = asked.collect();
    let again = asked.iter().map(|(probe, _)| probe.sent + every).min();
    let missed = asked
        .iter()
        .filter(|(probe, _)| !probe.answered)
        .map(|(_, owed)| *owed + LATE);
    // Argo CD should have looked by itself by then.
    let root = observed.objects.get(&install.sync);
    let stale = root.and_then(|root| argocd::stale_from(root));
    let stale = stale.map(|at| at + Duration::SECOND);
    let later = missed.chain(stale).filter(|at| *at > now);
    again.into_iter().chain(later).min()
}

/// Whether a root says that the Git host is away or does not let it in.
fn cannot_read(install: &Install, live: &Object) -> bool {
    let complaints = health::complaints(install, live);
    complaints.iter().any(|(class, _)| {
        matches!(
            class,
            Class::GitUnreachable | Class::KeyRevoked | Class::HostKeyMismatch
        )
    })
}

/// A new commit may mend what is held, and an order means what Git has by then; by itself an Application below the root looks minutes
/// later.
fn below(
    install: &Install,
    observed: &Observed,
    (history, told): (&History, OffsetDateTime),
) -> Vec<Step> {
    let holds = quarantine::holds(install, observed).into_values();
    let owners: BTreeSet<ObjectId> = holds.map(|held| held.owner).collect();
    let below = owners.iter().filter(|owner| {
        let asked = history.nudged.get(*owner).copied();
        **owner != install.sync && asked < Some(told)
    });
    below.map(nudge).collect()
}

fn nudge(id: &ObjectId) -> Step {
    Step {
        action: Action::Nudge,
        target: id.clone(),
        cause: None,
    }
}

/// What Applications below the root may not know yet.
#[derive(Clone, Copy)]
struct Moment {
    /// Host keys that were written a moment ago.
    mounts: bool,
    /// The Git host, as the root shows.
    reached: bool,
    /// Between two questions to one that was not misled.
    every: Duration,
    /// The same to one that refuses a commit for its signature; none = so does the root, or nobody has to sign but by people's word.
    unsigned: Option<Duration>,
}

impl Moment {
    fn of(
        (now, history): (OffsetDateTime, &History),
        install: &Install,
        root: &Object,
        reached: bool,
        every: Duration,
    ) -> Self {
        let signed = !install.catalog().signers.is_empty();
        let written = |within: Duration| history.host_keys.is_some_and(|at| now - at < within);
        let unsigned = if written(VERIFIES) { MISLED } else { every };
        Self {
            mounts: written(MOUNTED),
            reached,
            every,
            unsigned: (signed && !argocd::doubts_signer(root)).then_some(unsigned),
        }
    }
}

/// Applications that were looked at before their project was known, or the host's new keys, or the signers', at a head that nobody had
/// signed, or while the Git host or the repo-server was away: by themselves they are looked at again a minute later, or three.
fn misled<'a>(
    now: OffsetDateTime,
    observed: &'a Observed,
    history: &'a History,
    moment: Moment,
) -> impl Iterator<Item = Step> + 'a {
    let misled = observed.children.iter().filter(move |(id, child)| {
        let ago = history.nudged.get(*id).map(|at| now - *at);
        let pause = child.trouble.as_ref().and_then(|(kind, text)| {
            let class = argocd::class(kind, text);
            let host = moment.mounts && class == Some(Class::HostKeyMismatch);
            let refuses = class == Some(Class::SignatureFailed);
            let unsigned = moment.unsigned.filter(|_| refuses);
            // Its repository may be on another host, which is away for long.
            let git = matches!(
                class,
                Some(Class::GitUnreachable | Class::ArtifactUnreachable)
            );
            let away = moment.reached && git && latent::is_network(text);
            // The repo-server is the root's, too.
            let unserved = moment.reached && argocd::missed_server(text);
            if argocd::missed_project(text).is_some() || host || unserved {
                Some(MISLED)
            } else {
                unsigned.or_else(|| away.then_some(moment.every))
            }
        });
        let due = pause.is_some_and(|pause| ago.is_none_or(|ago| ago >= pause));
        due && id.kind == Kind::Application
    });
    misled.take(MAX_MISLED).map(|(id, _)| nudge(id))
}

/// When the hub named a head that the source has not fetched.
fn unfetched(install: &Install, observed: &Observed, history: &History) -> Option<OffsetDateTime> {
    let (head, told) = history.head.as_ref()?;
    let pointer = match install.traits.kind {
        EngineKind::Flux => "/status/artifact/revision",
        EngineKind::Argocd => "/status/sync/revision",
    };
    let source = observed.objects.get(&install.source);
    let fetched = source.map_or("", |source| source.text(pointer));
    (!fetched.ends_with(head.as_str())).then_some(*told)
}

/// When the source was told last of what it was not asked for since then, or in vain.
fn moved(
    now: OffsetDateTime,
    source: &Object,
    asked: Option<OffsetDateTime>,
    told: [Option<OffsetDateTime>; 2],
) -> Option<OffsetDateTime> {
    let took = argocd::took_question(source);
    let due = |told: &OffsetDateTime| {
        let in_vain = |asked| now - asked >= SPACING && now - *told < SWALLOWED && took;
        asked.filter(|at| at >= told).is_none_or(in_vain)
    };
    let [_, ordered] = told;
    let told = told.into_iter().flatten().filter(due).max()?;
    // What answers below the root may be a look that began before the order, too: it is asked again as often.
    Some(ordered.map_or(told, |_| told.max(now - SPACING)))
}

#[cfg(test)]
mod tests;
