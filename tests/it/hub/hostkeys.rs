//! W2, H18 at the hub: what clusters meet of the Git host's keys, and an operator's word on it.

mod stored;

use std::time::Duration;

use linesman::keys::KeyPair;
use linesman::ssh::known_hosts::HostKey;
use serde_json::{Value, json};

use super::slug;
use super::support::{Agent, TestHub};
use crate::wait::until_some;

const PATH: &str = "/v1/githosts/builtin";
const ACCEPT: &str = "/v1/githosts/builtin/host-keys";
const ROTATE: &str = "/v1/githosts/builtin/rotate-host-key";

fn key(seed: u8) -> HostKey {
    HostKey::ed25519(KeyPair::from_seed(&[seed; 32]).public())
}

async fn joined(hub: &TestHub, name: &str, seed: u8) -> Agent {
    let token = hub.add(name).await;
    let agent = Agent::new(seed);
    let (code, answer) = agent.join(hub, name, &token).await;
    assert_eq!(code, 200, "{answer}");
    agent
}

async fn met(agent: &Agent, hub: &TestHub, name: &str, key: &str, known: bool) {
    let report = json!({
        "hostKeys": {
            "trusted": ["SHA256:before"],
            "shown": {"key": key, "fingerprint": "SHA256:forged", "known": known, "since": "2026-01-01T00:00:00Z"},
        },
    });
    let path = format!("/v1/clusters/{name}/reports");
    let (code, ack) = agent.call(hub, "POST", &path, &report.to_string()).await;
    assert_eq!(code, 200, "{ack}");
}

async fn known_hosts(agent: &Agent, hub: &TestHub, name: &str) -> (u64, Vec<String>) {
    let path = format!("/v1/clusters/{name}/assignment");
    let (code, assignment) = agent.call(hub, "GET", &path, "").await;
    assert_eq!(code, 200, "{assignment}");
    let hosts = assignment["catalog"]["knownHosts"].as_str().unwrap();
    (
        assignment["revision"].as_u64().unwrap(),
        hosts.lines().map(str::to_owned).collect(),
    )
}

fn prints(host: &Value) -> Vec<(&str, &str)> {
    let keys = host["keys"].as_array().unwrap().iter();
    keys.map(|k| {
        (
            k["fingerprint"].as_str().unwrap(),
            k["state"].as_str().unwrap(),
        )
    })
    .collect()
}

