//! A hub that comes back with another URL, another CA and another key: the agent's real part that joins and its real line, and
//! what the hub had before standing only as an address that leads to the new one.

use std::net::SocketAddr;
use std::path::Path;

use linesman::agent::enroll::stored::{self, Join};
use linesman::agent::link::LinkState;
use linesman::clock;
use linesman::hub::audit::chain::{self, Follower};
use linesman::hub::serve::renew;
use linesman::keys::Public;
use linesman::secret::Secret;
use linesman::wire::api::HubRef;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::older::{Running, dialling};
use super::rotate::world::{PATIENCE, Secrets};
use super::support::TestHub;
use crate::wait::until_some;

/// As an operator leaves it behind where a service moved: connections to the old address reach the new one.
async fn led_on(from: SocketAddr, to: SocketAddr) -> JoinSet<()> {
    let listener = TcpListener::bind(from).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut open = JoinSet::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            open.spawn(async move {
                if let Ok(mut hub) = TcpStream::connect(to).await {
                    drop(tokio::io::copy_bidirectional(&mut socket, &mut hub).await);
                }
            });
        }
    });
    tasks
}

pub(super) fn applied(hub: &TestHub, token: &str) -> Join {
    Join {
        token: Some(Secret::new(token.to_owned())),
        echoed: false,
        hub: hub.hub.config.url.clone(),
        hub_keys: vec![hub.hub.says().keys.pin()],
        ca: hub.hub.says().trust.ca.clone(),
        cluster: "eu1".parse().unwrap(),
        proxy: None,
    }
}

/// Until the agent has a line to this hub, and believes all that it is.
pub(super) async fn back(agent: &Running, hub: &TestHub) {
    let wanted = hub.hub.reference();
    until_some("the agent is back", PATIENCE, async || {
        let is_up = matches!(&*agent.line.borrow(), LinkState::Up { .. });
        let held: Option<HubRef> = {
            let joined = agent.joined.borrow();
            joined.as_ref().map(|joined| joined.assignment.hub.clone())
        };
        let seen = hub.hub.tunnels.get(&"eu1".parse().unwrap()).is_some();
        if is_up && seen && held.as_ref() == Some(&wanted) {
            return Ok(());
        }
        Err(format!("{:?}, {held:?}", *agent.line.borrow()))
    })
    .await;
}

/// Everything that a cluster knows of the hub is replaced.
async fn renewed(data: &Path) {
    let at_once = renew::times(clock::now(), time::Duration::ZERO);
    let key = renew::key(data, at_once).await.unwrap();
    let ca = renew::ca(data, at_once).await.unwrap();
    assert_ne!((&key.before, &ca.before), (&key.after, &ca.after));
}

async fn kept(secrets: &Secrets) -> (HubRef, u64) {
    let secrets = stored::secrets(&secrets.client(), "linesman");
    let state = stored::read_state(&secrets).await.unwrap().unwrap();
    (state.assignment.hub, state.trust.unwrap().bundle.version)
}

/// H19, H20, L17: with the agent there all the time, and with one that slept through two such changes.
#[tokio::test]
async fn agents_follow_a_hub_to_another_url_ca_and_key_by_themselves() {
    let hub = TestHub::start("moved").await;
    let token = hub.add("eu1").await;
    let (secrets, join) = (Secrets::default(), applied(&hub, &token));
    let agent = dialling(Some(join), &secrets).await;
    back(&agent, &hub).await;
    let first = kept(&secrets).await;
    let (data, old) = (hub.data().to_owned(), hub.hub.config.listen);

    hub.leave().await;
    renewed(&data).await;
    let hub = TestHub::open("moved", data.clone()).await;
    let way = led_on(old, hub.hub.config.listen).await;
    back(&agent, &hub).await;
    let second = kept(&secrets).await;
    assert_eq!(second.0, hub.hub.reference());
    assert!(second.1 > first.1, "{} after {}", second.1, first.1);
    assert!(secrets.event("HubTrustRenewed").is_some());
    assert_eq!(secrets.event("HubNotTrusted"), None);
    drop(way);

    // Two changes that it is away for, with a start of the hub between them.
    drop(agent);
    let old = hub.hub.config.listen;
    hub.leave().await;
    renewed(&data).await;
    TestHub::open("moved", data.clone()).await.leave().await;
    renewed(&data).await;
    let hub = TestHub::open("moved", data).await;
    let _way = led_on(old, hub.hub.config.listen).await;
    let agent = dialling(None, &secrets).await;
    back(&agent, &hub).await;
    assert_eq!(kept(&secrets).await.0, hub.hub.reference());

    // What the keys before signed of the audit verifies still.
    let anchors = hub.hub.store.audit_anchors().await.unwrap();
    let keys: Vec<_> = hub
        .hub
        .says()
        .keys
        .all()
        .iter()
        .map(|key| Public::from_base64(key).unwrap())
        .collect();
    assert_eq!(keys.len(), 4);
    Follower::new(&hub.hub.id, anchors.clone(), &keys).unwrap();
    let (code, views) = hub.get("/v1/audit/anchors").await;
    assert_eq!(code, 200, "{views}");
    for (view, anchor) in views["items"].as_array().unwrap().iter().zip(&anchors) {
        let signer = chain::signer(&hub.hub.id, anchor, &keys).unwrap();
        assert_eq!(view["key"], json!(signer.to_base64()));
    }
    hub.stop().await;
}

/// L17: a YAML of before the change is as good as it was.
#[tokio::test]
async fn adoption_yaml_that_waited_for_its_owner_joins_a_hub_with_another_ca_and_key() {
    let hub = TestHub::start("moved-yaml").await;
    let token = hub.add("eu1").await;
    let (secrets, join) = (Secrets::default(), applied(&hub, &token));
    let (data, old) = (hub.data().to_owned(), hub.hub.config.listen);
    hub.leave().await;
    renewed(&data).await;
    let hub = TestHub::open("moved-yaml", data).await;
    let _way = led_on(old, hub.hub.config.listen).await;
    let agent = dialling(Some(join), &secrets).await;
    back(&agent, &hub).await;
    assert_eq!(kept(&secrets).await.0, hub.hub.reference());
    hub.stop().await;
}

/// L43: who has the hub's address and no key of it is not followed, whatever it says, and gets nothing but the question.
#[tokio::test]
async fn nobody_takes_a_hubs_place_by_its_address_alone() {
    let hub = TestHub::start("moved-foreign").await;
    let token = hub.add("eu1").await;
    let (secrets, join) = (Secrets::default(), applied(&hub, &token));
    let agent = dialling(Some(join), &secrets).await;
    back(&agent, &hub).await;
    let (before, data, old) = (
        kept(&secrets).await,
        hub.data().to_owned(),
        hub.hub.config.listen,
    );
    hub.leave().await;

    let other = TestHub::start("moved-other").await;
    let way = led_on(old, other.hub.config.listen).await;
    let told = until_some("it is refused", PATIENCE, async || {
        secrets.event("HubNotTrusted").ok_or(())
    })
    .await;
    for part in [
        other.hub.says().keys.public().fingerprint(),
        before.0.keyset[0].key.clone(),
    ] {
        let part = Public::from_base64(&part).map_or(part, Public::fingerprint);
        assert!(told.contains(&part), "{part} in {told}");
    }
    assert_eq!(kept(&secrets).await, before);
    drop(way);
    other.stop().await;

    // The hub itself again, at another address that the old one leads to.
    let hub = TestHub::open("moved-foreign", data).await;
    let _way = led_on(old, hub.hub.config.listen).await;
    back(&agent, &hub).await;
    hub.stop().await;
}
