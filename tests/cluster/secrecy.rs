//! H12, H13: no secret in any log, event, argument list or API answer.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::support::place::run;
use crate::support::world::{self, CLUSTER, World};

/// H12, H13: the join token, private keys and hub tokens stand nowhere but in their Secrets and files.
#[test]
#[ignore = "needs a real cluster: make test"]
fn no_secret_is_in_logs_events_arguments_or_answers() {
    let world = world::adopted();
    let canaries = canaries(&world);
    assert!(canaries.len() >= 4, "{} canaries", canaries.len());
    assert!(
        canaries.iter().all(|(_, c)| c.len() >= 16),
        "a canary is too short to mean anything"
    );
    let places = places(&world);
    for said in ["agent's log", &world.hub.log().display().to_string()] {
        let text = places.iter().find(|(place, _)| place == said);
        assert!(text.is_some_and(|(_, text)| !text.is_empty()), "{said}");
    }
    let mut found = Vec::new();
    for (place, text) in &places {
        let hits = canaries
            .iter()
            .filter(|(_, canary)| text.contains(canary.as_str()));
        found.extend(hits.map(|(what, _)| format!("{what} in {place}")));
    }
    assert!(found.is_empty(), "{found:#?}");
    println!(
        "{} secrets looked for in {} places",
        canaries.len(),
        places.len()
    );
}

/// What must not show, by name.
pub(crate) fn canaries(world: &World) -> Vec<(&'static str, String)> {
    let yaml = fs::read_to_string(&world.adopt).unwrap();
    let at = yaml.find("lmj1.").unwrap();
    let token: String = yaml[at..]
        .chars()
        .take_while(|c| c.is_ascii_alphanumeric() || "._-".contains(*c))
        .collect();
    let mut canaries = vec![
        ("admin token", secret_part(&world.hub.token())),
        ("join token", secret_part(&token)),
    ];
    let keys = world
        .api
        .get("/api/v1/namespaces/linesman/secrets/linesman-keys")
        .unwrap();
    for value in keys["data"].as_object().unwrap().values() {
        let text = String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap())
            .unwrap_or_default();
        // Public halves and how far a rotation is stand there, too.
        if !text.contains("PRIVATE KEY") {
            continue;
        }
        // Not the first lines of a PEM file, which all keys share. The last whole one begins with the seed; what follows
        // there is the public half again.
        let lines = text.lines().filter(|l| !l.starts_with("-----"));
        let line = lines.max_by_key(|l| l.len()).unwrap_or_default();
        canaries.push(("private key", line[8..36].to_owned()));
    }
    canaries
}

/// All that a person or a program may come to read.
fn places(world: &World) -> Vec<(String, String)> {
    let logs = ["-n", "linesman", "logs", "deployment/linesman-agent"];
    let mut places = vec![
        (
            "agent's log".to_owned(),
            run(world.place.kubectl().args(logs)),
        ),
        ("metrics".to_owned(), world.hub.health("/metrics").unwrap()),
        ("arguments".to_owned(), arguments()),
    ];
    for path in [
        "/api/v1/events",
        "/api/v1/pods",
        "/api/v1/configmaps",
        "/apis/apps/v1/deployments",
    ] {
        places.push((path.to_owned(), world.api.text(path).unwrap()));
    }
    for args in [
        vec!["cluster", "show", CLUSTER],
        vec!["cluster", "list"],
        vec!["heal", "list"],
        vec!["audit", "list"],
        vec!["engine", "list"],
        vec!["whoami"],
    ] {
        places.push((args.join(" "), world.hub.json(&args).to_string()));
    }
    // The hub's log, and the audit log of the API server.
    logs_of(&world.directory, &mut places);
    places
}

/// The part of a token after its id; the id may be shown.
fn secret_part(token: &str) -> String {
    token.rsplit('.').next().unwrap().to_owned()
}

/// All processes' arguments and the agent's environment as the API shows it.
fn arguments() -> String {
    let entries = fs::read_dir("/proc").unwrap();
    entries
        .filter_map(|e| fs::read_to_string(e.unwrap().path().join("cmdline")).ok())
        .collect::<Vec<_>>()
        .join("\n")
}

fn logs_of(directory: &Path, places: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "log") {
            places.push((
                path.display().to_string(),
                String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned(),
            ));
        }
    }
}
