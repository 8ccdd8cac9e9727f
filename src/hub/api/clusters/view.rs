//! Clusters as people see them: records, reports and the line at this moment.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::git_route;
use crate::clock;
use crate::hub::Hub;
use crate::hub::fleet::{self, Seen};
use crate::hub::lost::fault::Beating;
use crate::hub::replica::lines::{self, Elsewhere};
use crate::hub::store::{Cluster, Details, Joined, StoreError};
use crate::hub::tunnels::{self, Standing};
use crate::manifests::scope;
use crate::tunnel::LineFacts;
use crate::wire::api::{ClusterView, KeyView, LineView};
use crate::wire::report::{Condition, ConditionType, Phase, Status};

/// Of a cluster that has no line.
const UNSEEN: &str = "no line since this hub started; see the agent's log";

pub(super) async fn one(hub: &Hub, cluster: Cluster) -> Result<ClusterView, StoreError> {
    let details = hub.store.details(std::slice::from_ref(&cluster.id)).await?;
    let details = details.into_iter().next().unwrap_or_default();
    let elsewhere = Elsewhere::of(hub, &cluster.name).await?;
    Ok(view(hub, clock::now(), (cluster, details), &elsewhere))
}

pub(super) async fn of(hub: &Hub, clusters: Vec<Cluster>) -> Result<Vec<ClusterView>, StoreError> {
    let ids: Vec<String> = clusters.iter().map(|c| c.id.clone()).collect();
    let details = hub.store.details(&ids).await?;
    let now = clock::now();
    let elsewhere = Elsewhere::all(hub).await?;
    let both = clusters.into_iter().zip(details);
    Ok(both.map(|both| view(hub, now, both, &elsewhere)).collect())
}

/// Counts the fleet and its faults for `/metrics`.
pub async fn count(hub: &Hub) {
    match hub.store.faults().await {
        Ok(faults) => {
            let faults = faults.iter().map(|(class, n)| (class.as_str(), *n));
            hub.metrics.heals().faults(faults);
        }
        Err(_) if hub.store.is_away() => {}
        Err(error) => tracing::error!(error = crate::hub::chain_of(&error), "count faults"),
    }
    let mut phases: BTreeMap<String, i64> = BTreeMap::new();
    let counted = pages(hub, |page| {
        for cluster in page {
            *phases.entry(format!("{:?}", cluster.phase)).or_default() += 1;
        }
    });
    if let Err(error) = counted.await {
        if !hub.store.is_away() {
            let error = crate::hub::chain_of(&error);
            tracing::error!(error, "count the fleet");
        }
        return;
    }
    let phases: Vec<(String, i64)> = phases.into_iter().collect();
    hub.metrics.fleet(&phases);
}

/// Gives the fleet to `take`, page by page.
pub async fn pages(hub: &Hub, mut take: impl FnMut(Vec<ClusterView>)) -> Result<(), StoreError> {
    let mut after: Option<String> = None;
    loop {
        let clusters = hub
            .store
            .clusters(after.as_deref(), super::MAX_PAGE)
            .await?;
        let page = of(hub, clusters).await?;
        let full = page.len() == super::MAX_PAGE as usize;
        after = page.last().map(|c| c.name.to_string());
        take(page);
        if !full {
            return Ok(());
        }
    }
}

/// What `of` has to say of each cluster of the fleet, in the order of their names.
pub async fn each<T>(hub: &Hub, of: impl Fn(&Cluster) -> Option<T>) -> Result<Vec<T>, StoreError> {
    let mut all = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = hub
            .store
            .clusters(after.as_deref(), super::MAX_PAGE)
            .await?;
        after = page.last().map(|c| c.name.to_string());
        all.extend(page.iter().filter_map(&of));
        if page.len() < super::MAX_PAGE as usize {
            return Ok(all);
        }
    }
}

/// How the agent of a cluster is heard that has joined.
pub fn beating(hub: &Hub, now: OffsetDateTime, elsewhere: &Elsewhere, cluster: Joined) -> Beating {
    let here = hub.tunnels.view_of(&cluster.name, &cluster.id);
    let line = elsewhere.view(&cluster.name, here);
    let heard = heard(hub, now, (&cluster.id, cluster.last_seen), &line);
    let counted = lines::counted(hub, cluster.epoch);
    let spoken = spoken(hub, now, (&cluster.id, heard), &line);
    let beat = fleet::beat(now, hub.started, line.up.is_some(), heard);
    Beating {
        name: cluster.name,
        id: cluster.id,
        beat: beat.silent_since(spoken),
        cause: line.standing(counted, None).outage().1.map(str::to_owned),
    }
}

