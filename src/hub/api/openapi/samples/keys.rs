//! Samples of what is said of keys.

use serde_json::{Value, json};

pub(super) fn all() -> Vec<(&'static str, Value)> {
    vec![
        (
            "DeployKeyRequest",
            json!({ "publicKey": "ssh-ed25519 AAAA", "proof": "c2ln", "replaces": "ssh-ed25519 BBBB", "inUse": true }),
        ),
        (
            "RecoverRequest",
            json!({
                "cluster": "eu1", "incarnation": "uid", "newIdentityKey": "a2V5", "deployKey": "ssh-ed25519 AAAA", "sig": "c2ln",
            }),
        ),
        (
            "IdentityRequest",
            json!({ "newKey": "a2V5", "sigOld": "c2ln", "sigNew": "c2ln" }),
        ),
        (
            "RotateRequest",
            json!({ "deployKey": true, "identity": false }),
        ),
        ("RotateWish", json!({ "deployKey": "SHA256:AAAA" })),
        ("RevokeRequest", json!({ "reason": "a laptop was stolen" })),
        (
            "Revocation",
            json!({
                "cluster": "eu1", "keys": ["SHA256:AAAA"], "already": false,
                "next": "linesman cluster readopt eu1",
            }),
        ),
        (
            "SshKeyView",
            json!({
                "id": "0197", "user": "ada", "fingerprint": "SHA256:AAAA", "title": "laptop",
                "createdAt": "2026-01-01T00:00:00Z",
            }),
        ),
        ("GitHostView", githost()),
        (
            "AcceptHostKey",
            json!({ "fingerprint": "SHA256:AAAA", "knownHosts": "git.example ssh-ed25519 AAAA", "replace": false }),
        ),
        (
            "NewSigner",
            json!({ "publicKey": "-----BEGIN PGP PUBLIC KEY BLOCK-----", "force": false }),
        ),
        (
            "DropSigner",
            json!({ "fingerprint": "A8E973778FA2D35F068A767EC3EE2C3325042763", "force": false }),
        ),
        (
            "SignersView",
            json!({
                "keys": [{
                    "fingerprint": "A8E973778FA2D35F068A767EC3EE2C3325042763", "subkeys": [], "user": "Ada <ada@example.org>",
                    "publicKey": "-----BEGIN PGP PUBLIC KEY BLOCK-----", "addedBy": "admin", "addedAt": "2026-01-01T00:00:00Z",
                }],
                "head": "3f2a", "headSignedBy": "A8E973778FA2D35F068A767EC3EE2C3325042763", "notVerifying": ["us1"],
                "sshUnread": ["us1"],
            }),
        ),
        ("RotateHostKey", json!({ "now": false })),
        ("DropHostKey", json!({ "fingerprint": "SHA256:AAAA" })),
        (
            "DeployKeyStatus",
            json!({ "state": "registered", "reason": "" }),
        ),
    ]
}

pub(super) fn unknown_agents() -> Vec<(&'static str, Value)> {
    vec![
        (
            "UnknownAgentView",
            json!({
                "fingerprint": "SHA256:AAAA", "cluster": "eu1", "reason": "unknown-identity", "address": "192.0.2.1:4711",
                "incarnation": "5d0f", "firstSeen": "2026-01-01T00:00:00Z", "lastSeen": "2026-01-01T00:00:00Z",
            }),
        ),
        (
            "AcceptRequest",
            json!({
                "fingerprint": "SHA256:AAAA", "reason": "the hub was restored", "replace": false, "engine": "flux",
                "labels": { "env": "prod" },
            }),
        ),
        (
            "Acceptance",
            json!({ "cluster": "eu1", "created": true, "already": false, "ended": ["SHA256:BBBB"], "catalog": true }),
        ),
    ]
}

fn githost() -> Value {
    const TIME: &str = "2026-01-01T00:00:00Z";
    json!({
        "name": "builtin", "kind": "builtin", "url": "ssh://git@hub.example:2222/catalog.git",
        "knownHosts": "[hub.example]:2222 ssh-ed25519 AAAA",
        "keys": [{
            "type": "ssh-ed25519", "fingerprint": "SHA256:AAAA", "key": "ssh-ed25519 AAAA", "state": "current",
            "served": true, "source": "hub", "addedBy": "hub", "addedAt": TIME,
        }],
        "offered": [{
            "type": "ssh-ed25519", "fingerprint": "SHA256:BBBB", "key": "ssh-ed25519 BBBB", "seenBy": ["eu1"],
            "since": TIME,
        }],
        "waitsFor": ["eu2"],
        "clusters": [{
            "name": "eu1", "git": { "route": "auto", "via": "direct" }, "trusted": ["SHA256:AAAA"],
            "shown": "SHA256:BBBB", "mismatch": true, "reportedAt": TIME,
        }],
        "clustersTotal": 1,
    })
}
