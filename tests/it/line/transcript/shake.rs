//! The handshake of a transcript: made, compared, and as a later build would say it.

use std::time::Duration;

use bytes::Bytes;
use linesman::keys::{KeyPair, Public, sha256};
use linesman::tunnel::handshake::{self, Agent, Limits, Welcome};
use linesman::wire::api::{AgentBuild, HubKey};
use serde_json::{Value, json};

use super::play;
use super::text::{End, Entry, Shaken};

/// What stands before the digests that are signed (`docs/protocol.md`).
pub(super) const AGENT: &[u8] = b"linesman-line/1 agent\n";
pub(super) const HUB: &[u8] = b"linesman-line/1 hub\n";

/// What signs; every transcript is made with these.
pub(super) fn identity() -> KeyPair {
    KeyPair::from_seed(&[1; 32])
}

pub(super) fn hub_key() -> KeyPair {
    KeyPair::from_seed(&[9; 32])
}

/// The handshake of this build.
pub(super) fn shake() -> [Shaken; 3] {
    let cluster = "eu1".parse().unwrap();
    let build = AgentBuild {
        version: "0.1.0".to_owned(),
        image: "registry.example/linesman@sha256:00".to_owned(),
        arch: "amd64".to_owned(),
        features: vec!["replaces-engines".to_owned()],
    };
    let challenge = handshake::challenge("hub-1", [2; 32], 1_700_000_000_000);
    let identity = identity();
    let agent = Agent {
        cluster: &cluster,
        identity: &identity,
        hub: "hub-1",
        host: "hub.example:8443",
        nonce: [3; 32],
        instance: "0190-agent",
        resumes: Some(6),
        cap: Some(Duration::from_mins(5)),
        build: &build,
        keyset: &keyset(&["old".to_owned()]),
    };
    let hello = handshake::hello(&challenge, &agent).unwrap();
    let welcome = Welcome {
        epoch: 7,
        session: "0190-session".to_owned(),
        replica: "hub-1".to_owned(),
        time_ms: 1_700_000_000_001,
        features: vec![],
        limits: Limits::default(),
        keyset: Some(keyset(&["old".to_owned(), "new".to_owned()])),
    };
    let welcome = handshake::welcome(&hello, &welcome, |message| hub_key().sign(message));
    [
        shaken("CHALLENGE", &challenge),
        shaken("HELLO", &hello),
        shaken("WELCOME", &welcome),
    ]
}

pub(super) fn keyset(kids: &[String]) -> Vec<HubKey> {
    let key = |kid: &String| HubKey {
        kid: kid.clone(),
        key: hub_key().public().to_base64(),
        not_after: None,
    };
    kids.iter().map(key).collect()
}

pub(super) fn shaken(name: &str, payload: &[u8]) -> Shaken {
    let signed = name != "CHALLENGE";
    let (json, signature) = payload.split_at(payload.len() - if signed { 64 } else { 0 });
    Shaken {
        name: name.to_owned(),
        json: String::from_utf8(json.to_vec()).unwrap(),
        signature: signed.then(|| signature.try_into().unwrap()),
    }
}

/// What is signed, as `docs/protocol.md` says it.
pub(super) fn proven(
    prefix: &[u8],
    asked: &[u8],
    answer: &Shaken,
    key: Public,
) -> Result<(), String> {
    let digests = [sha256(asked), sha256(answer.json.as_bytes())].concat();
    let signature = answer.signature.unwrap();
    if key.verify(&[prefix, &digests].concat(), &signature) {
        Ok(())
    } else {
        Err(format!("the signature of {}", answer.name))
    }
}

/// Whether what this build says holds all that was said then, with the same meaning. It may say more.
pub(super) fn covers(recorded: &Shaken, live: &Shaken) -> Result<(), String> {
    let value = |shaken: &Shaken| serde_json::from_str::<Value>(&shaken.json).unwrap();
    missing(&recorded.name, &value(recorded), &value(live))
}

fn missing(path: &str, recorded: &Value, live: &Value) -> Result<(), String> {
    let wrong = || Err(format!("{path}: {live} instead of {recorded}"));
    match (recorded, live) {
        (Value::Object(recorded), Value::Object(live)) => {
            recorded.iter().try_for_each(|(name, value)| {
                let path = format!("{path}.{name}");
                missing(&path, value, live.get(name).unwrap_or(&Value::Null))
            })
        }
        (Value::Array(range), Value::Array(live)) if path == "CHALLENGE.v" => {
            let common =
                live[0].as_u64() <= range[1].as_u64() && range[0].as_u64() <= live[1].as_u64();
            if common { Ok(()) } else { wrong() }
        }
        // Each end says its own.
        (Value::Number(_), Value::Number(_)) if path.contains(".limits.") => Ok(()),
        (Value::Array(recorded), Value::Array(live)) if path.ends_with(".features") => {
            if recorded.iter().all(|word| live.contains(word)) {
                Ok(())
            } else {
                wrong()
            }
        }
        (Value::Array(recorded), Value::Array(live)) if recorded.len() == live.len() => {
            let mut pairs = recorded.iter().zip(live);
            pairs.try_for_each(|(recorded, live)| missing(path, recorded, live))
        }
        _ if recorded == live => Ok(()),
        _ => wrong(),
    }
}

/// As the same transcript would be where `end` were of a later build: fields, frames and flags that this one does not
/// know.
pub(super) fn later(end: End, entries: &[Entry]) -> Vec<Entry> {
    let mut later = play::later(end, entries);
    let mut asked = Bytes::new();
    for entry in &mut later {
        let Entry::Shake(by, shaken) = entry else {
            continue;
        };
        if *by == end {
            let mut value = serde_json::from_str(&shaken.json).unwrap();
            grow(&mut value);
            shaken.json = value.to_string();
            let (prefix, key) = match end {
                End::Agent => (AGENT, identity()),
                End::Hub => (HUB, hub_key()),
            };
            let digests = [sha256(&asked), sha256(shaken.json.as_bytes())].concat();
            let sign = |_| key.sign(&[prefix, &digests].concat());
            shaken.signature = shaken.signature.map(sign);
        }
        asked = shaken.payload();
    }
    later
}

/// A field more in every object, and a word more in every list of features.
fn grow(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Array(words)) = fields.get_mut("features") {
                words.push(json!("later"));
            }
            fields.values_mut().for_each(grow);
            fields.insert("later".to_owned(), json!({"of": [1, null, "a"]}));
        }
        Value::Array(values) => values.iter_mut().for_each(grow),
        _ => {}
    }
}
