//! One sample of each body, as JSON. A test reads each as its type, so a renamed field is noticed.

use serde_json::{Value, json};

mod access;
mod engine;
mod keys;

const AGENT_IMAGE: &str = "registry.example.org/linesman@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Name and sample of every body that operations name.
pub fn all() -> Vec<(&'static str, Value)> {
    [parts(), access::all(), engine::all(), keys::all()].concat()
}

fn parts() -> Vec<(&'static str, Value)> {
    vec![
        ("HubInfo", hub_info()),
        ("JoinRequest", join_request()),
        ("Assignment", assignment()),
        ("Report", report()),
        (
            "ReportAck",
            json!({ "heals": ["0197"], "assignmentRevision": 3 }),
        ),
        (
            "Order",
            json!({ "kind": "catalogHead", "revision": "3f2a" }),
        ),
        (
            "DiagnosisAnswer",
            json!({ "id": "0197", "at": TIME, "components": [component()] }),
        ),
        (
            "Diagnosis",
            json!({ "live": true, "at": TIME, "note": "", "components": [component()] }),
        ),
        ("ClusterView", cluster()),
        (
            "NewCluster",
            json!({ "name": "eu1", "engine": "flux", "labels": { "env": "prod" }, "gitRoute": "auto", "adoption": adoption() }),
        ),
        (
            "NewJoinToken",
            json!({ "adoption": adoption(), "newCluster": false }),
        ),
        (
            "PauseRequest",
            json!({ "seconds": 7200, "reason": "node upgrade" }),
        ),
        (
            "HealCloseRequest",
            json!({ "reason": "the agent was removed by hand" }),
        ),
        ("LineDetail", line_detail()),
        (
            "AgentImageRequest",
            json!({ "image": AGENT_IMAGE, "allowTag": true }),
        ),
        ("AgentImageView", json!({ "image": AGENT_IMAGE })),
        ("GitRouteRequest", json!({ "route": "line" })),
        ("GitRouteView", json!({ "route": "auto", "via": "line" })),
        (
            "Policy",
            json!({ "snapshotAfter": 600, "probeEvery": 300, "pausedUntil": TIME, "pauseReason": "node upgrade (admin)" }),
        ),
        ("AdoptionAnswer", adoption_answer()),
        ("HealView", heal_view()),
        (
            "CatalogView",
            json!({ "url": "ssh://git@hub.example:2222/catalog.git", "branch": "main", "head": "3f2a", "knownHosts": "[hub.example]:2222 ssh-ed25519 AAAA" }),
        ),
        (
            "NewSshKey",
            json!({ "publicKey": "ssh-ed25519 AAAA", "title": "laptop" }),
        ),
        (
            "Check",
            json!({ "name": "database", "ok": true, "found": "answers", "fix": "" }),
        ),
        ("Problem", problem()),
    ]
}

const TIME: &str = "2026-01-02T03:04:05.678Z";

fn digest() -> String {
    format!("sha256:{}", "0".repeat(64))
}

fn hub_info() -> Value {
    json!({
        "hubId": "0197", "version": "0.1.0", "protocol": { "min": 1, "max": 1 }, "time": 1_767_323_045, "oidc": true,
    })
}

fn join_request() -> Value {
    json!({
        "protocol": { "min": 1, "max": 1 }, "token": "lmj1.id.secret", "cluster": "eu1",
        "incarnation": "uid", "identityKey": "a2V5", "deployKey": "ssh-ed25519 AAAA",
        "deployProof": "c2ln", "agent": build(), "facts": { "kubernetes.version": "v1.35.4" },
    })
}

fn build() -> Value {
    json!({ "version": "0.1.0", "image": "linesman:0.1.0", "arch": "x86_64", "features": ["line"] })
}

fn assignment() -> Value {
    let key = json!({ "kid": "k1", "key": "a2V5", "notAfter": 1_767_323_045 });
    json!({
        "cluster": { "name": "eu1", "id": "0197" },
        "hub": { "id": "0197", "urls": ["https://hub.example"], "ca": "", "keyset": [key] },
        "catalog": {
            "url": "ssh://git@hub.example:2222/catalog.git",
            "lineUrl": "ssh://git@linesman-git.linesman.svc/catalog.git", "via": "direct", "branch": "main",
            "path": "clusters/eu1", "knownHosts": "[hub.example]:2222 ssh-ed25519 AAAA",
            "deployKey": { "state": "registered", "reason": "" },
        },
        "engine": { "kind": "flux", "version": "2.9.5", "bundle": digest(), "size": 37_000, "within": 300, "change": 0 },
        "policy": { "snapshotAfter": 600, "probeEvery": 300 },
        "revision": 3,
    })
}

