//! A hub of a later version, in whose answers stand words that this program does not know.

use serde_json::{Value, json};

use super::import::{Answer, Mirror};
use super::{Home, Ran};

const TIME: &str = "2026-01-01T00:00:00.000Z";

/// Answers of a hub, served over TLS; whoever asks for another path gets 404.
struct Later {
    home: Home,
    hub: Mirror,
    ca: String,
}

impl Later {
    fn new() -> Self {
        let (home, hub) = (Home::new(), Mirror::start());
        let ca = home.write("ca.pem", &hub.ca).display().to_string();
        home.session(&hub.url(), "t", None);
        Self { home, hub, ca }
    }

    fn answers(&self, path: &str, body: &Value) {
        let file = Answer::File(body.to_string().into_bytes());
        self.hub.put(path, file);
    }

    fn list(&self, path: &str, items: &[&Value]) {
        self.answers(path, &json!({ "items": items }));
    }

    fn run(&self, args: &[&str]) -> Ran {
        let url = self.hub.url();
        let ran = self
            .home
            .run(&[args, &["--hub", &url, "--ca", &self.ca]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[args, &["-o", "json"]].concat()).out).unwrap()
    }
}

fn cluster(name: &str, phase: &str) -> Value {
    json!({
        "name": name, "id": name, "phase": phase, "engine": "flux", "engineVersion": "2.9.5", "labels": {},
        "line": { "up": true, "epoch": 7, "since": null, "remote": null, "rttMicros": null, "streams": 0 },
        "lastSeen": TIME, "revision": null, "agentVersion": "9.0.0", "catalogPath": "clusters/eu1",
        "git": { "route": "auto", "via": "direct" }, "createdAt": TIME, "steps": [], "conditions": [],
        "facts": {}, "keys": [], "rev": 4,
    })
}

/// A cluster of which every closed set says something new.
fn tomorrows() -> Value {
    let mut cluster = cluster("eu1", "Hibernating\u{1b}[2J");
    cluster["engine"] = json!("sveltos");
    cluster["git"] = json!({ "route": "relay", "via": "quic" });
    cluster["scope"] = json!({ "namespaces": ["shop"], "strict": false, "tenants": ["a"] });
    cluster["steps"] = json!([
        { "step": "join", "state": "done", "reason": "", "at": TIME },
        { "step": "attest", "state": "queued", "reason": "", "at": TIME },
    ]);
    cluster["conditions"] = json!([
        { "type": "Synced", "status": "Mostly", "reason": "Why", "message": "nine of ten", "since": TIME },
        { "type": "Compacted", "status": "True", "reason": "Why", "message": "tight", "since": TIME },
        { "type": "Uncovered", "status": "False", "reason": "Covered", "message": "", "since": TIME },
    ]);
    cluster
}

fn heal() -> Value {
    json!({
        "cluster": "eu1", "id": "0199-a-1111", "class": "Tomorrow", "object": "Deployment a/b", "evidence": "seen",
        "steps": [], "detectedAt": TIME, "result": "deferred",
    })
}

/// H51: a program that is older than its hub lists and shows what it is told, words that it does not know among it.
#[test]
fn a_later_hubs_words_are_listed_and_shown_as_they_were_said() {
    let later = Later::new();
    let (new, old) = (tomorrows(), cluster("ap1", "Broken"));
    later.list("/v1/clusters?limit=500", &[&old, &new]);
    later.answers("/v1/clusters/eu1", &new);
    let heal = heal();
    later.list("/v1/heals?cluster=eu1&limit=5", &[&heal]);
    later.list("/v1/heals?limit=51", &[&heal]);

    let list = later.run(&["cluster", "list"]).out;
    let row: Vec<Vec<&str>> = list
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(row[1][..3], ["eu1", "Hibernating[2J", "up"], "{list}");
    assert_eq!(row[1][4..6], ["sveltos", "2.9.5"], "{list}");
    assert_eq!(row[2][..2], ["ap1", "Broken"], "{list}");
    assert_eq!(later.json(&["cluster", "list"])[0]["phase"], new["phase"]);

    let shown = later.run(&["cluster", "show", "eu1"]).out;
    for part in [
        "git           quic\n",
        "covers        namespace shop\n",
        "attest  queued",
        "Synced     Mostly",
        "Compacted  True",
        "deferred",
    ] {
        assert!(shown.contains(part), "{part:?} in\n{shown}");
    }
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    let told = later.json(&["cluster", "show", "eu1"]);
    for part in ["phase", "engine", "git", "steps", "conditions"] {
        assert_eq!(told[part], new[part], "{part}");
    }
    assert_eq!(told["heals"][0]["result"], "deferred");
    let heals = later.run(&["heal", "list"]).out;
    assert!(heals.contains("deferred"), "{heals}");
}
