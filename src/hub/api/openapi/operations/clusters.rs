//! Clusters, what their agents did, and agents that nobody knows.

use super::Caller::User;
use super::{Operation, operation};

pub(super) const ALL: &[Operation] = &[
    operation(
        ("get", "/v1/clusters/{name}/diagnosis"),
        User,
        "Each component: exists, works, fresh; the agent is asked now",
        ("", "Diagnosis"),
    ),
    operation(
        ("post", "/v1/clusters/{name}/rotate"),
        User,
        "Let a cluster replace its deploy key, its identity key, or both",
        ("RotateRequest", "RotateWish"),
    ),
    operation(
        ("post", "/v1/clusters/{name}/revoke"),
        User,
        "Revoke all keys of a cluster; its record, its grants and what its agent does alone stay",
        ("RevokeRequest", "Revocation"),
    ),
    operation(
        ("get", "/v1/unknown-agents"),
        User,
        "Agents with good signatures by keys that the hub does not know",
        ("", "[]UnknownAgentView"),
    ),
    operation(
        ("post", "/v1/unknown-agents/accept"),
        User,
        "Make an unknown agent's key the identity of the cluster that it claims",
        ("AcceptRequest", "Acceptance"),
    ),
    operation(
        ("get", "/v1/clusters"),
        User,
        "All clusters",
        ("", "[]ClusterView"),
    ),
    operation(
        ("post", "/v1/clusters"),
        User,
        "Add a cluster; the answer holds its adoption YAML",
        ("NewCluster", "AdoptionAnswer"),
    ),
    operation(
        ("get", "/v1/clusters/{name}"),
        User,
        "One cluster with steps, conditions, facts and keys",
        ("", "ClusterView"),
    ),
    operation(
        ("delete", "/v1/clusters/{name}"),
        User,
        "Remove a cluster; its workloads and engine stay",
        ("", ""),
    ),
    operation(
        ("post", "/v1/clusters/{name}/join-tokens"),
        User,
        "A new adoption YAML for a cluster",
        ("NewJoinToken", "AdoptionAnswer"),
    ),
    operation(
        ("post", "/v1/clusters/{name}/pause"),
        User,
        "Open a maintenance window: the watchdog only looks",
        ("PauseRequest", "Policy"),
    ),
    operation(
        ("delete", "/v1/clusters/{name}/pause"),
        User,
        "End the maintenance window",
        ("", ""),
    ),
    operation(
        ("post", "/v1/clusters/{name}/lift"),
        User,
        "Give back to Git, once, what the watchdog holds back there",
        ("LiftRequest", "Policy"),
    ),
    operation(
        ("get", "/v1/clusters/{name}/line"),
        User,
        "The cluster's line: streams, bytes, round trip, why the last one ended",
        ("", "LineDetail"),
    ),
    operation(
        ("put", "/v1/clusters/{name}/git-route"),
        User,
        "Choose the cluster's way to the Git host: auto, direct, line",
        ("GitRouteRequest", "GitRouteView"),
    ),
    operation(
        ("patch", "/v1/clusters/{name}/labels"),
        User,
        "Set and remove labels, by which grants and rollouts choose clusters",
        ("LabelsRequest", "LabelsView"),
    ),
    operation(
        ("put", "/v1/clusters/{name}/agent-image"),
        User,
        "Change the image of a cluster's agent; undone where it is not heard of in time",
        ("AgentImageRequest", "AgentImageView"),
    ),
    operation(
        ("put", "/v1/clusters/{name}/agent-copy"),
        User,
        "Keep a copy of the agent in the catalog, from which the engine brings it back, or take it out",
        ("AgentCopyRequest", "AgentCopyView"),
    ),
    operation(
        ("put", "/v1/clusters/{name}/engine"),
        User,
        "Change the version of a cluster's engine; undone where it does not work in time",
        ("EngineRequest", "EngineView"),
    ),
    operation(
        ("put", "/v1/clusters/{name}/image-registry"),
        User,
        "Whence a cluster's engine gets its images",
        ("RegistryRequest", "RegistryView"),
    ),
    operation(
        ("get", "/v1/clusters/{name}/image-registry"),
        User,
        "Whence they come now",
        ("", "RegistryView"),
    ),
    operation(
        ("get", "/v1/clusters/{name}/heals"),
        User,
        "The heals of one cluster, newest first; with ?open=true those that are not over, with ?since= and ?until= those that began then",
        ("", "[]HealView"),
    ),
    operation(
        ("get", "/v1/heals"),
        User,
        "Heals, newest first; with ?open=true those that are not over, with ?since= and ?until= those that began then",
        ("", "[]HealView"),
    ),
    operation(
        ("get", "/v1/heals/{id}"),
        User,
        "One heal",
        ("", "HealView"),
    ),
    operation(
        ("post", "/v1/heals/{id}/close"),
        User,
        "End a heal whose end no agent will tell any more",
        ("HealCloseRequest", "HealView"),
    ),
];
