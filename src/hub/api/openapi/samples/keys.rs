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
        (
            "DeployKeyStatus",
            json!({ "state": "registered", "reason": "" }),
        ),
    ]
}
