//! Grants, users, tokens and the audit as an operator uses them.

use linesman::keys::KeyPair;
use serde_json::{Value, json};

use super::hub::{Hub, json_of};
use super::{Home, mode};

mod grants;

/// H59: what takes something away does not do so unasked, and says how it would.
fn asks(home: &Home, args: &[&str]) {
    let asked = home.run(args);
    asked.fails(2, "needs a yes, and nobody is here to ask");
    let unasked = format!("next:  run: linesman {} --yes\n", args.join(" "));
    assert!(asked.err.ends_with(&unasked), "{asked:?}");
}

/// Followed to the letter, the command does what was asked: no engine is handed over, no reason is lost.
#[test]
fn the_command_that_does_not_ask_has_all_that_was_given() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    assert_eq!(home.run(&["cluster", "add", "eu1"]).code, 0);
    asks(&home, &["cluster", "revoke", "eu1"]);
    asks(&home, &["cluster", "revoke", "eu1", "--reason", "x"]);
    // At the hub that was named, and no other one.
    let (token, ca) = (hub.token_file(), hub.ca_file());
    let there = ["--hub", &hub.url, "--token-file", &token, "--ca", &ca];
    for verb in [["cluster", "remove", "eu1"], ["user", "remove", "admin"]] {
        asks(&home, &[&verb[..], &there].concat());
    }
    let public = KeyPair::from_seed(&[70; 32]).public();
    let (print, key) = (public.fingerprint(), public.openssh("").unwrap());
    execute(
        hub.data(),
        format!(
            "INSERT INTO unknown_agent (fingerprint, public, cluster, reason, addr, first_seen, last_seen)
             VALUES ('{print}', '{key}', 'eu1', 'unknown-identity', '192.0.2.7:1', 1, 1)"
        ),
    );
    let accept = ["cluster", "accept", &print];
    asks(&home, &accept);
    asks(
        &home,
        &[&accept[..], &["--engine", "argocd", "--replace"]].concat(),
    );
    let because = ["--label", "env=prod", "--reason", "two words"];
    home.run(&[&accept[..], &because].concat()).fails(
        2,
        &format!(
            "run: linesman cluster accept {print} --label env=prod --reason 'two words' --yes\n"
        ),
    );
}

#[test]
fn a_users_token_is_made_used_and_revoked() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    let add = home.run(&[
        "user", "add", "ada", "--role", "viewer", "--group", "sre", "-o", "name",
    ]);
    assert_eq!((add.code, add.out.as_str()), (0, "ada\n"), "{add:?}");
    let create = [
        "token", "create", "--user", "ada", "--title", "laptop", "--for", "1h",
    ];
    // Its name alone would be all that is left of it.
    home.run(&[&create[..], &["-o", "name"]].concat())
        .fails(2, "the token would be lost");
    let list = ["token", "list", "--user", "ada", "-o", "json"];
    assert_eq!(json_of(&home.run(&list)), json!([]));
    let made = home.run(&[&create[..], &["--file", "ada.token", "-o", "json"]].concat());
    let told = json_of(&made);
    assert_eq!(
        (made.code, &told["user"], &told["token"]),
        (0, &json!("ada"), &json!(null))
    );
    assert!(
        !made.err.contains("lmt1.") && !made.out.contains("lmt1."),
        "{made:?}"
    );
    assert_eq!(mode(&home.0.join("ada.token")), 0o600);
    let as_ada = |args: &[&str]| home.run(&[args, &["--token-file", "ada.token"]].concat());
    let me = json_of(&as_ada(&["whoami", "-o", "json"]));
    assert_eq!(
        (&me["user"], &me["groups"][0]),
        (&Value::from("ada"), &Value::from("sre"))
    );
    as_ada(&["user", "add", "eve"]).fails(4, "lacks the role admin");
    let set = ["user", "set", "ada", "--role", "auditor", "--no-groups"];
    let changed = json_of(&home.run(&[&set[..], &["-o", "json"]].concat()));
    assert_eq!(
        (&changed[0]["roles"][0], &changed[0]["groups"]),
        (&Value::from("auditor"), &Value::Array(vec![]))
    );
    assert_eq!(home.run(&["user", "set", "ada"]).code, 2);
    assert_eq!(
        home.run(&["user", "set", "ada", "--role", "admin", "--no-roles"])
            .code,
        2
    );
    let scoped = ["token", "create", "--title", "ci", "--cluster", "eu1"];
    home.run(&scoped).fails(2, "the scopes kube or kube-read");
    let tokens = json_of(&home.run(&["token", "list", "--user", "ada", "-o", "json"]));
    let id = tokens[0]["id"].as_str().unwrap();
    asks(&home, &["token", "revoke", id]);
    // Whose tokens there are is an admin's to know: nobody is refused for asking about one.
    as_ada(&["token", "revoke", "nobodys"]).fails(3, "there is no token 'nobodys'");
    let yes = home.run(&["token", "revoke", id, "--yes"]);
    assert_eq!(yes.code, 0, "{yes:?}");
    as_ada(&["whoami"]).fails(4, "expired or revoked");
    asks(&home, &["user", "remove", "ada"]);
    assert_eq!(home.run(&["user", "remove", "ada", "--yes"]).code, 0);
    home.run(&["user", "remove", "ada"])
        .fails(3, "show user ada");
    home.run(&["user", "remove", "ada", "--yes"])
        .fails(3, "remove user ada");
    home.run(&["user", "remove", "admin", "--yes"])
        .fails(5, "nobody could administer the hub");
}

