use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use kube::client::Body;

use super::*;

fn object(pairs: &[(&str, &str)]) -> Object {
    let data = pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec()))
        .collect();
    super::object(JOIN_SECRET, &data)
}

#[test]
fn the_join_secret_of_the_manifests_is_read() {
    let mut object = object(&[
        ("token", "lmj1.a.b\n"),
        ("hub", "https://hub.example.com"),
        ("hub-key", "k1 AAAA\n"),
        ("ca.crt", ""),
        ("cluster", "eu1"),
        ("proxy", "http://user:p%40ss@proxy:3128/"),
        ("no-proxy", ".svc,10.0.0.0/8"),
    ]);
    object.metadata.annotations = Some([(LAST_APPLIED.to_owned(), "{}".to_owned())].into());
    let join = Join::read(&object).unwrap();
    assert_eq!(join.token, Some(Secret::new("lmj1.a.b".to_owned())));
    assert!(join.echoed);
    assert_eq!(join.cluster.as_str(), "eu1");
    assert_eq!(join.hub_keys.len(), 1);
    let proxy = join.proxy.unwrap();
    assert_eq!(proxy.address, "proxy:3128");
    assert_eq!(proxy.credentials, Some(Secret::new("user:p@ss".to_owned())));
    assert_eq!(proxy.bypass, [".svc", "10.0.0.0/8"]);
}

#[test]
fn a_join_secret_without_hub_or_cluster_names_the_key() {
    let error = Join::read(&object(&[("cluster", "eu1")])).unwrap_err();
    assert!(format!("{error:#}").contains("'hub'"), "{error:#}");
    let error = Join::read(&object(&[("hub", "https://h")])).unwrap_err();
    assert!(format!("{error:#}").contains("'cluster'"), "{error:#}");
    let bad = [("hub", "https://h"), ("cluster", "eu1"), ("proxy", "proxy")];
    let error = Join::read(&object(&bad)).unwrap_err();
    assert!(format!("{error:#}").contains("'proxy'"), "{error:#}");
}

#[test]
fn what_is_left_of_lost_keys_is_kept() {
    let [identity, deploy] = [1, 2].map(|seed| KeyPair::from_seed(&[seed; 32]));
    let publics = |keys: &Identity| (keys.identity.public(), keys.deploy.public());
    let keys = rescued(true, None, Some(deploy.clone()));
    assert!(keys.lost && !keys.unsettled && keys.deploy.public() == deploy.public());
    let keys = rescued(true, Some(identity.clone()), None);
    assert!(!keys.lost && keys.unsettled && keys.identity.public() == identity.public());
    let keys = rescued(true, None, None);
    assert!(keys.lost && keys.unsettled && keys.identity.public() != keys.deploy.public());
    // A cluster that never joined has nothing to recover.
    let keys = rescued(false, None, None);
    assert!(!keys.lost && !keys.unsettled);
    assert_ne!(publics(&keys), publics(&rescued(false, None, None)));
}

fn state() -> State {
    let assignment = serde_json::from_value(json!({
        "cluster": {"name": "eu1", "id": "c"},
        "hub": {"id": "h", "urls": [], "ca": "", "keyset": []},
        "catalog": {"url": "", "via": "direct", "branch": "", "path": "", "knownHosts": "", "deployKey": {"state": "pending"}},
        "engine": {"kind": "flux", "version": "2", "bundle": format!("sha256:{}", "00".repeat(32)), "size": 0},
        "revision": 1,
    }));
    let trust = serde_json::from_value(json!({
        "hubId": "h", "pins": ["k"],
        "bundle": {"version": 7, "urls": ["https://h"], "ca": "", "keyset": [], "sig": "s"},
    }));
    State {
        assignment: assignment.unwrap(),
        trust: Some(trust.unwrap()),
        redeemed: "r".to_owned(),
        proven: "p".to_owned(),
        way: None,
    }
}

#[test]
fn a_state_is_read_as_it_was_stored_and_without_a_set_that_is_garbled() {
    let state = state();
    let mut data = state.to_data().unwrap();
    assert_eq!(State::read(&data), Some(state.clone()));
    data.insert("trust.json".to_owned(), b"{".to_vec());
    let without = State {
        trust: None,
        ..state
    };
    assert_eq!(State::read(&data), Some(without.clone()));
    data.remove("trust.json");
    assert_eq!(without.to_data().unwrap(), data);
}

/// No proxy is another thing than none that is known.
#[test]
fn the_way_to_the_hub_is_read_as_it_was_stored() {
    let proxy = |credentials: Option<&str>, bypass: &[&str]| {
        let config = ProxyConfig {
            address: "proxy:3128".to_owned(),
            credentials: credentials.map(|text| Secret::new(text.to_owned())),
            bypass: bypass.iter().map(|&rule| rule.to_owned()).collect(),
        };
        Some(Way(Some(config)))
    };
    for way in [
        None,
        Some(Way(None)),
        proxy(None, &[]),
        proxy(Some("user:p@ss"), &[".svc", "10.0.0.0/8"]),
        proxy(Some("user:100%40"), &[]),
    ] {
        let state = State { way, ..state() };
        let data = state.to_data().unwrap();
        assert_eq!(State::read(&data), Some(state));
    }
    let mut garbled = state().to_data().unwrap();
    garbled.insert("proxy".to_owned(), b"proxy".to_vec());
    assert_eq!(State::read(&garbled), Some(state()));
}

#[test]
fn a_garbled_state_counts_as_missing() {
    assert_eq!(State::read(&SecretData::new()), None);
    let garbled = [("assignment.json".to_owned(), b"{".to_vec())].into();
    assert_eq!(State::read(&garbled), None);
}

/// The patches that dropping the token `lmj1.a.…` sends where the Secret has this one.
async fn dropped(there: &str) -> Vec<serde_json::Value> {
    let mut stored = object(&[("token", there), ("hub", "https://h"), ("cluster", "eu1")]);
    stored.metadata.resource_version = Some("7".to_owned());
    let stored = serde_json::to_vec(&stored).unwrap();
    let patches = Arc::new(Mutex::new(Vec::new()));
    let sent = Arc::clone(&patches);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (stored, sent) = (stored.clone(), Arc::clone(&sent));
        async move {
            if request.method() == http::Method::PATCH {
                let body = request.into_body().collect_bytes().await.unwrap();
                let patch = serde_json::from_slice(&body).unwrap();
                sent.lock().unwrap().push(patch);
            }
            Ok::<_, Infallible>(http::Response::new(Body::from(stored)))
        }
    });
    let api = secrets(&kube::Client::new(service, "linesman"), "linesman");
    let redeemed = Secret::new("lmj1.a.b".to_owned());
    forget_token(&api, Some(&redeemed)).await.unwrap();
    let patches = patches.lock().unwrap();
    patches.clone()
}

/// The owner may apply the YAML with another token while the first one is redeemed.
#[tokio::test]
async fn a_token_that_came_since_is_not_dropped_with_the_one_before() {
    assert_eq!(dropped("lmj1.c.d").await, [json!(null); 0]);
    let patch = json!({
        "data": {"token": null},
        "metadata": {"annotations": {LAST_APPLIED: null}, "resourceVersion": "7"},
    });
    assert_eq!(dropped("lmj1.a.b").await, [patch]);
}
