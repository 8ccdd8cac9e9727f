//! One sample of each body, as JSON. A test reads each as its type, so a renamed field is noticed.

use serde_json::{Value, json};

mod access;
mod engine;
mod keys;

const AGENT_IMAGE: &str = "registry.example.org/linesman-agent@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Name and sample of every body that operations name.
pub fn all() -> Vec<(&'static str, Value)> {
    [
        parts(),
        access::all(),
        engine::all(),
        keys::all(),
        keys::unknown_agents(),
        agent_copy(),
    ]
    .concat()
}

fn agent_copy() -> Vec<(&'static str, Value)> {
    vec![
        ("AgentCopyRequest", json!({ "kept": true })),
        (
            "AgentCopyView",
            json!({ "kept": true, "proposed": "linesman-agent/eu1" }),
        ),
    ]
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
            json!({ "name": "eu1", "engine": "flux", "labels": { "env": "prod" }, "gitRoute": "auto", "agentCopy": true, "adoption": adoption() }),
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
            "LiftRequest",
            json!({ "reason": "the image is in the registry now" }),
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
        ("AgentImageView", json!({ "image": AGENT_IMAGE, "wish": 3 })),
        ("GitRouteRequest", json!({ "route": "line" })),
        ("GitRouteView", json!({ "route": "auto", "via": "line" })),
        (
            "Policy",
            json!({ "snapshotAfter": 600, "probeEvery": 300, "pausedUntil": TIME, "pauseReason": "node upgrade (admin)", "liftBefore": TIME }),
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
        "trust": trust_bundle(), "trustChain": [trust_bundle()],
    })
}

fn trust_bundle() -> Value {
    let key = json!({ "kid": "k1", "key": "a2V5", "notAfter": 1_767_323_045 });
    json!({ "version": 1_767_323_045, "urls": ["https://hub.example"], "ca": "", "keyset": [key], "sig": "c2ln" })
}

fn join_request() -> Value {
    json!({
        "protocol": { "min": 1, "max": 1 }, "token": "lmj1.id.secret", "cluster": "eu1",
        "incarnation": "uid", "identityKey": "a2V5", "deployKey": "ssh-ed25519 AAAA",
        "deployProof": "c2ln", "agent": build(), "facts": { "kubernetes.version": "v1.35.4" },
    })
}

fn build() -> Value {
    json!({ "version": "0.1.0", "image": "linesman-agent:0.1.0", "arch": "x86_64", "features": ["line"] })
}

fn assignment() -> Value {
    let key = json!({ "kid": "k1", "key": "a2V5", "notAfter": 1_767_323_045 });
    json!({
        "cluster": { "name": "eu1", "id": "0197" },
        "hub": { "id": "0197", "urls": ["https://hub.example"], "ca": "", "keyset": [key] },
        "trust": trust_bundle(),
        "trustChain": [trust_bundle()],
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
            "uid": "7c0e", "log": ["panic: out of memory"], "revisionAfter": "main@sha1:3f2a", "remade": { "count": 1, "objects": ["ConfigMap shop/settings"] },
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
        "scope": { "namespaces": ["shop"], "strict": false }, "access": "edit", "createdAt": TIME, "steps": [step()], "conditions": [condition()],
        "laterConditions": [{ "type": "Later", "status": "True", "reason": "Applied", "message": "", "since": TIME }],
        "facts": { "nodes.count": "3" },
        "agentCopy": {
            "kept": true, "current": false, "proposed": "linesman-agent/eu1", "applied": true, "trouble": "no space is left",
        },
        "otherWay": {
            "url": "ssh://git@linesman-git.linesman.svc/catalog.git", "files": ["clusters/eu1/shop.yaml"], "proposed": "linesman-git/eu1",
        },
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
    view["throughHub"] = json!([{
        "at": TIME, "actor": "user:ada", "action": "kube.patch",
        "target": "/apis/apps/v1/namespaces/flux-system/deployments/source-controller/scale", "requestId": "0197",
    }]);
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
mod tests;
