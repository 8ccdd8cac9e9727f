//! Argo CD's Redis, by what its controllers count of their own requests to it. A Redis that hangs takes connections and says
//! nothing on them: its Pod is ready, and what an Application says of it comes late, names no Redis, and goes when the
//! Application is asked to look anew. But a controller speaks with Redis every ten seconds whatever there is to do
//! (`controller/clusterinfoupdater.go`), and counts what became of it (`controller/metrics/metrics.go`).

use time::{Duration, OffsetDateTime};

use super::find::Finding;
use super::health::{is_silent, pods_of, works};
use super::state::Observed;
use super::{Class, Pod, argocd, children};
use crate::agent::engine::Install;
use crate::agent::engine::argocd::{PARAMS, REDIS};
use crate::bundle::{Kind, ObjectId};
use crate::clock::rfc3339;

/// So long no request of a controller was answered. A request waits for 3 s, four times, before it counts as failed: a Redis that
/// is started anew, or is slow for a moment, answers one meanwhile.
const MUTE: Duration = Duration::seconds(45);
/// As many have failed since.
const FAILED: u64 = 2;
/// What was counted longer ago than this says nothing of now.
const FRESH: Duration = Duration::seconds(60);

/// A controller's requests to Redis since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    pub answered: u64,
    pub failed: u64,
}

/// What is known of one controller's requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// The Pod's.
    pub uid: String,
    pub requests: Requests,
    /// When they were counted.
    pub at: OffsetDateTime,
    /// Until then one was answered now and then, or nothing is known.
    pub heard: OffsetDateTime,
    /// How many have failed since.
    pub failed: u64,
}

impl Tally {
    pub fn begin(uid: &str, requests: Requests, at: OffsetDateTime) -> Self {
        Self {
            uid: uid.to_owned(),
            requests,
            at,
            heard: at,
            failed: 0,
        }
    }

    /// With what was counted next. A process that is started anew counts from zero.
    #[must_use]
    pub fn next(&self, uid: &str, requests: Requests, at: OffsetDateTime) -> Self {
        let more = requests.failed.checked_sub(self.requests.failed);
        match more {
            Some(more) if self.uid == uid && requests.answered == self.requests.answered => Self {
                requests,
                at,
                failed: self.failed.saturating_add(more),
                ..self.clone()
            },
            _ => Self::begin(uid, requests, at),
        }
    }

    fn is_mute(&self) -> bool {
        self.at - self.heard >= MUTE && self.failed >= FAILED
    }
}

/// The counts that are of now.
fn fresh(now: OffsetDateTime, observed: &Observed) -> impl Iterator<Item = &Tally> {
    let all = observed.requests.iter().filter(move |(name, tally)| {
        let pod = observed.pods.get(*name);
        pod.is_some_and(|pod| pod.uid == tally.uid) && now - tally.at <= FRESH
    });
    all.map(|(_, tally)| tally)
}

/// Since about when no request of any controller that tells was answered. One alone may itself be what is cut off.
fn mute_since(now: OffsetDateTime, observed: &Observed) -> Option<OffsetDateTime> {
    let last = fresh(now, observed).map(|tally| tally.heard).max();
    last.filter(|_| fresh(now, observed).all(Tally::is_mute))
}

/// Whether a controller is answered by it.
pub(super) fn answers(now: OffsetDateTime, observed: &Observed) -> bool {
    fresh(now, observed).any(|tally| tally.failed == 0)
}

/// Whether the install's own answered a controller a moment ago; none = no controller tells, or they use another one.
pub(super) fn answered_lately(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
) -> Option<bool> {
    if elsewhere(install, observed).is_some() {
        return None;
    }
    let mut told = fresh(now, observed).peekable();
    told.peek()?;
    // A controller without a cluster of its own asks for nothing.
    let answered = |tally: &Tally| tally.requests.answered > 0 && tally.failed == 0;
    Some(told.any(|tally| answered(tally) && now - tally.heard <= FRESH))
}

/// A Redis that runs and answers nobody: by what controllers count, or else by what an Application below the root says; the root
/// was heard before.
pub(super) fn down(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    found: &mut Vec<Finding>,
) {
    let id = deployment(install);
    let known = |f: &Finding| f.class == Class::RedisDown && f.object == id;
    if let Some(finding) = mute(now, install, observed) {
        found.retain(|f| !known(f) && !follows(f));
        found.push(finding);
    } else if !found.iter().any(known)
        && let Some(text) = children::blames_redis(now, observed)
        && pods_of(observed, REDIS).any(|pod| has_run(pod, now - argocd::AGAIN))
    {
        found.push(Finding::new(Class::RedisDown, &id, text));
    }
    if elsewhere(install, observed).is_some() {
        for finding in found.iter_mut().filter(|f| known(f)) {
            // That one is somebody else's.
            finding.reported = true;
        }
    }
}

