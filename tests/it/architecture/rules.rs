//! The table of the boundaries: which files a rule covers, what must not stand there, and what to do instead.

use std::path::Path;

/// Files whose path below `src/` begins with one of `at`, but with none of `but`, hold none of `forbidden`.
pub(super) struct Rule {
    at: &'static [&'static str],
    but: &'static [&'static str],
    pub(super) forbidden: &'static [&'static str],
    pub(super) instead: &'static str,
}

/// Decide here, act elsewhere. A new pure module adds its prefix.
pub(super) const PURE: &[&str] = &[
    "address",
    "agent/engine",
    "agent/enroll/told",
    "agent/forward/refused",
    "agent/forward/subjects/form",
    "agent/forward/subjects/role",
    "agent/gate",
    "agent/identity",
    "agent/link/cap",
    "agent/link/way",
    "agent/plan",
    "agent/watchdog/ailing",
    "agent/watchdog/budgets",
    "agent/watchdog/record",
    "agent/watchdog/silences",
    "agent/watchdog/stamp",
    "agent/watchdog/status",
    "agent/watchdog/stopped",
    "agent/watchdog/versions",
    "assertion",
    "backoff",
    "bundle",
    "cli/catalog/lint/rules",
    "heal",
    "hub/access",
    "hub/adoption/copy/image",
    "hub/adoption/values",
    "hub/api/agents/heals",
    "hub/api/grants/asked",
    "hub/assertion",
    "hub/audit/chain",
    "hub/audit/refusals",
    "hub/audit/sink/headers",
    "hub/audit/sink/room",
    "hub/auth/role",
    "hub/auth/word",
    "hub/catalog",
    "hub/githost/embedded/push",
    "hub/image",
    "hub/incident",
    "hub/fleet",
    "hub/story",
    "hub/githost/hostkeys",
    "hub/githost/rotation",
    "hub/keys",
    "hub/login/pending",
    "hub/login/rate",
    "hub/lost/fault",
    "hub/notify/board",
    "hub/notify/letter",
    "hub/notify/tokens/due",
    "hub/oidc/claims",
    "hub/oidc/discovery",
    "hub/oidc/token",
    "hub/pace",
    "hub/serve/forwarded",
    "hub/signers",
    "hub/tunnels/standing",
    "hub/proxy/exit",
    "hub/proxy/farewell",
    "hub/proxy/inside",
    "hub/proxy/rewrite",
    "hub/registration",
    "hub/rotation",
    "hub/selector",
    "hub/twin/fault",
    "hub/twin/takeovers",
    "keys",
    "kubeapi",
    "manifests",
    "secret",
    "ssh/known_hosts",
    "ssh/lsrefs",
    "trust",
    "tunnel/budget",
    "tunnel/credit",
    "tunnel/session",
    "tunnel/websocket",
    "wire",
    "yaml",
];

/// The same, with moments of tokio's clock as arguments: whoever calls them waits by it.
pub(super) const PURE_BY_TOKIOS_CLOCK: &[&str] =
    &["agent/enroll/rotate/asks", "agent/observe/scope/starts"];

/// What all parts stand on; it knows none of them.
const FOUNDATION: &[&str] = &[
    "address",
    "assertion",
    "backoff",
    "clock",
    "heal",
    "keys",
    "kubeapi",
    "lifetime",
    "secret",
    "ssh",
    "tcp",
    "telemetry",
    "trust",
    "yaml",
];

const TOKIO: &[&str] = &["tokio", "tokio_util"];

const EFFECTS: &[&str] = &[
    "async ",
    ".await",
    "tokio::spawn",
    "tokio::sync",
    "tokio::task",
    "reqwest",
    "std::fs",
    "std::net::Tcp",
    "std::env",
    "std::process",
    "std::thread",
    "getrandom",
    "Instant::now",
    "SystemTime",
    "now_utc",
    "now_local",
    "Timestamp::now",
    "now_v7",
    "new_v4",
    "clock::boot",
    "clock::id",
    "clock::now",
    "clock::random",
    "clock::unit",
    "kube::Client",
    "kube::Api",
    "tracing",
];

const DECIDES: &str = "this module is pure: take time, randomness and what was read as arguments, return what to do, \
                       and let the caller at the edge do it";

