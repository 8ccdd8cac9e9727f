//! A Pod of the engine: of its containers, the one that something is wrong with.

use k8s_openapi::api::core::v1 as core;
use kube::core::DynamicObject;
use time::OffsetDateTime;

use super::{at, short};
use crate::agent::plan::state::Pod;

/// What the planner keeps of a Pod. One in a form that is not known is there all the same, as far as its metadata says.
pub fn pod(live: DynamicObject) -> Pod {
    let metadata = live.metadata.clone();
    live.try_parse().map_or_else(
        |_| Pod {
            // One of a former version that is not ready is ended, and whether it is ready is not known.
            revision: String::new(),
            ..of(core::Pod {
                metadata,
                ..core::Pod::default()
            })
        },
        of,
    )
}

fn of(live: core::Pod) -> Pod {
    let meta = live.metadata;
    let status = live.status.unwrap_or_default();
    let containers: Vec<&core::ContainerStatus> =
        [&status.init_container_statuses, &status.container_statuses]
            .into_iter()
            .flatten()
            .flatten()
            .collect();
    let stopped = containers.iter().copied().find(|c| is_stopped(c));
    let waits = |c: &&core::ContainerStatus| waiting(c).is_some();
    let told = stopped.or_else(|| containers.iter().copied().find(waits));
    let waiting = told.and_then(|c| waiting(c));
    let last = |c: &core::ContainerStatus| c.last_state.as_ref()?.terminated.clone();
    let ended = match stopped {
        Some(stopped) => last(stopped),
        None => containers.iter().find_map(|c| last(c)),
    };
    let conditions = status.conditions.unwrap_or_default();
    let condition = |kind: &str| conditions.iter().find(|c| c.type_ == kind);
    let refused = condition("PodScheduled").filter(|c| c.status == "False");
    let mut labels = meta.labels.unwrap_or_default();
    Pod {
        uid: meta.uid.unwrap_or_default(),
        address: status.pod_ip.unwrap_or_default(),
        revision: labels
            .remove("controller-revision-hash")
            .unwrap_or_default(),
        app: labels
            .remove("app")
            .or_else(|| labels.remove("app.kubernetes.io/name"))
            .unwrap_or_default(),
        created: meta.creation_timestamp.as_ref().and_then(at),
        running: running(status.container_statuses.as_deref().unwrap_or_default()),
        deleting: meta.deletion_timestamp.is_some(),
        ends: meta.deletion_timestamp.as_ref().and_then(at),
        ready: condition("Ready").is_some_and(|c| c.status == "True"),
        waiting: waiting.map(|w| {
            (
                w.reason.clone().unwrap_or_default(),
                short(w.message.as_deref().unwrap_or_default()),
            )
        }),
        ended: ended.map(|e| (e.exit_code, e.reason.clone().unwrap_or_default())),
        restarts: containers.iter().map(|c| c.restart_count).sum(),
        image: told
            .or_else(|| containers.first().copied())
            .map(|c| c.image.clone())
            .unwrap_or_default(),
        unschedulable: refused.map(|c| short(c.message.as_deref().unwrap_or("no node takes it"))),
        failed: (status.phase.as_deref() == Some("Failed")).then(|| {
            let said = [status.reason, status.message].into_iter().flatten();
            short(&said.collect::<Vec<_>>().join(": "))
        }),
    }
}

/// Why a container waits.
fn waiting(container: &core::ContainerStatus) -> Option<&core::ContainerStateWaiting> {
    container.state.as_ref()?.waiting.as_ref()
}

/// Whether something is wrong with it: others wait for their turn, and with one that only begins nothing is.
fn is_stopped(container: &core::ContainerStatus) -> bool {
    let reason = waiting(container).and_then(|w| w.reason.as_deref());
    reason.is_some_and(|reason| !matches!(reason, "PodInitializing" | "ContainerCreating"))
}

/// When the last of the containers started; none where one does not run.
fn running(containers: &[core::ContainerStatus]) -> Option<OffsetDateTime> {
    let since = |c: &core::ContainerStatus| {
        let running = c.state.as_ref()?.running.as_ref()?;
        running.started_at.as_ref().and_then(at)
    };
    let all: Option<Vec<OffsetDateTime>> = containers.iter().map(since).collect();
    all?.into_iter().max()
}
