//! Another way to the hub: the agent's real part that joins, at a real hub.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use linesman::agent::enroll::stored::Join;
use linesman::agent::link::{Around, ProxyConfig};
use linesman::hub::HubKeys;
use linesman::keys::KeyPair;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::moved::applied;
use super::older::{agent, behind, on};
use super::rotate::world::{PATIENCE, Secrets};
use super::support::TestHub;
use crate::line::proxy::{Manner, Proxy};
use crate::wait::until;

/// An API server that keeps Secrets, and lists what is applied from when there is something.
fn server(secrets: &Secrets, listed: &Arc<Mutex<Option<Value>>>) -> kube::Client {
    let (secrets, listed) = (secrets.clone(), listed.clone());
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (secrets, listed) = (secrets.clone(), listed.clone());
        async move {
            let query = request.uri().query().unwrap_or_default();
            let of_join = query.contains("linesman-join");
            if query.contains("watch=true") {
                return std::future::pending().await;
            }
            let found = listed.lock().unwrap().clone().filter(|_| of_join);
            let Some(found) = found else {
                return Ok::<_, std::convert::Infallible>(secrets.serve(request).await);
            };
            let list = json!({
                "apiVersion": "v1", "kind": "SecretList", "metadata": {"resourceVersion": "7"}, "items": [found],
            });
            let body = kube::client::Body::from(list.to_string().into_bytes());
            Ok(http::Response::new(body))
        }
    });
    kube::Client::new(service, "linesman")
}

/// L12: the owner applies YAML with another proxy, and the token that was in it is used up. What went through the proxy of before is
/// cut: it was asked until the Pod was started anew.
#[tokio::test]
async fn another_proxy_in_the_adoption_yaml_counts_without_an_answer_of_the_hub() {
    let hub = TestHub::start("way").await;
    let token = hub.add("eu1").await;
    let (secrets, listed) = (Secrets::default(), Arc::default());
    let join = applied(&hub, &token);
    let mut agent = on(Some(join.clone()), server(&secrets, &listed)).await;
    let joined = timeout(PATIENCE, agent.joined.wait_for(Option::is_some)).await;
    let joined = joined.expect("it joins").unwrap().clone().unwrap();
    assert_eq!(joined.proxy, None);

    let data = [
        ("hub", join.hub.as_str()),
        ("cluster", "eu1"),
        ("proxy", "http://127.0.0.1:9"),
        ("no-proxy", "10.0.0.0/8"),
    ];
    let data = data.map(|(key, text)| (key.to_owned(), json!(STANDARD.encode(text))));
    *listed.lock().unwrap() = Some(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "linesman-join", "resourceVersion": "7"},
        "data": serde_json::Map::from_iter(data),
    }));
    let other = agent.joined.wait_for(|joined| {
        let proxy = joined.as_ref().and_then(|joined| joined.proxy.as_ref());
        proxy.is_some()
    });
    let other = timeout(PATIENCE, other).await.expect("another way");
    let other = other.unwrap().clone().unwrap();
    let expected = ProxyConfig {
        address: "127.0.0.1:9".to_owned(),
        credentials: None,
        bypass: vec!["10.0.0.0/8".to_owned()],
    };
    assert_eq!(other.proxy, Some(expected));
    assert_eq!(other.assignment, joined.assignment);
}

/// H8: with the hub's own CA and a proxy that asks for credentials a cluster joins, and what follows goes the same way.
#[tokio::test]
async fn a_cluster_joins_through_a_proxy_that_asks_for_credentials() {
    let hub = TestHub::start("way-proxy").await;
    let token = hub.add("eu1").await;
    let proxy = Proxy::new(Manner::Willing).await;
    let config = proxy.config(Some("user:p@ss"), &[]);
    let join = Join {
        proxy: Some(config.clone()),
        ..applied(&hub, &token)
    };
    let mut agent = agent(Some(join), &Secrets::default()).await;
    let joined = timeout(PATIENCE, agent.joined.wait_for(Option::is_some)).await;
    let joined = joined.expect("it joins").unwrap().clone().unwrap();
    assert_eq!(joined.proxy, Some(config));
    assert!(proxy.tunnels.load(Ordering::Relaxed) > 0);
    hub.stop().await;
}

/// L12: the YAML names no proxy, and the Pod was given one by its environment. It is asked from the first word on, and is no part of what
/// is stored: it went by unseen, and the agent dialled a hub that it cannot reach.
#[tokio::test]
async fn a_cluster_joins_by_the_proxy_of_its_environment_where_its_yaml_names_none() {
    let hub = TestHub::start("way-around").await;
    let token = hub.add("eu1").await;
    let proxy = Proxy::new(Manner::Willing).await;
    let other = Proxy::new(Manner::Willing).await;
    let around = |proxy: &Proxy| {
        let url = format!("http://user:p%40ss@{}", proxy.config(None, &[]).address);
        let set = |name: &str| (name == "HTTPS_PROXY").then(|| url.clone());
        Around::read(set).unwrap()
    };
    let secrets = Secrets::default();
    let goes = async |around: Around, join: Join| {
        let mut agent = behind(around, join, &secrets).await;
        let joined = timeout(PATIENCE, agent.joined.wait_for(Option::is_some)).await;
        let joined = joined.expect("it knows the hub").unwrap().clone();
        joined.unwrap().proxy
    };
    let credentials = Some("user:p@ss");
    let first = goes(around(&proxy), applied(&hub, &token)).await;
    assert_eq!(first, Some(proxy.config(credentials, &[])));
    assert!(proxy.tunnels.load(Ordering::Relaxed) > 0);
    // Its environment may be another one at the next start, and what the owner gives counts before it.
    let next = goes(around(&other), applied(&hub, &token)).await;
    assert_eq!(next, Some(other.config(credentials, &[])));
    let given = proxy.config(credentials, &[".svc"]);
    let join = Join {
        proxy: Some(given.clone()),
        ..applied(&hub, &token)
    };
    assert_eq!(goes(around(&other), join).await, Some(given));
    hub.stop().await;
}

/// H8: whom the CA of the YAML does not vouch for gets no token, whatever else could be tried; so that is as good as it was.
#[tokio::test]
async fn a_cluster_with_another_ca_in_its_yaml_does_not_join() {
    let hub = TestHub::start("way-ca").await;
    let token = hub.add("eu1").await;
    let other = HubKeys::new(KeyPair::from_seed(&[66; 32])).pin();
    // And how often a try connects: where a key is pinned, whoever answers is asked for what that key signed.
    for (hub_keys, connects) in [(vec![], 1), (vec![other], 2)] {
        let proxy = Proxy::new(Manner::Willing).await;
        let join = Join {
            hub_keys,
            ca: crate::tls::loopback().1,
            proxy: Some(proxy.config(Some("user:p@ss"), &[])),
            ..applied(&hub, &token)
        };
        let agent = agent(Some(join), &Secrets::default()).await;
        until("the next try has begun", PATIENCE, async || {
            proxy.tunnels.load(Ordering::Relaxed) > connects
        })
        .await;
        assert!(agent.joined.borrow().is_none());
    }
    let (_, view) = hub.get("/v1/clusters/eu1").await;
    assert_eq!(view["phase"], "Pending");
    let mut agent = agent(Some(applied(&hub, &token)), &Secrets::default()).await;
    let joined = timeout(PATIENCE, agent.joined.wait_for(Option::is_some)).await;
    assert!(joined.expect("it joins").is_ok());
    hub.stop().await;
}