/// The key that a cluster met is shown whole beside the known one; one call trusts it, every cluster is told, and it is
/// on record. The old one is told until it is dropped.
#[tokio::test]
async fn a_key_that_a_cluster_met_is_accepted_by_its_fingerprint() {
    let hub = TestHub::start("hostkey-accept").await;
    let agent = joined(&hub, "eu1", 1).await;
    let other = joined(&hub, "us1", 2).await;
    let own = hub.hub.git_keys.served();
    let new = key(50);
    let (before, lines) = known_hosts(&other, &hub, "us1").await;
    assert_eq!(lines.len(), 1);
    met(
        &agent,
        &hub,
        "eu1",
        &format!("{} a comment", new.text),
        false,
    )
    .await;
    let (_, host) = hub.get(PATH).await;
    assert_eq!(prints(&host), [(own.fingerprint.as_str(), "current")]);
    assert_eq!(
        host["offered"],
        json!([{
            "type": "ssh-ed25519", "fingerprint": new.fingerprint, "key": new.text, "seenBy": ["eu1"],
            "since": "2026-01-01T00:00:00Z",
        }])
    );
    let of = |host: &Value, n: usize| host["clusters"][n].clone();
    assert_eq!(of(&host, 0)["shown"], json!(new.fingerprint));
    assert_eq!(
        (&of(&host, 0)["mismatch"], &of(&host, 1)["mismatch"]),
        (&json!(true), &json!(false))
    );
    let stranger = json!({ "fingerprint": key(51).fingerprint });
    let (code, problem) = hub.post(ACCEPT, &stranger).await;
    assert_eq!((code, slug(&problem)), (404, "not-found"));

    let asked = json!({ "fingerprint": new.fingerprint });
    let (code, host) = hub.post(ACCEPT, &asked).await;
    assert_eq!(code, 200, "{host}");
    assert_eq!(
        prints(&host),
        [
            (own.fingerprint.as_str(), "old"),
            (new.fingerprint.as_str(), "current")
        ]
    );
    assert_eq!(host["keys"][1]["source"], json!("cluster eu1"));
    assert_eq!(host["offered"], json!([]));
    // Every cluster that follows the catalog is told both, the new one first.
    for (agent, name) in [(&agent, "eu1"), (&other, "us1")] {
        let (revision, lines) = known_hosts(agent, &hub, name).await;
        assert!(revision > before || name == "eu1");
        assert_eq!(lines.len(), 2);
        assert!(
            lines[0].ends_with(&new.text) && lines[1].ends_with(&own.text),
            "{lines:?}"
        );
    }
    // Again, it is the same; and on record once.
    assert_eq!(hub.post(ACCEPT, &asked).await, (200, host));
    let rows = hub.hub.store.audit_tail(None, 100).await.unwrap();
    let mine: Vec<_> = rows
        .iter()
        .filter(|r| r.action == "githost.accept-host-key" && r.actor == "user:admin")
        .collect();
    assert_eq!(mine.len(), 1);
    assert!(
        mine[0].target.contains(&new.fingerprint),
        "{}",
        mine[0].target
    );

    // The key of the hub's own server stays; another old one would go.
    let drop = json!({ "fingerprint": own.fingerprint });
    let (code, problem) = hub.post(&format!("{ACCEPT}/drop"), &drop).await;
    assert_eq!((code, slug(&problem)), (409, "host-key-needed"));
    hub.stop().await;
}