fn view(
    hub: &Hub,
    now: OffsetDateTime,
    (cluster, mut details): (Cluster, Details),
    elsewhere: &Elsewhere,
) -> ClusterView {
    let here = hub.tunnels.view_of(&cluster.name, &cluster.id);
    let line = elsewhere.view(&cluster.name, here);
    let seen = (cluster.id.as_str(), cluster.last_seen);
    let heard = cluster.joined_at.and_then(|_| heard(hub, now, seen, &line));
    let phase = fleet::phase(
        now,
        Seen {
            hub_started: hub.started,
            line_up: line.up.is_some(),
            last_heard: heard,
            steps: &details.steps,
            conditions: &details.conditions,
            open_heals: details.open_heals,
        },
    );
    let last_seen = last_seen(hub, now, &cluster, &line);
    let standing = line.standing(lines::counted(hub, cluster.epoch), last_seen);
    let mut conditions = details.conditions;
    if matches!(phase, Phase::Offline | Phase::Unknown) {
        for condition in &mut conditions {
            outdated(condition, last_seen);
        }
        for condition in &mut details.later {
            "Unknown".clone_into(&mut condition.status);
        }
    }
    if cluster.joined_at.is_some() {
        conditions.retain(|c| c.kind != ConditionType::LineUp);
        conditions.push(line_up(now, &line, &standing));
    }
    let git = git_route::view(&cluster);
    ClusterView {
        phase,
        engine: cluster.engine,
        engine_version: cluster.engine_version,
        labels: cluster.labels,
        line: line_view(cluster.epoch, line, &standing),
        last_seen: last_seen.map(clock::rfc3339),
        revision: cluster.synced_revision,
        agent_version: cluster.agent_version,
        git,
        catalog_path: cluster.catalog_path,
        access: Some(scope::most(&cluster.adoption).as_str().to_owned()),
        scope: cluster.adoption.scope.filter(|scope| !scope.is_whole()),
        created_at: clock::rfc3339(cluster.created_at),
        steps: details.steps,
        conditions,
        later_conditions: details.later,
        facts: details.facts,
        agent_copy: None,
        other_way: None,
        keys: details
            .keys
            .iter()
            .map(|key| KeyView {
                kind: key.kind.as_str().to_owned(),
                fingerprint: key.fingerprint.clone(),
                public: key.public.openssh("").unwrap_or_default(),
                state: key.state.as_str().to_owned(),
                created_at: Some(clock::rfc3339(key.created_at)),
            })
            .collect(),
        rev: cluster.rev,
        name: cluster.name,
        id: cluster.id,
    }
}

/// What the phase counts from: when the end of the last line was known, or now for an agent that has none and calls by HTTPS.
fn heard(
    hub: &Hub,
    now: OffsetDateTime,
    (cluster_id, last_seen): (&str, Option<OffsetDateTime>),
    line: &tunnels::LineView,
) -> Option<OffsetDateTime> {
    let (last, https) = hub.presence.last(cluster_id);
    let calls = https.is_some_and(|at| (now - at).abs() < hub.config.offline_after);
    let present = calls.then_some(now);
    let words = [present, last, line.known_down, last_seen];
    fleet::last_word(now, words.into_iter().flatten())
}

/// The last sign of life, where `word` is by what it is judged: of a line that fell silent its last byte.
fn spoken(
    hub: &Hub,
    now: OffsetDateTime,
    (cluster_id, word): (&str, Option<OffsetDateTime>),
    line: &tunnels::LineView,
) -> Option<OffsetDateTime> {
    let (_, https) = hub.presence.last(cluster_id);
    fleet::spoken(now, word, line.known_down, [line.down_since, https])
}

fn last_seen(
    hub: &Hub,
    now: OffsetDateTime,
    cluster: &Cluster,
    line: &tunnels::LineView,
) -> Option<OffsetDateTime> {
    if line.up.is_some() {
        return Some(now);
    }
    let (last, _) = hub.presence.last(&cluster.id);
    let words = [last, line.known_down, cluster.last_seen];
    let word = fleet::last_word(now, words.into_iter().flatten());
    spoken(hub, now, (&cluster.id, word), line)
}

/// What an agent said before it fell silent is no longer known; what the hub itself saw is.
fn outdated(condition: &mut Condition, last_seen: Option<OffsetDateTime>) {
    let own = [
        ConditionType::JoinConflict,
        ConditionType::IdentityRevoked,
        ConditionType::HealsTaken,
    ];
    if own.contains(&condition.kind) {
        return;
    }
    let was = format!("{:?}", condition.status);
    let seen = last_seen.map(clock::rfc3339).unwrap_or_default();
    condition.status = Status::Unknown;
    condition.message = format!("last seen {seen}, then {was}: {}", condition.message);
}

/// The line is the hub's to judge.
fn line_up(now: OffsetDateTime, line: &tunnels::LineView, standing: &Standing) -> Condition {
    let (status, reason, message, since) = if let Some(facts) = &line.up {
        (Status::True, "Up", up_message(facts), facts.since)
    } else {
        let (message, since) = down(standing);
        (Status::False, "Down", message, since.unwrap_or(now))
    };
    Condition {
        kind: ConditionType::LineUp,
        status,
        reason: reason.to_owned(),
        message,
        since: clock::rfc3339(since),
    }
}

/// Why there is no line, and since when.
fn down(standing: &Standing) -> (String, Option<OffsetDateTime>) {
    match standing {
        Standing::Ended { at, cause } => (cause.clone(), Some(*at)),
        Standing::Elsewhere { line, heard } => {
            let message = "it ended at another replica of the hub; see the agent's log";
            (message.to_owned(), line.or(Some(*heard)))
        }
        Standing::Silent { heard } => (UNSEEN.to_owned(), Some(*heard)),
        Standing::Up | Standing::Draining | Standing::Never => (UNSEEN.to_owned(), None),
    }
}

fn up_message(facts: &LineFacts) -> String {
    let from = format!("from {}", facts.remote);
    match facts.cap {
        Some(cap) => format!(
            "{from}; something between agent and hub ends lines at {} s, so they are renewed before it, and watches and sessions end there",
            cap.as_secs()
        ),
        None => from,
    }
}

fn line_view(epoch: u64, line: tunnels::LineView, standing: &Standing) -> LineView {
    let Some(facts) = line.up else {
        return LineView {
            up: false,
            epoch,
            since: standing.outage().0.map(clock::rfc3339),
            ..LineView::default()
        };
    };
    LineView {
        up: true,
        epoch: facts.epoch,
        since: Some(clock::rfc3339(facts.since)),
        remote: Some(facts.remote),
        rtt_micros: facts
            .rtt
            .map(|rtt| u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX)),
        streams: u32::try_from(facts.live).unwrap_or(u32::MAX),
    }
}
