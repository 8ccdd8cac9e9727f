//! Clusters that joined, made in the hub's store without an agent. The bench of the storm has this file, too.

use std::time::Duration;

use linesman::clock;
use linesman::hub::registration::{Claim, Prefix, TokenText};
use linesman::hub::store::{JoinToken, NewBundle, NewClusterRow, Store, TokenKind};
use linesman::keys::KeyPair;
use linesman::wire::api::{AdoptionOptions, AgentBuild, EngineKind, GitRoute};
use linesman::wire::id::{ClusterName, Digest};
use linesman::wire::report::Facts;

const BY: &str = "test";

/// The engine's bundle of all of them; its content is never looked at.
pub(crate) async fn bundle(store: &Store) {
    let bundle = NewBundle {
        digest: Digest::from_bytes([0; 32]),
        engine: EngineKind::Flux,
        version: "v2".to_owned(),
        objects: 1,
        images: vec![],
        data: vec![1],
        imported_by: BY.to_owned(),
        origin: None,
    };
    store.add_bundle(bundle, clock::now()).await.unwrap();
}

/// Adds the cluster, and redeems its join token with these keys.
pub(crate) async fn join(store: &Store, name: &ClusterName, identity: &KeyPair, deploy: &KeyPair) {
    let now = clock::now();
    let row = NewClusterRow {
        name: name.clone(),
        labels: [].into(),
        engine: EngineKind::Flux,
        engine_version: "v2".to_owned(),
        bundle: Digest::from_bytes([0; 32]),
        catalog_path: format!("clusters/{name}"),
        git_route: GitRoute::Auto,
        adoption: AdoptionOptions::default(),
    };
    let cluster = store.create_cluster(row, now).await.unwrap();
    let token = TokenText::new(clock::random(), clock::random());
    let record = JoinToken {
        id: token.id.clone(),
        cluster_id: cluster.id,
        hash: token.hash(),
        kind: TokenKind::Join,
        new_cluster: true,
        adoption: AdoptionOptions::default(),
        issued_by: BY.to_owned(),
        expires_at: now + Duration::from_hours(1),
        redeemed: None,
        revoked_at: None,
        created_at: now,
    };
    store.issue_join_token(record).await.unwrap();
    let text = token.text(Prefix::Join);
    let claim = Claim {
        token: TokenText::parse(Prefix::Join, text.expose()).unwrap(),
        cluster: name.to_string(),
        incarnation: format!("uid of {name}"),
        identity: identity.public(),
        deploy: deploy.public(),
        agent: AgentBuild::default(),
        facts: Facts::default(),
        addr: "127.0.0.1".to_owned(),
    };
    store.redeem(claim, now).await.unwrap();
}