fn line_detail() -> Value {
    json!({
        "up": true, "draining": false, "replica": "0197", "epoch": 7, "since": TIME, "remote": "192.0.2.7:40000", "instance": "0197",
        "capSeconds": 30, "rttMicros": 812, "streams": { "api": 3, "git": 1, "report": 1, "other": 0 }, "opened": 4096,
        "classes": {
            "sparse": { "sent": 4_096, "received": 54_321, "queueMicros": 40 },
            "bulk": { "sent": 119_360, "received": 600_000, "queueMicros": 900 },
            "background": { "sent": 0, "received": 0, "queueMicros": null },
        },
         "sent": 123_456,
        "received": 654_321, "unread": 0, "creditStalls": 2, "parked": 0, "denied": { "NoGrant": 1, "agent:ReadOnly": 2 },
        "lastCause": "line lost: connection reset",
    })
}

fn component() -> Value {
    json!({
        "name": "Deployment flux-system/source-controller", "exists": "yes", "works": "no", "fresh": "yes",
        "found": "F4 BadImage: differs at /image", "fix": "it is being mended; see: linesman heal list eu1",
    })
}

fn step() -> Value {
    json!({ "step": "git", "state": "waiting", "reason": "auth", "at": TIME })
}

fn condition() -> Value {
    json!({ "type": "Synced", "status": "True", "reason": "Applied", "message": "main@sha1:3f2a", "since": TIME })
}

fn heal() -> Value {
    json!({
        "id": "0197", "class": "ObjectMissing", "number": 1, "meaning": "an object is gone", "object": "Deployment flux-system/source-controller",
        "evidence": "not found", "writer": "kubectl", "revision": "main@sha1:3f2a", "commit": "",
        "steps": [{ "action": "create", "object": "Deployment flux-system/source-controller", "at": TIME, "outcome": "ok" }],
        "faultAt": TIME, "detectedAt": TIME, "actedAt": TIME, "restoredAt": TIME, "result": "healed", "next": "",
        "scene": {
            "uid": "7c0e", "revisionAfter": "main@sha1:3f2a",
            "conditions": [{ "type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable", "message": "", "since": TIME }],
            "events": [{ "at": TIME, "type": "Warning", "object": "Pod source-controller-7f9c", "reason": "BackOff", "message": "", "count": 3 }],
        },
    })
}

fn report() -> Value {
    json!({
        "agent": build(), "facts": { "nodes.count": "3" }, "steps": [step()],
        "conditions": [condition()], "heals": [heal()], "revision": "main@sha1:3f2a",
        "hostKeys": {
            "trusted": ["SHA256:AAAA"],
            "shown": { "key": "ssh-ed25519 AAAA", "fingerprint": "SHA256:AAAA", "known": true, "since": TIME },
        },
    })
}

fn adoption() -> Value {
    json!({
        "image": "", "access": "admin", "tokenTtl": 86_400, "imagePullSecret": "", "httpsProxy": "",
        "noProxy": "", "scope": { "namespaces": ["shop"], "strict": false },
    })
}

fn cluster() -> Value {
    json!({
        "name": "eu1", "id": "0197", "phase": "Healthy", "engine": "flux", "engineVersion": "2.9.5",
        "labels": { "env": "prod" },
        "line": { "up": true, "epoch": 7, "since": TIME, "remote": "192.0.2.1:40000", "rttMicros": 900, "streams": 2 },
        "lastSeen": TIME, "revision": "main@sha1:3f2a", "agentVersion": "0.1.0",
        "catalogPath": "clusters/eu1", "git": { "route": "auto", "via": "direct" },
        "scope": { "namespaces": ["shop"], "strict": false }, "createdAt": TIME, "steps": [step()], "conditions": [condition()],
        "laterConditions": [{ "type": "Later", "status": "True", "reason": "Applied", "message": "", "since": TIME }],
        "facts": { "nodes.count": "3" },
        "keys": [{ "kind": "deploy", "fingerprint": "SHA256:x", "public": "ssh-ed25519 AAAA", "state": "active", "createdAt": TIME }],
        "rev": 4,
    })
}