#[tokio::test]
async fn keys_of_a_file_are_checked_before_they_are_told_and_replace_drops_the_others() {
    let hub = TestHub::start("hostkey-file").await;
    let agent = joined(&hub, "eu1", 1).await;
    let own = hub.hub.git_keys.served();
    let (host, port) = hub.hub.git_keys.address();
    let address = format!("[{host}]:{port}");
    for (text, words) in [
        ("nonsense".to_owned(), "known_hosts line 1"),
        (format!("elsewhere {}", key(50).text), "it has no key for"),
        (String::new(), "it has no key for"),
    ] {
        let (code, problem) = hub.post(ACCEPT, &json!({ "knownHosts": text })).await;
        assert_eq!((code, slug(&problem)), (400, "bad-request"), "{text}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(words), "{detail}");
    }
    let (code, problem) = hub.post(ACCEPT, &json!({})).await;
    assert_eq!((code, slug(&problem)), (400, "bad-request"));
    let accept = async |seed: u8, replace: bool| {
        let text = format!("# of the Git host's owner\n{address} {}\n", key(seed).text);
        let asked = json!({ "knownHosts": text, "replace": replace });
        let (code, host) = hub.post(ACCEPT, &asked).await;
        assert_eq!(code, 200, "{host}");
        host
    };
    accept(50, false).await;
    let host = accept(51, false).await;
    assert_eq!(host["keys"].as_array().unwrap().len(), 3);
    let (code, host) = hub
        .post(
            &format!("{ACCEPT}/drop"),
            &json!({ "fingerprint": key(50).fingerprint }),
        )
        .await;
    assert_eq!((code, host["keys"].as_array().unwrap().len()), (200, 2));
    accept(52, true).await;
    let (_, lines) = known_hosts(&agent, &hub, "eu1").await;
    assert_eq!(
        lines,
        [
            format!("{address} {}", key(52).text),
            format!("{address} {}", own.text)
        ]
    );
    // Viewers look, and change nothing.
    let viewer = hub.user("vera", &["viewer"], &[]).await;
    let (code, _) = hub.call_as(&viewer, ("GET", PATH), &[], &Value::Null).await;
    assert_eq!(code, 200);
    let asked = json!({ "fingerprint": own.fingerprint });
    let (code, problem) = hub.call_as(&viewer, ("POST", ACCEPT), &[], &asked).await;
    assert_eq!((code, slug(&problem)), (403, "not-allowed"));
    let (code, problem) = hub.get("/v1/githosts/github").await;
    assert_eq!((code, slug(&problem)), (404, "not-found"));
    hub.stop().await;
}

/// What an agent says is bounded, and its word on a fingerprint counts for nothing.
#[tokio::test]
async fn a_report_of_nonsense_offers_nothing() {
    let hub = TestHub::start("hostkey-nonsense").await;
    let agent = joined(&hub, "eu1", 1).await;
    for text in ["nonsense", "ssh-ed25519 AAAA", "", &"x".repeat(5000)] {
        met(&agent, &hub, "eu1", text, false).await;
        let (_, host) = hub.get(PATH).await;
        assert_eq!(host["offered"], json!([]), "{text}");
        assert_eq!(host["clusters"][0].get("shown"), None);
    }
    hub.stop().await;
}

/// A hub whose host key file was lost serves another key: it is not told until someone says so.
#[tokio::test]
async fn a_lost_host_key_file_is_no_new_trust() {
    let hub = TestHub::start("hostkey-lost").await;
    let agent = joined(&hub, "eu1", 1).await;
    let (_, before) = known_hosts(&agent, &hub, "eu1").await;
    let copy = hub.crash().await;
    std::fs::remove_file(copy.join("git_host_key")).unwrap();
    let hub = TestHub::open("hostkey-lost", copy).await;
    let new = hub.hub.git_keys.served();
    let kept = |lines: &[String]| {
        let key = |l: &String| l.split_once(' ').unwrap().1.to_owned();
        lines.iter().map(key).collect::<Vec<_>>()
    };
    let (_, after) = known_hosts(&agent, &hub, "eu1").await;
    assert_eq!(kept(&after), kept(&before));
    let (_, host) = hub.get(PATH).await;
    assert_eq!(host["offered"][0]["seenBy"], json!(["hub"]));
    let asked = json!({ "fingerprint": new.fingerprint, "replace": true });
    let (code, host) = hub.post(ACCEPT, &asked).await;
    assert_eq!(code, 200, "{host}");
    let (_, after) = known_hosts(&agent, &hub, "eu1").await;
    assert_eq!(kept(&after), [new.text]);
    hub.stop().await;
}

async fn says(agent: &Agent, hub: &TestHub, trusted: &[&HostKey], shown: &HostKey) {
    let prints: Vec<&str> = trusted.iter().map(|k| k.fingerprint.as_str()).collect();
    let report = json!({
        "hostKeys": {
            "trusted": prints,
            "shown": {"key": shown.text, "fingerprint": "", "known": true, "since": "2026-01-01T00:00:00Z"},
        },
    });
    let path = "/v1/clusters/eu1/reports";
    let (code, ack) = agent.call(hub, "POST", path, &report.to_string()).await;
    assert_eq!(code, 200, "{ack}");
}

/// The key that the built-in Git server shows whoever connects, as this machine's OpenSSH scans it.
async fn shown(hub: &TestHub) -> String {
    let (_, port) = hub.hub.git_keys.address();
    let output = tokio::process::Command::new("ssh-keyscan")
        .args(["-t", "ed25519,ecdsa", "-p", &port.to_string(), "127.0.0.1"])
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text
        .lines()
        .find(|l| !l.starts_with('#'))
        .unwrap_or_default();
    line.split_once(' ')
        .map(|(_, key)| key.to_owned())
        .unwrap_or_default()
}

async fn until_keys(hub: &TestHub, expected: &[(&HostKey, &str)]) {
    let expected: Vec<(&str, &str)> = expected
        .iter()
        .map(|(k, s)| (k.fingerprint.as_str(), *s))
        .collect();
    let what = format!("the keys are {expected:?}");
    until_some(&what, Duration::from_mins(1), async || {
        let (_, host) = hub.get(PATH).await;
        if prints(&host) == expected {
            Ok(())
        } else {
            Err(host)
        }
    })
    .await;
}

/// W42: both keys are told before the new one is shown, and the old one until nobody is shown it any more; over a restart
/// of the hub in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hubs_own_host_key_is_replaced_in_two_phases() {
    let hub = TestHub::start("hostkey-rotate").await;
    let agent = joined(&hub, "eu1", 1).await;
    let old = hub.hub.git_keys.served();
    says(&agent, &hub, &[&old], &old).await;
    let (code, problem) = hub.post(ROTATE, &json!({ "now": true })).await;
    assert_eq!((code, slug(&problem)), (404, "not-found"));
    let (code, host) = hub.post(ROTATE, &json!({})).await;
    assert_eq!(code, 200, "{host}");
    assert_eq!(host["waitsFor"], json!(["eu1"]));
    let new = HostKey::parse(host["keys"][1]["key"].as_str().unwrap(), 1000).unwrap();
    // Flux trusts the first of each kind alone.
    let kinds = [&old, &new].map(|key| key.kind.as_str());
    assert_eq!(kinds, ["ssh-ed25519", "ecdsa-sha2-nistp256"]);
    assert_eq!(
        prints(&host),
        [
            (old.fingerprint.as_str(), "current"),
            (new.fingerprint.as_str(), "next")
        ]
    );
    // Again, it is the same rotation.
    let (_, again) = hub.post(ROTATE, &json!({})).await;
    assert_eq!(prints(&again), prints(&host));
    let (_, lines) = known_hosts(&agent, &hub, "eu1").await;
    assert!(
        lines[0].ends_with(&old.text) && lines[1].ends_with(&new.text),
        "{lines:?}"
    );
    assert_eq!(shown(&hub).await, old.text);

    // A hub that is started anew goes on, and shows what it showed.
    let hub = TestHub::open("hostkey-rotate", hub.crash().await).await;
    assert_eq!(shown(&hub).await, old.text);
    says(&agent, &hub, &[&old, &new], &old).await;
    until_keys(&hub, &[(&old, "old"), (&new, "current")]).await;
    assert_eq!(shown(&hub).await, new.text);
    let (_, lines) = known_hosts(&agent, &hub, "eu1").await;
    assert!(
        lines[0].ends_with(&new.text) && lines[1].ends_with(&old.text),
        "{lines:?}"
    );
    // The cluster was shown the new one: the old one goes.
    says(&agent, &hub, &[&old, &new], &new).await;
    until_keys(&hub, &[(&new, "current")]).await;
    let rows = hub.hub.store.audit_tail(None, 100).await.unwrap();
    let actions: Vec<(&str, &str)> = rows
        .iter()
        .filter(|r| r.action.starts_with("githost."))
        .map(|r| (r.actor.as_str(), r.action.as_str()))
        .collect();
    assert_eq!(
        actions,
        [
            ("user:admin", "githost.rotate-host-key"),
            ("hub", "githost.serve-host-key"),
            ("hub", "githost.drop-host-key")
        ]
    );
    let hub = TestHub::open("hostkey-rotate", hub.crash().await).await;
    assert_eq!(shown(&hub).await, new.text);
    // A key in wrong hands is replaced without waiting for anyone.
    hub.post(ROTATE, &json!({})).await;
    let (code, host) = hub.post(ROTATE, &json!({ "now": true })).await;
    assert_eq!(
        (code, &host["keys"][1]["served"]),
        (200, &json!(true)),
        "{host}"
    );
    let third = shown(&hub).await;
    assert!(
        third != new.text && third.starts_with("ssh-ed25519 "),
        "{third}"
    );
    hub.stop().await;
}

/// A data directory of before there were two kinds is taken over as it is.
#[tokio::test]
async fn a_host_key_under_the_name_that_it_had_before_is_shown_on() {
    let hub = TestHub::start("hostkey-name").await;
    let key = hub.hub.git_keys.served();
    let copy = hub.crash().await;
    std::fs::rename(copy.join("git_host_key"), copy.join("git_host_ed25519")).unwrap();
    let hub = TestHub::open("hostkey-name", copy).await;
    assert_eq!(hub.hub.git_keys.served(), key);
    hub.stop().await;
}
