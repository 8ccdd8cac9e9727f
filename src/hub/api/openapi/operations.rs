//! The table of the API's operations: who may call each, what it does, what goes in and what comes out.

/// Who may call an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    Anyone,
    /// `Authorization: Bearer lmt1.…`
    User,
    /// `Linesman-Signature`, or a stream of the line.
    Agent,
}

/// One operation: method, path, who calls it, what it does, request body, answer.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    pub method: &'static str,
    pub path: &'static str,
    pub caller: Caller,
    pub summary: &'static str,
    /// The name of a component, or empty.
    pub body: &'static str,
    /// The name of a component, `[]` in front for a page of them, or empty.
    pub answer: &'static str,
}

/// What becomes of a POST that comes twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// By the same Idempotency-Key it is carried out once, and its answer comes again; where that is lost, it is told whether
    /// anything was done.
    Answered,
    /// The same without the answer, which holds a secret that is kept nowhere, or stands in the record itself: its handler
    /// knows the key.
    Known,
    /// It needs no key; why.
    Harmless(&'static str),
}

/// The same by the path of the route; None = it is none of the table's.
pub fn repeat(path: &str) -> Option<Repeat> {
    Some(match path {
        "/v1/clusters/{name}/rotate"
        | "/v1/clusters/{name}/revoke"
        | "/v1/clusters/{name}/pause"
        | "/v1/clusters/{name}/lift"
        | "/v1/unknown-agents/accept"
        | "/v1/heals/{id}/close"
        | "/v1/users"
        | "/v1/catalog/signers"
        | "/v1/catalog/signers/drop"
        | "/v1/githosts/{name}/host-keys"
        | "/v1/githosts/{name}/host-keys/drop"
        | "/v1/githosts/{name}/rotate-host-key" => Repeat::Answered,
        "/v1/clusters"
        | "/v1/clusters/{name}/join-tokens"
        | "/v1/grants"
        | "/v1/api-tokens"
        | "/v1/users/{name}/login-codes" => Repeat::Known,
        "/v1/bundles" => Repeat::Harmless("the same content is the same bundle"),
        "/v1/catalog/ssh-keys" => Repeat::Harmless("the same key of the same user is there once"),
        "/v1/join" => Repeat::Harmless("the same keys join once, and get the same answer"),
        "/v1/recover" => Repeat::Harmless("the same new identity is bound once"),
        "/v1/clusters/{name}/reports" => {
            Repeat::Harmless("a report is all that there is to say, and heals have ids")
        }
        "/v1/clusters/{name}/deploy-keys" => Repeat::Harmless("the same key is registered once"),
        "/v1/clusters/{name}/identity" => Repeat::Harmless("the same key is bound once"),
        "/v1/clusters/{name}/diagnoses" => Repeat::Harmless("a question has one answer"),
        "/v1/login/device" => {
            Repeat::Harmless("nobody is known yet; what is begun twice ends by itself")
        }
        "/v1/login/token" => {
            Repeat::Harmless("a code is good once, and a refresh token again for a moment")
        }
        "/v1/login/end" => Repeat::Harmless("a session ends once"),
        _ => return None,
    })
}

impl Operation {
    /// None = it is no POST.
    pub fn repeat(&self) -> Option<Repeat> {
        repeat(self.path).filter(|_| self.method == "post")
    }
}

const fn operation(
    call: (&'static str, &'static str),
    caller: Caller,
    summary: &'static str,
    bodies: (&'static str, &'static str),
) -> Operation {
    Operation {
        method: call.0,
        path: call.1,
        caller,
        summary,
        body: bodies.0,
        answer: bodies.1,
    }
}

use Caller::{Agent, Anyone, User};

