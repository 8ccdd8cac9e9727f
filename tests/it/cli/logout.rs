//! `logout`: which sessions it ends, and what is left in their file.

use std::fs;

use serde_json::Value;

use super::{Home, Ran, mode};

#[test]
fn logging_out_forgets_the_token() {
    let home = Home::new();
    home.session("https://hub.invalid", "lmt1.id.secret", None);
    let ran = home.run(&["logout"]);
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (0, "logged out of https://hub.invalid\n")
    );
    let kept = fs::read_to_string(home.0.join("state/linesman/sessions.json")).unwrap();
    assert!(!kept.contains("secret"), "{kept}");
    assert_eq!(mode(&home.0.join("state/linesman/sessions.json")), 0o600);
    home.run(&["whoami"]).fails(2, "no session is kept");
    let of = |hub: &str| serde_json::json!({ "token": format!("lmt1.of.{hub}"), "user": "ada" });
    let two = serde_json::json!({
        "current": "https://a.invalid",
        "hubs": { "https://a.invalid": of("a"), "https://b.invalid": of("b") },
    });
    home.write("state/linesman/sessions.json", &two.to_string());
    assert_eq!(home.run(&["logout"]).code, 0);
    let other = home.run(&["whoami"]);
    other.fails(2, "sessions are kept for https://b.invalid");
    assert!(
        other
            .err
            .ends_with("next:  name the hub: --hub https://b.invalid\n"),
        "{other:?}"
    );
}

/// It stopped every verb, those that need no session and the one that ends them among these.
#[test]
fn a_damaged_file_of_sessions_is_in_nobodys_way() {
    let home = Home::new();
    home.write("state/linesman/sessions.json", "{damaged");
    home.write("token", "lmt1.id.secret");
    let given = [
        "credential",
        "--hub",
        "https://hub.invalid",
        "--token-file",
        "token",
    ];
    let ran = home.run(&given);
    assert!(
        ran.code == 0 && ran.out.contains("lmt1.id.secret"),
        "{ran:?}"
    );
    for verb in ["whoami", "logout"] {
        let ran = home.run(&[verb]);
        ran.fails(1, "sessions.json does not hold sessions");
        assert!(ran.err.contains("linesman logout --all"), "{ran:?}");
    }
    let all = home.run(&["logout", "--all"]);
    let told = "what was kept could not be read and is forgotten; at the hubs it ends by itself\n";
    assert_eq!((all.code, all.err.as_str()), (0, told));
    home.run(&["whoami"]).fails(2, "no session is kept");
    let mut homeless = home.linesman(&["whoami"]);
    homeless.env_remove("HOME").env_remove("XDG_STATE_HOME");
    let ran = Ran::of(&homeless.output().unwrap());
    ran.fails(1, "sessions have no place");
    assert!(ran.err.contains("LINESMAN_TOKEN_FILE"), "{ran:?}");
}

/// As with every other verb, the hub is that of the environment where the command line names none.
#[test]
fn logging_out_is_of_the_hub_that_is_meant() {
    let home = Home::new();
    let of = |hub: &str| serde_json::json!({ "token": format!("lmt1.of.{hub}"), "user": "ada" });
    let hubs = ["a", "b", "c"].map(|hub| (format!("https://{hub}.invalid"), of(hub)));
    let hubs: serde_json::Map<String, Value> = hubs.into_iter().collect();
    let kept = serde_json::json!({ "current": "https://a.invalid", "hubs": hubs });
    home.write("state/linesman/sessions.json", &kept.to_string());
    let mut command = home.linesman(&["logout"]);
    let by_variable = command.env("LINESMAN_HUB", "b.invalid").output().unwrap();
    assert_eq!(
        Ran::of(&by_variable).err,
        "logged out of https://b.invalid\n"
    );
    let by_flag = home.run(&["logout", "--hub", "c.invalid"]);
    assert_eq!(by_flag.err, "logged out of https://c.invalid\n");
    assert_eq!(
        home.run(&["logout"]).err,
        "logged out of https://a.invalid\n"
    );
}