/// What a repo-server whose Redis hangs says of Git, which it did not get to ask.
fn follows(finding: &Finding) -> bool {
    let text = &finding.evidence;
    finding.class == Class::GitUnreachable
        && text.contains("i/o timeout")
        && !text.contains(" tcp ")
}

/// Since before then: what is said of a Redis that has just started is of the one before.
fn has_run(pod: &Pod, then: OffsetDateTime) -> bool {
    pod.running.or(pod.created).is_some_and(|up| up < then)
}

fn mute(now: OffsetDateTime, install: &Install, observed: &Observed) -> Option<Finding> {
    let since = mute_since(now, observed)?;
    let id = deployment(install);
    let service = ObjectId::new(Kind::Service, &install.namespace, REDIS);
    // What else is wrong with these has a name of its own.
    let live = observed.objects.get(&id).filter(|live| works(live))?;
    let up = pods_of(observed, REDIS).any(|pod| is_silent(pod, now - MUTE, since));
    if live.deleting.is_some() || !up || !observed.objects.contains_key(&service) {
        return None;
    }
    let whose = elsewhere(install, observed).unwrap_or(REDIS);
    let at = rfc3339(since);
    let text = format!("runs, but no request of a controller to {whose} was answered since {at}");
    let mut finding = Finding::new(Class::RedisDown, &id, text);
    finding.fault_at = Some(since);
    Some(finding)
}

/// What a complaint of an Application is about: trouble with its Redis is Redis' own, whatever else it leads to.
pub(super) fn blamed(install: &Install, class: Class, application: &ObjectId) -> ObjectId {
    if class == Class::RedisDown {
        deployment(install)
    } else {
        application.clone()
    }
}

/// Redis' own object, of which its faults are.
fn deployment(install: &Install) -> ObjectId {
    ObjectId::new(Kind::Deployment, &install.namespace, REDIS)
}

/// The Redis that the controllers were told to use, where it is not the install's.
fn elsewhere<'a>(install: &Install, observed: &'a Observed) -> Option<&'a str> {
    let id = ObjectId::new(Kind::ConfigMap, &install.namespace, PARAMS);
    let server = observed.objects.get(&id)?.fields.pointer("/data")?;
    let server = server.get("redis.server")?.as_str()?;
    let host = server.split(':').next().unwrap_or_default();
    let ours = host.split('.').next() == Some(REDIS);
    (!ours).then_some(server)
}

/// The Pods of a controller that can be asked, by name.
pub fn counted<'a>(
    controller: &'a str,
    observed: &'a Observed,
) -> impl Iterator<Item = (&'a String, &'a Pod)> {
    let all = observed.pods.iter().map(|(name, pod)| (name, pod.as_ref()));
    all.filter(move |(_, pod)| {
        pod.app == controller && !pod.deleting && pod.running.is_some() && !pod.address.is_empty()
    })
}

/// Reads the count from a controller's metrics, which come in pieces, in Prometheus' text format.
#[derive(Debug, Default)]
pub struct Reader {
    line: Vec<u8>,
    found: Option<Requests>,
}

const NAME: &str = "argocd_redis_request_total{";
/// What is longer is another line than those that are looked for.
const LONGEST: usize = 4 << 10;

impl Reader {
    pub fn take(&mut self, mut bytes: &[u8]) {
        while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
            let (line, rest) = bytes.split_at(end);
            self.keep(line);
            let whole = std::mem::take(&mut self.line);
            self.read(&String::from_utf8_lossy(&whole));
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.keep(bytes);
    }

    /// None where it is not counted there.
    pub fn done(self) -> Option<Requests> {
        self.found
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LONGEST.saturating_sub(self.line.len());
        self.line.extend(bytes.iter().take(room));
    }

    fn read(&mut self, line: &str) {
        let Some((labels, value)) = line.strip_prefix(NAME).and_then(|l| l.rsplit_once("} "))
        else {
            return;
        };
        // A time may follow.
        let Some(value) = value.split_whitespace().next().and_then(count) else {
            return;
        };
        let found = self.found.get_or_insert_default();
        if labels.split(',').any(|label| label == "failed=\"true\"") {
            found.failed = found.failed.saturating_add(value);
        } else {
            found.answered = found.answered.saturating_add(value);
        }
    }
}

/// Large ones are written as `1.5e+06`.
fn count(text: &str) -> Option<u64> {
    let value: f64 = text.parse().ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a finite number from zero on, and a cast saturates"
    )]
    (value.is_finite() && value >= 0.0).then_some(value as u64)
}

#[cfg(test)]
mod tests;