pub(super) const RULES: &[Rule] = &[
    Rule {
        at: PURE,
        but: &[],
        forbidden: EFFECTS,
        instead: DECIDES,
    },
    Rule {
        at: PURE,
        but: &[],
        forbidden: TOKIO,
        instead: DECIDES,
    },
    Rule {
        at: PURE_BY_TOKIOS_CLOCK,
        but: &[],
        forbidden: EFFECTS,
        instead: DECIDES,
    },
    Rule {
        at: &["wire"],
        but: &[],
        forbidden: &[
            "crate::",
            "time::",
            "uuid::",
            "serde_json",
            "http::",
            "sha2",
            "base64",
        ],
        instead: "wire imports std, serde, bytes, thiserror and itself; parse further where the value is used",
    },
    Rule {
        at: &["tunnel"],
        but: &[],
        forbidden: &["crate::agent", "crate::hub", "crate::client", "crate::cli"],
        instead: "the line serves both ends and knows neither: pass what it needs as an argument",
    },
    Rule {
        at: &["agent"],
        but: &[],
        forbidden: &["crate::hub", "crate::cli"],
        instead: "agent and hub share only wire, tunnel, client and the foundation: move the shared part there",
    },
    Rule {
        at: &["hub"],
        but: &[],
        forbidden: &["crate::agent", "crate::cli"],
        instead: "agent and hub share only wire, tunnel, client and the foundation: move the shared part there",
    },
    Rule {
        at: &["client"],
        but: &[],
        forbidden: &["crate::agent", "crate::hub", "crate::cli"],
        instead: "the client speaks wire types and knows neither end",
    },
    Rule {
        at: FOUNDATION,
        but: &[],
        forbidden: &[
            "crate::agent",
            "crate::hub",
            "crate::cli",
            "crate::client",
            "crate::tunnel",
        ],
        instead: "the foundation imports no part: turn the dependency round",
    },
    // One owner per technology.
    Rule {
        at: &[""],
        but: &["hub/store"],
        forbidden: &["sqlx"],
        instead: "SQL lives in hub/store/*: add a function with a domain name there",
    },
    Rule {
        at: &[""],
        but: &["hub/git"],
        forbidden: &["git2"],
        instead: "git2 lives in hub/git: add a function there, called inside spawn_blocking",
    },
    Rule {
        at: &[""],
        but: &["ssh"],
        forbidden: &["russh"],
        instead: "russh lives in ssh: add what is missing there",
    },
    Rule {
        at: &[""],
        but: &["yaml"],
        forbidden: &["serde_saphyr"],
        instead: "YAML is read and printed by crate::yaml, within its budget",
    },
    Rule {
        at: &[""],
        but: &[
            "hub.rs",
            "hub/api",
            "hub/auth",
            "hub/proxy",
            "hub/serve",
            "hub/ui",
        ],
        forbidden: &["axum"],
        instead: "axum lives in hub/api*, hub/proxy and hub/ui*; elsewhere take http types, or serve with hyper",
    },
    Rule {
        at: &[""],
        but: &["agent", "cli/agent"],
        forbidden: &["kube::", "kube_runtime"],
        instead: "the Kubernetes client belongs to the agent's IO modules; plain JSON or k8s-openapi types are fine anywhere",
    },
    Rule {
        at: &["agent/forward/exchange", "agent/forward/send", "agent/gate"],
        but: &[],
        forbidden: &["kube::", "kube_client", "Api<"],
        instead: "no request of the line reaches the installer's client: send through forward::upstream",
    },
    Rule {
        at: &["agent/forward/upstream"],
        but: &[],
        forbidden: &["kube::Client", "Api<", "auth_info", "identity_pem"],
        instead: "requests of the line carry the token of linesman-line only: take address and CA of the configuration, no credential",
    },
    Rule {
        at: &["tunnel", "agent", "hub", "client", "cli"],
        but: &["tunnel/driver", "agent/link", "hub/api/tunnel"],
        forbidden: &["tungstenite"],
        instead: "WebSocket lives in tunnel/driver, agent/link and hub/api/tunnel",
    },
    Rule {
        at: &[""],
        but: &["client", "agent/caller", "hub/githost", "hub/oidc"],
        forbidden: &["reqwest"],
        instead: "HTTP calls go through crate::client and agent/caller (to a hub) or hub/githost (to a Git host)",
    },
    Rule {
        at: &[""],
        // What calls go through is the environment's to say, to reqwest as well.
        but: &["cli", "client/proxy"],
        forbidden: &["clap", "std::env"],
        instead: "cli reads flags and environment, and passes validated configuration on",
    },
    Rule {
        at: &["cli"],
        but: &["cli/connect"],
        forbidden: &["Client::new("],
        instead: "take connect::client_to: its client tells whoever waits of a call that is not answered soon",
    },
];

/// `agent/plan` covers `agent/plan.rs` and `agent/plan/…`, not `agent/planet.rs`.
pub(super) fn covers(rule: &Rule, path: &str) -> bool {
    let begins = |prefixes: &[&str]| {
        prefixes
            .iter()
            .any(|p| path.strip_prefix(p).is_some_and(is_boundary_of(p)))
    };
    begins(rule.at) && !begins(rule.but)
}

/// Whether the table has this file as one that only decides.
pub(super) fn is_pure(path: &str) -> bool {
    let mut prefixes = PURE.iter().chain(PURE_BY_TOKIOS_CLOCK);
    prefixes.any(|prefix| path.strip_prefix(prefix).is_some_and(is_boundary))
}

fn is_boundary_of(prefix: &str) -> impl Fn(&str) -> bool {
    let whole = prefix.is_empty() || Path::new(prefix).extension().is_some();
    move |rest| whole || is_boundary(rest)
}

pub(super) fn is_boundary(rest: &str) -> bool {
    rest.starts_with(['.', '/'])
}