fn adoption_answer() -> Value {
    json!({
        "cluster": cluster(), "yaml": "apiVersion: v1", "tokenExpiresAt": TIME,
        "adoptUrl": "https://hub.example/adopt/TOKEN.yaml",
    })
}

fn heal_view() -> Value {
    let mut view = heal();
    view["cluster"] = "eu1".into();
    view["took"] = json!({ "detectMs": 120, "actMs": 80, "restoreMs": 9_400 });
    view["author"] =
        json!({ "id": "3f2a", "author": "Ann <ann@example.com>", "at": TIME, "subject": "Faster" });
    view["story"] = json!([{ "at": TIME, "text": "seen, and called F1 ObjectMissing" }]);
    view
}

fn problem() -> Value {
    json!({
        "type": "urn:linesman:problem:not-found", "title": "Not found", "status": 404,
        "detail": "there is no cluster eu9", "hop": "hub", "next": "check the name", "requestId": "0197",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::api;

    fn reads_as<T: serde::de::DeserializeOwned + serde::Serialize>(name: &str) -> bool {
        let (_, sample) = all().into_iter().find(|(n, _)| *n == name).unwrap();
        let read: T = serde_json::from_value(sample.clone()).unwrap();
        let back = serde_json::to_value(read).unwrap();
        let (Value::Object(sample), Value::Object(back)) = (&sample, &back) else {
            return false;
        };
        sample.keys().all(|key| back.contains_key(key))
    }

    fn places(value: &Value, at: &str, all: &mut Vec<String>) {
        let children: Vec<(String, &Value)> = match value {
            Value::Object(fields) => fields.iter().map(|(k, v)| (k.clone(), v)).collect(),
            Value::Array(list) => list
                .iter()
                .enumerate()
                .map(|(n, v)| (n.to_string(), v))
                .collect(),
            _ => Vec::new(),
        };
        for (key, child) in children {
            let at = format!("{at}/{key}");
            places(child, &at, all);
            all.push(at);
        }
    }

    /// H51: of what an agent of a later version says, only what is not understood is lost.
    #[test]
    fn a_foreign_word_in_a_report_costs_only_what_it_names() {
        let mut sample = report();
        for list in ["steps", "conditions", "heals"] {
            let one = sample[list][0].clone();
            sample[list] = json!([one.clone(), one]);
        }
        let mut all = Vec::new();
        places(&sample, "", &mut all);
        let deep = |at: &&String| at.matches('/').count() > 1 && !at.starts_with("/agent/");
        for at in all.iter().filter(deep) {
            for word in [json!("later"), json!({ "later": [1] })] {
                let mut body = sample.clone();
                *body.pointer_mut(at).unwrap() = word.clone();
                let read: api::Report =
                    serde_json::from_value(body).unwrap_or_else(|e| panic!("{at} {word}: {e}"));
                let parts: Vec<&str> = at.split('/').collect();
                let mut back = serde_json::to_value(read).unwrap();
                if let Value::Array(left) = &back[parts[1]] {
                    // The element itself may be gone, its neighbour is there.
                    assert!(left.contains(&sample[parts[1]][1]), "{at} {word}: {left:?}");
                }
                let mut rest = sample.clone();
                for body in [&mut back, &mut rest] {
                    body[parts[1]] = Value::Null;
                }
                assert_eq!(back, rest, "{at} {word}");
            }
        }
    }

    /// The places of a view where a word of tomorrow is not read, or not kept as it was said.
    fn deaf<T: serde::de::DeserializeOwned + serde::Serialize>(name: &str) -> Vec<String> {
        let (_, sample) = all().into_iter().find(|(n, _)| *n == name).unwrap();
        let mut all = Vec::new();
        places(&sample, "", &mut all);
        let word = json!("tomorrow");
        all.retain(|at| {
            let mut body = sample.clone();
            let place = body.pointer_mut(at).unwrap();
            if !place.is_string() {
                return false;
            }
            *place = word.clone();
            let read = serde_json::from_value::<T>(body);
            let back = read.map(|read| serde_json::to_value(read).unwrap());
            back.map_or(true, |back| back.pointer(at) != Some(&word))
        });
        all
    }

    /// H51: what a later hub shows in words of its own fails no answer to people, and is shown to them.
    #[test]
    fn who_reads_a_view_hears_words_of_a_later_hub() {
        let none: [&str; 0] = [];
        assert_eq!(deaf::<api::ToldCluster>("ClusterView"), none);
        assert_eq!(deaf::<api::ToldAdoption>("AdoptionAnswer"), none);
        assert_eq!(deaf::<api::ToldGitRoute>("GitRouteView"), none);
        assert_eq!(deaf::<api::ToldHeal>("HealView"), none);
        assert_eq!(deaf::<api::ToldGitHost>("GitHostView"), none);
        assert_eq!(deaf::<api::GrantView>("GrantView"), none);
        assert_eq!(deaf::<api::GrantCheck>("GrantCheck"), none);
        assert_eq!(deaf::<api::HubInfo>("HubInfo"), none);
        assert_eq!(deaf::<api::LineDetail>("LineDetail"), none);
        assert_eq!(deaf::<api::AuditView>("AuditView"), none);
        assert_eq!(deaf::<api::UserView>("UserView"), none);
        assert_eq!(deaf::<api::ApiTokenView>("ApiTokenView"), none);
        assert_eq!(deaf::<api::WhoAmI>("WhoAmI"), none);
        assert_eq!(deaf::<api::SignersView>("SignersView"), none);
        // A digest has a form, and is no word of a set.
        assert_eq!(deaf::<api::ToldBundle>("BundleView"), ["/digest"]);
        let mut cluster = cluster();
        cluster["scope"]["until"] = json!("tomorrow");
        let read: api::ToldCluster = serde_json::from_value(cluster).unwrap();
        assert_eq!(read.scope.unwrap().namespaces, ["shop"]);
    }

    /// H51: the same of other bodies between agent and hub.
    #[test]
    fn foreign_words_in_other_bodies_are_borne() {
        let mut answer = json!({ "id": "0197", "at": TIME, "components": [component()] });
        answer["components"][0]["works"] = json!("perhaps");
        let read: api::DiagnosisAnswer = serde_json::from_value(answer).unwrap();
        assert_eq!(read.components[0].works, api::Verdict::Unknown);
        let mut join = join_request();
        join["facts"]["nodes"] = json!({ "ready": 3 });
        let read: api::JoinRequest = serde_json::from_value(join).unwrap();
        assert_eq!(read.facts.len(), 1);
        let mut hub = hub_info();
        hub["trust"] = json!({ "later": 1 });
        let read: api::HubInfo = serde_json::from_value(hub).unwrap();
        assert_eq!(read.trust, None);
        let mut refusal = problem();
        refusal["now"] = json!("1");
        refusal["range"] = json!({ "min": 2, "max": 3 });
        let read: api::Problem = serde_json::from_value(refusal).unwrap();
        assert_eq!(read.more, [("now".to_owned(), "1".to_owned())].into());
        let order = json!({ "kind": "sleep", "until": { "day": 1 } });
        let read: api::Order = serde_json::from_value(order).unwrap();
        assert_eq!(read, api::Order::Unknown);
    }

    #[test]
    fn conditions_in_words_of_a_later_agent_are_kept_as_they_were_said() {
        let later = json!({ "type": "Later", "status": "Perhaps", "reason": "R", "message": "m", "since": TIME, "x": 1 });
        let odd = json!({ "type": "Synced", "status": "Perhaps" });
        let body = json!({ "conditions": [condition(), later, 7, odd, {}] });
        let read: crate::wire::report::LaterConditions =
            serde_json::from_value(body.clone()).unwrap();
        let kinds: Vec<_> = read.conditions.iter().map(|c| c.kind.as_str()).collect();
        assert_eq!(kinds, ["Later", "Synced"]);
        let known: api::Report = serde_json::from_value(body).unwrap();
        assert_eq!(known.conditions.map(|c| c.len()), Some(1));
        let none: crate::wire::report::LaterConditions = serde_json::from_value(json!({})).unwrap();
        assert!(none.conditions.is_empty());
    }

    #[test]
    fn each_sample_is_a_body_of_its_type() {
        assert!(reads_as::<api::HubInfo>("HubInfo"));
        assert!(reads_as::<api::JoinRequest>("JoinRequest"));
        assert!(reads_as::<api::Assignment>("Assignment"));
        assert!(reads_as::<api::Report>("Report"));
        assert!(reads_as::<api::ReportAck>("ReportAck"));
        assert!(reads_as::<api::DeployKeyRequest>("DeployKeyRequest"));
        assert!(reads_as::<api::DeployKeyStatus>("DeployKeyStatus"));
        assert!(reads_as::<api::Order>("Order"));
        assert!(reads_as::<api::DiagnosisAnswer>("DiagnosisAnswer"));
        assert!(reads_as::<api::Diagnosis>("Diagnosis"));
        assert!(reads_as::<api::ClusterView>("ClusterView"));
        assert!(reads_as::<api::NewCluster>("NewCluster"));
        assert!(reads_as::<api::NewJoinToken>("NewJoinToken"));
        assert!(reads_as::<api::PauseRequest>("PauseRequest"));
        assert!(reads_as::<api::HealCloseRequest>("HealCloseRequest"));
        assert!(reads_as::<api::LineDetail>("LineDetail"));
        assert!(reads_as::<api::AgentImageRequest>("AgentImageRequest"));
        assert!(reads_as::<api::AgentImageView>("AgentImageView"));
        assert!(reads_as::<api::GitRouteRequest>("GitRouteRequest"));
        assert!(reads_as::<api::GitRouteView>("GitRouteView"));
        assert!(reads_as::<api::EngineRequest>("EngineRequest"));
        assert!(reads_as::<api::EngineView>("EngineView"));
        assert!(reads_as::<api::RegistryRequest>("RegistryRequest"));
        assert!(reads_as::<api::RegistryView>("RegistryView"));
        assert!(reads_as::<api::Policy>("Policy"));
        assert!(reads_as::<api::AdoptionAnswer>("AdoptionAnswer"));
        assert!(reads_as::<api::HealView>("HealView"));
        assert!(reads_as::<api::AuditView>("AuditView"));
        assert!(reads_as::<api::AnchorView>("AnchorView"));
        assert!(reads_as::<api::NewGrant>("NewGrant"));
        assert!(reads_as::<api::GrantView>("GrantView"));
        assert!(reads_as::<api::GrantCheck>("GrantCheck"));
        assert!(reads_as::<api::NewUser>("NewUser"));
        assert!(reads_as::<api::UserChange>("UserChange"));
        assert!(reads_as::<api::UserView>("UserView"));
        assert!(reads_as::<api::NewApiToken>("NewApiToken"));
        assert!(reads_as::<api::ApiTokenView>("ApiTokenView"));
        assert!(reads_as::<api::ApiTokenAnswer>("ApiTokenAnswer"));
        assert!(reads_as::<api::DeviceLogin>("DeviceLogin"));
        assert!(reads_as::<api::TokenRequest>("TokenRequest"));
        assert!(reads_as::<api::SessionAnswer>("SessionAnswer"));
        assert!(reads_as::<api::EndSession>("EndSession"));
        assert!(reads_as::<api::BundleView>("BundleView"));
        assert!(reads_as::<api::WhoAmI>("WhoAmI"));
        assert!(reads_as::<api::CatalogView>("CatalogView"));
        assert!(reads_as::<api::NewSshKey>("NewSshKey"));
        assert!(reads_as::<api::NewSigner>("NewSigner"));
        assert!(reads_as::<api::DropSigner>("DropSigner"));
        assert!(reads_as::<api::SignersView>("SignersView"));
        assert!(reads_as::<api::GitHostView>("GitHostView"));
        assert!(reads_as::<api::AcceptHostKey>("AcceptHostKey"));
        assert!(reads_as::<api::DropHostKey>("DropHostKey"));
        assert!(reads_as::<api::RotateHostKey>("RotateHostKey"));
        assert!(reads_as::<api::Check>("Check"));
        assert!(reads_as::<api::Problem>("Problem"));
    }
}