/// The bound on tokens is told with what gets a user below it.
#[test]
fn one_token_too_many_is_refused_with_a_next_action() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    assert_eq!(home.run(&["user", "add", "ada"]).code, 0);
    let create = ["token", "create", "--user", "ada", "--title", "laptop"];
    let made = home.run(&[&create[..], &["--file", "laptop.token", "-o", "name"]].concat());
    assert_eq!(made.code, 0, "{made:?}");
    let id = made.out.trim();
    execute(
        hub.data(),
        format!(
            "INSERT INTO api_token (id, user_id, hash, title, expires_at, created_at)
             WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
             SELECT 'copy-' || i, user_id, hash, title, expires_at, created_at FROM api_token, n WHERE id = '{id}'"
        ),
    );
    let full = home.run(&create);
    full.fails(5, "the user has 200 tokens in force");
    assert!(full.err.contains("linesman token revoke ID"), "{full:?}");
    assert_eq!(home.run(&["token", "revoke", id, "--yes"]).code, 0);
    home.run(&["token", "revoke", id])
        .fails(3, "there is no token");
    assert_eq!(home.run(&create).code, 0);
}

#[test]
fn the_audit_is_exported_and_a_changed_record_is_named() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    for name in ["ada", "bob"] {
        assert_eq!(home.run(&["user", "add", name]).code, 0);
    }
    let tail = home.run(&[
        "audit",
        "tail",
        "--last",
        "1",
        "--user",
        "admin",
        "--verdict",
        "allow",
    ]);
    let last: Value = serde_json::from_str(&tail.out).unwrap();
    assert_eq!(last["action"], "audit.read", "{tail:?}");
    let exported = home.run(&["audit", "export", "--since", "1h", "--file", "audit.jsonl"]);
    assert!(
        exported.code == 0 && exported.err.contains("records in audit.jsonl"),
        "{exported:?}"
    );
    let text = std::fs::read_to_string(home.0.join("audit.jsonl")).unwrap();
    let actions: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["action"].clone())
        .collect();
    assert_eq!(actions[..2], ["user.add", "user.add"]);
    let whole = home.run(&["audit", "verify"]);
    assert!(
        whole.code == 0 && whole.out.starts_with("the audit is whole: "),
        "{whole:?}"
    );
    // Beside what was kept elsewhere a cut end is found.
    let beside = home.run(&["audit", "verify", "--anchor", "audit.jsonl"]);
    assert!(
        beside.code == 0 && beside.out.contains(" lines of what was kept fit\n"),
        "{beside:?}"
    );
    let beyond = format!("999999:{}", "0".repeat(64));
    home.run(&["audit", "verify", "--record", &beyond])
        .fails(1, "its end was cut off");
    let data = hub.data().to_str().unwrap().to_owned();
    let offline = home.run(&["audit", "verify", "--data", &data]);
    assert!(
        offline.code == 0 && offline.out.starts_with("the audit is whole: "),
        "{offline:?}"
    );
    for (change, back) in [
        ("millis = -1", "millis = NULL"),
        ("bytes = -1", "bytes = NULL"),
        ("target = 'someone else'", ""),
    ] {
        tamper(hub.data(), change);
        home.run(&["audit", "verify", "--data", &data])
            .fails(1, "record 2 was changed");
        home.run(&["audit", "verify"])
            .fails(1, "record 2 was changed");
        if !back.is_empty() {
            tamper(hub.data(), back);
            assert_eq!(home.run(&["audit", "verify"]).code, 0, "{back}");
        }
    }
}

fn tamper(data: &std::path::Path, change: &str) {
    execute(data, format!("UPDATE audit SET {change} WHERE seq = 2"));
}

/// Behind the hub's back.
pub(super) fn execute(data: &std::path::Path, statement: String) {
    use sqlx::Connection as _;
    let url = format!("sqlite://{}", data.join("hub.db").display());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
        let statement = sqlx::AssertSqlSafe(statement);
        sqlx::query(statement)
            .execute(&mut connection)
            .await
            .unwrap();
        connection.close().await.unwrap();
    });
}

/// W43: without the last key nothing is verified any more.
#[test]
fn a_signer_goes_by_a_yes_only() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    home.write("ada.asc", include_str!("../hub/signers/ada.asc"));
    let add = ["catalog", "signer", "add", "ada.asc", "--force"];
    let signers = json_of(&home.run(&[&add[..], &["-o", "json"]].concat()));
    let print = signers["keys"][0]["fingerprint"].as_str().unwrap();
    asks(&home, &["catalog", "signer", "remove", print, "--force"]);
    let gone = home.run(&["catalog", "signer", "remove", print, "--force", "--yes"]);
    assert!(
        gone.code == 0 && gone.err.contains("nothing is verified any more"),
        "{gone:?}"
    );
    home.run(&["catalog", "signer", "remove", print])
        .fails(3, print);
}