/// Every operation of the hub's own API; the Kubernetes API below `/clusters/{name}/` describes itself.
pub const OPERATIONS: &[Operation] = &[
    operation(
        ("get", "/v1/hub"),
        Anyone,
        "The hub's id, version, clock and protocol",
        ("", "HubInfo"),
    ),
    operation(
        ("post", "/v1/join"),
        Agent,
        "Redeem a join token and bind the cluster's keys",
        ("JoinRequest", "Assignment"),
    ),
    operation(
        ("post", "/v1/recover"),
        Agent,
        "A new identity for a cluster that lost its own, on the word of its deploy key",
        ("RecoverRequest", "Assignment"),
    ),
    operation(
        ("get", "/v1/line"),
        Anyone,
        "Upgrade to the line (WebSocket, subprotocol linesman.line.1)",
        ("", ""),
    ),
    operation(
        ("get", "/v1/clusters/{name}/assignment"),
        Agent,
        "What a cluster is told",
        ("", "Assignment"),
    ),
    operation(
        ("post", "/v1/clusters/{name}/reports"),
        Agent,
        "Steps, facts, conditions and heals",
        ("Report", "ReportAck"),
    ),
    operation(
        ("post", "/v1/clusters/{name}/deploy-keys"),
        Agent,
        "Register a deploy key, read-only",
        ("DeployKeyRequest", "DeployKeyStatus"),
    ),
    operation(
        ("post", "/v1/clusters/{name}/diagnoses"),
        Agent,
        "The answer to the order 'diagnose'",
        ("DiagnosisAnswer", ""),
    ),
    operation(
        ("get", "/v1/clusters/{name}/diagnosis"),
        User,
        "Each component: exists, works, fresh; the agent is asked now",
        ("", "Diagnosis"),
    ),
    operation(
        ("post", "/v1/clusters/{name}/identity"),
        Agent,
        "A new identity key, signed by it and the one before",
        ("IdentityRequest", ""),
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
        ("get", "/v1/clusters/{name}/orders"),
        Agent,
        "The hub's orders, a JSON object a line",
        ("", "Order"),
    ),
    operation(
        ("get", "/v1/bundles/{digest}"),
        Agent,
        "A bundle's content (zstd)",
        ("", ""),
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
        ("get", "/v1/hub/image-registry"),
        User,
        "What the hub says for clusters that have none of their own",
        ("", "RegistryView"),
    ),
    operation(
        ("put", "/v1/hub/image-registry"),
        User,
        "The same for clusters that have none of their own",
        ("RegistryRequest", "RegistryView"),
    ),
    operation(
        ("get", "/v1/clusters/{name}/heals"),
        User,
        "The heals of one cluster, newest first",
        ("", "[]HealView"),
    ),
    operation(
        ("get", "/v1/heals"),
        User,
        "Heals, newest first",
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
    operation(
        ("get", "/v1/audit"),
        User,
        "The audit chain (user, cluster, verdict, since, until, limit, after, wait); reading is on record",
        ("", "[]AuditView"),
    ),
    operation(
        ("get", "/v1/audit/chain"),
        User,
        "The audit chain as text, to verify it (after, limit): a line is number, prev and hash in hex, and the JSON that was hashed behind prev",
        ("", ""),
    ),
    operation(
        ("get", "/v1/audit/anchors"),
        User,
        "The hub's signatures under the audit chain",
        ("", "[]AnchorView"),
    ),
    operation(
        ("get", "/v1/grants"),
        User,
        "Who may reach which clusters as what; without the role access, the caller's own",
        ("", "[]GrantView"),
    ),
    operation(
        ("post", "/v1/grants"),
        User,
        "Give access",
        ("NewGrant", "GrantView"),
    ),
    operation(
        ("get", "/v1/grants/check"),
        User,
        "Whether a user reaches a cluster, and what each grant says (user, cluster, method, path, actAs)",
        ("", "GrantCheck"),
    ),
    operation(
        ("get", "/v1/grants/{id}"),
        User,
        "One grant",
        ("", "GrantView"),
    ),
    operation(
        ("delete", "/v1/grants/{id}"),
        User,
        "Revoke a grant (If-Match)",
        ("", ""),
    ),
    operation(
        ("get", "/v1/users"),
        User,
        "The hub's users",
        ("", "[]UserView"),
    ),
    operation(
        ("post", "/v1/users"),
        User,
        "Add a user",
        ("NewUser", "UserView"),
    ),
    operation(
        ("get", "/v1/users/{name}"),
        User,
        "One user",
        ("", "UserView"),
    ),
    operation(
        ("patch", "/v1/users/{name}"),
        User,
        "Set a user's roles or groups (If-Match); what ran by a lost group is cut",
        ("UserChange", "UserView"),
    ),
    operation(
        ("delete", "/v1/users/{name}"),
        User,
        "Remove a user with its tokens, SSH keys and own grants; what it runs is cut",
        ("", ""),
    ),
    operation(
        ("post", "/v1/users/{name}/login-codes"),
        User,
        "A code that a local user logs in with, once and within ten minutes; the one before ends",
        ("", "LoginCode"),
    ),
    operation(
        ("get", "/v1/api-tokens"),
        User,
        "Tokens in force: the caller's, or of ?user=NAME, or of all (*)",
        ("", "[]ApiTokenView"),
    ),
    operation(
        ("post", "/v1/api-tokens"),
        User,
        "Make a token, shown this once",
        ("NewApiToken", "ApiTokenAnswer"),
    ),
    operation(
        ("delete", "/v1/api-tokens/{id}"),
        User,
        "Revoke a token; what runs by it is cut",
        ("", ""),
    ),
    operation(
        ("get", "/v1/bundles"),
        User,
        "Imported engine bundles",
        ("", "[]BundleView"),
    ),
    operation(
        ("post", "/v1/bundles"),
        User,
        "Import an engine's install manifest (YAML, .gz, .tar.gz); ?engine=, ?version= say what it has to be, ?components= which controllers are kept",
        ("", "BundleView"),
    ),
    operation(("get", "/v1/whoami"), User, "The caller", ("", "WhoAmI")),
    operation(
        ("get", "/v1/catalog"),
        User,
        "Where the catalog is and who its host is",
        ("", "CatalogView"),
    ),
    operation(
        ("post", "/v1/catalog/ssh-keys"),
        User,
        "Let the caller push with an SSH key",
        ("NewSshKey", ""),
    ),
    operation(
        ("get", "/v1/catalog/signers"),
        User,
        "Keys of which one has to have signed the catalog's head",
        ("", "SignersView"),
    ),
    operation(
        ("post", "/v1/catalog/signers"),
        User,
        "Verify the catalog's head with this key, too; every cluster is told",
        ("NewSigner", "SignersView"),
    ),
    operation(
        ("post", "/v1/catalog/signers/drop"),
        User,
        "Verify with this key no longer; without the last one nothing is verified",
        ("DropSigner", "SignersView"),
    ),
    operation(
        ("get", "/v1/githosts"),
        User,
        "Git hosts with the keys that clusters know them by",
        ("", "[]GitHostView"),
    ),
    operation(
        ("get", "/v1/githosts/{name}"),
        User,
        "One Git host: its keys, what clusters have and meet",
        ("", "GitHostView"),
    ),
    operation(
        ("post", "/v1/githosts/{name}/host-keys"),
        User,
        "Trust a key that was met, or those of a known_hosts file; every cluster is told",
        ("AcceptHostKey", "GitHostView"),
    ),
    operation(
        ("post", "/v1/githosts/{name}/host-keys/drop"),
        User,
        "Tell a host's old key no longer",
        ("DropHostKey", "GitHostView"),
    ),
    operation(
        ("post", "/v1/githosts/{name}/rotate-host-key"),
        User,
        "Let the built-in Git server show another key, when clusters know it or now",
        ("RotateHostKey", "GitHostView"),
    ),
    operation(
        ("get", "/v1/hub/checks"),
        User,
        "The hub's checks of itself",
        ("", "Check"),
    ),
    operation(
        ("post", "/v1/login/device"),
        Anyone,
        "Begin a login without a browser (RFC 8628)",
        ("", "DeviceLogin"),
    ),
    operation(
        ("post", "/v1/login/token"),
        Anyone,
        "A session's tokens for a one-time code, a device's code, a local user's login code or a refresh token",
        ("TokenRequest", "SessionAnswer"),
    ),
    operation(
        ("post", "/v1/login/end"),
        Anyone,
        "End the session of a refresh token; what it runs is cut",
        ("EndSession", ""),
    ),
    operation(("get", "/openapi.json"), Anyone, "This document", ("", "")),
];
