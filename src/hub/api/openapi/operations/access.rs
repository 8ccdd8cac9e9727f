//! Who may what: users, their logins, tokens and grants, and the record of it.

use super::Caller::{Anyone, User};
use super::{Operation, operation};

pub(super) const ALL: &[Operation] = &[
    operation(
        ("get", "/v1/audit"),
        User,
        "The audit chain (user, cluster, verdict, stage, action, namespace, request, since, until, limit, after, wait); reading is on record",
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
        "Who may reach which clusters as what (user, cluster, over); without the role access, the caller's own",
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
        ("post", "/v1/users/{name}/sessions/end"),
        User,
        "End all sessions of a user, one's own or, for admins, anybody's; what runs by them is cut",
        ("", ""),
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
        ("get", "/v1/api-tokens/{id}"),
        User,
        "One token in force: the caller's, or anyone's for admins",
        ("", "ApiTokenView"),
    ),
    operation(
        ("delete", "/v1/api-tokens/{id}"),
        User,
        "Revoke a token; what runs by it is cut",
        ("", ""),
    ),
    operation(("get", "/v1/whoami"), User, "The caller", ("", "WhoAmI")),
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
];
