//! Samples of the bodies about who may do what, and who did.

use serde_json::{Value, json};

use super::TIME;

pub(super) fn all() -> Vec<(&'static str, Value)> {
    vec![
        ("AuditView", audit()),
        (
            "AnchorView",
            json!({ "seq": 9, "hash": "00", "at": 1_767_323_045_678_i64, "sig": "c2ln", "start": false, "key": "a2V5" }),
        ),
        (
            "WhoAmI",
            json!({ "user": "admin", "roles": ["admin"], "groups": ["admin"], "scopes": [], "expiresAt": TIME, "vouchedUntil": TIME, "hub": "https://hub.example" }),
        ),
        (
            "DeviceLogin",
            json!({
                "deviceCode": "secret", "userCode": "BCDF-GHJK", "verificationUri": "https://hub.example/device",
                "verificationUriComplete": "https://hub.example/device?code=BCDF-GHJK", "expiresIn": 600, "interval": 5,
            }),
        ),
        (
            "TokenRequest",
            json!({ "grant": "refresh", "refreshToken": "lmr1.id.secret" }),
        ),
        (
            "SessionAnswer",
            json!({
                "user": "ada", "accessToken": "lma1.id.secret", "accessExpiresAt": TIME,
                "refreshToken": "lmr1.id.secret", "expiresAt": TIME,
            }),
        ),
        (
            "LoginCode",
            json!({ "user": "ada", "code": "lml1.id.secret", "expiresAt": TIME }),
        ),
        ("EndSession", json!({ "refreshToken": "lmr1.id.secret" })),
        ("NewGrant", new_grant()),
        ("GrantView", grant()),
        ("GrantCheck", grant_check()),
        (
            "NewUser",
            json!({ "name": "ada", "roles": ["operator"], "groups": ["sre"] }),
        ),
        (
            "UserChange",
            json!({ "roles": ["viewer"], "groups": ["sre"] }),
        ),
        (
            "UserView",
            json!({
                "name": "ada", "roles": ["operator"], "groups": ["sre"], "tokens": 1, "provider": "https://id.example", "rev": 3,
                "rolesByGroup": [{ "role": "admin", "group": "sre", "inForce": true }],
            }),
        ),
        (
            "NewApiToken",
            json!({ "user": "ci", "title": "deploy", "lasts": 2_592_000, "scopes": ["kube"], "clusters": ["eu1"] }),
        ),
        (
            "LabelsRequest",
            json!({ "set": { "env": "prod" }, "remove": ["frozen"], "overwrite": true }),
        ),
        ("LabelsView", json!({ "labels": { "env": "prod" } })),
        ("ApiTokenView", api_token()),
        ("ApiTokenAnswer", {
            let mut answer = api_token();
            answer["token"] = "lmt1.id.secret".into();
            answer
        }),
    ]
}

fn new_grant() -> Value {
    json!({
        "subject": "group:sre", "clusters": { "labels": "env=prod,!frozen" }, "groups": ["edit"],
        "actAs": ["group:edit", "user:bob"], "namespaces": ["shop"], "readOnly": false, "lasts": 7_200, "reason": "TICKET-1",
    })
}

fn grant() -> Value {
    json!({
        "id": "0197", "subject": "group:sre", "clusters": { "labels": "env=prod,!frozen" }, "groups": ["edit"],
        "actAs": ["group:edit", "user:bob"], "namespaces": ["shop"], "readOnly": false, "expiresAt": TIME, "revokedAt": TIME, "revokedBy": "bob",
        "over": false, "reason": "TICKET-1",
        "createdBy": "admin", "createdAt": TIME, "rev": 1,
    })
}

fn grant_check() -> Value {
    json!({
        "user": "ada", "known": true, "userGroups": ["sre"], "groupsLapsed": "groups do not count, for …", "cluster": "eu1",
        "allowed": true, "reason": "by grant 0197", "next": "", "actsAs": "linesman:ada", "actsIn": ["linesman:edit"], "access": "edit",
        "opinions": [{ "grant": grant(), "says": true, "why": "" }],
    })
}

fn api_token() -> Value {
    json!({
        "id": "q83vEjRWeJASNFZ4kKvN7w", "user": "ci", "title": "deploy", "scopes": ["kube"], "clusters": ["eu1"], "createdBy": "admin",
        "createdAt": TIME, "expiresAt": TIME, "vouchedUntil": TIME,
    })
}

fn audit() -> Value {
    json!({
        "seq": 1, "at": TIME, "stage": "open", "actor": "user:admin", "action": "kube.get", "actedAs": "linesman:bob", "cluster": "eu1",
        "target": "GET /api/v1/pods", "container": "web", "command": "sh -c 'ls /'", "ports": "8080,5432", "requestId": "0197",
        "verdict": "allow", "reason": "", "opened": 1, "code": 101, "exit": 137, "bytes": 512, "millis": 3, "remote": "192.0.2.1:40000",
        "prev": "00", "hash": "00",
    })
}
