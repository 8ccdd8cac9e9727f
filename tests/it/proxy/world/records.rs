//! What the hub has on record: clusters, users, their grants, and what they did.

use std::collections::BTreeMap;

use linesman::clock;
use linesman::hub::Hub;
use linesman::hub::access::{Clusters, Grant, Mode, Subject};
use linesman::hub::audit::Entry;
use linesman::hub::registration::{Claim, Redeemed, TokenText};
use linesman::hub::store::{AuditRow, JoinToken, NewBundle, NewClusterRow, TokenKind, UserRow};
use linesman::keys::KeyPair;
use linesman::wire::api::{AdoptionOptions, AgentBuild, EngineKind, GitRoute};
use linesman::wire::id::{ClusterName, Digest};
use linesman::wire::report::Facts;

use super::World;
use crate::hub::support::api_token;

impl World {
    /// One more cluster, which nobody has joined; gives its id.
    pub(in crate::proxy) async fn another(&self, name: &str) -> String {
        add(&self.hub, name.parse().unwrap()).await
    }

    /// A user's API token, with a grant where there are groups.
    pub(in crate::proxy) async fn user(&self, name: &str, groups: &[&str]) -> String {
        if !groups.is_empty() {
            self.grant(name, groups, |_| {}).await;
        }
        user(&self.hub, name).await
    }

    /// A grant on every cluster, changed as the test needs it.
    pub(in crate::proxy) async fn grant(
        &self,
        user: &str,
        groups: &[&str],
        change: impl FnOnce(&mut Grant),
    ) {
        let mut grant = everywhere(&format!("grant-{user}"), user, groups);
        change(&mut grant);
        let stored = self.hub.store.add_grant(grant, None, clock::now());
        stored.await.unwrap();
    }

    /// The token of the hub's first admin.
    pub(in crate::proxy) fn admin(&self) -> String {
        let text = std::fs::read_to_string(self.data.join("admin.token")).unwrap();
        text.trim().to_owned()
    }

    /// Changes the database behind the hub's back.
    pub(in crate::proxy) async fn execute(&self, sql: &'static str) {
        use sqlx::Connection as _;
        let url = format!("sqlite://{}", self.data.join("hub.db").display());
        let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
        let done = sqlx::query(sql).execute(&mut connection).await;
        done.unwrap();
        connection.close().await.unwrap();
    }

    /// All audit records of what was answered before.
    pub(in crate::proxy) async fn audit(&self) -> Vec<AuditRow> {
        // Records are stored in order: behind this one, all before it are there.
        self.hub.audit.event(Entry::default()).await.unwrap();
        let rows = self.hub.store.audit_tail(None, 100).await.unwrap();
        rows.into_iter()
            .filter(|row| !row.action.is_empty())
            .collect()
    }
}

/// The API token of user `ada`, who has a grant on every cluster.
pub(in crate::proxy) async fn ada(hub: &Hub) -> String {
    let grant = everywhere("grant-ada", "ada", &["admin"]);
    let stored = hub.store.add_grant(grant, None, clock::now());
    stored.await.unwrap();
    user(hub, "ada").await
}

/// A user's API token.
async fn user(hub: &Hub, name: &str) -> String {
    let user = UserRow {
        id: format!("id-{name}"),
        name: name.to_owned(),
        roles: Vec::new(),
        groups: Vec::new(),
        disabled: false,
        provider: None,
        rev: 1,
    };
    let user = hub.store.ensure_user(user).await.unwrap();
    api_token(hub, user.id).await
}

/// A cluster with its agent's keys on record; gives its id.
pub(super) async fn join(hub: &Hub, name: ClusterName, identity: &KeyPair) -> String {
    let cluster_id = add(hub, name.clone()).await;
    redeem(hub, (&name, &cluster_id), TokenKind::Join, identity).await;
    cluster_id
}

/// Another identity joins in the place of the cluster's own.
pub(in crate::proxy) async fn readopt(
    hub: &Hub,
    cluster: (&ClusterName, &str),
    identity: &KeyPair,
) {
    redeem(hub, cluster, TokenKind::Readopt, identity).await;
}

async fn redeem(
    hub: &Hub,
    (name, cluster_id): (&ClusterName, &str),
    kind: TokenKind,
    identity: &KeyPair,
) {
    let (store, now) = (&hub.store, clock::now());
    let token = TokenText::new(clock::random(), clock::random());
    let record = JoinToken {
        id: token.id.clone(),
        cluster_id: cluster_id.to_owned(),
        hash: token.hash(),
        kind,
        new_cluster: false,
        adoption: AdoptionOptions::default(),
        issued_by: "test".to_owned(),
        expires_at: now + time::Duration::hours(1),
        redeemed: None,
        revoked_at: None,
        created_at: now,
    };
    store.issue_join_token(record).await.unwrap();
    let claim = Claim {
        token,
        cluster: name.to_string(),
        incarnation: format!("uid of {name}"),
        identity: identity.public(),
        deploy: KeyPair::from_seed(&clock::random()).public(),
        agent: AgentBuild::default(),
        facts: Facts::default(),
        addr: "127.0.0.1:1".to_owned(),
    };
    let redeemed = store.redeem(claim, now).await.unwrap();
    assert!(matches!(redeemed, Redeemed::Bound { .. }));
}

/// A cluster without keys; gives its id.
async fn add(hub: &Hub, name: ClusterName) -> String {
    let (store, now, digest) = (&hub.store, clock::now(), Digest::from_bytes([1; 32]));
    let bundle = NewBundle {
        digest: digest.clone(),
        engine: EngineKind::Flux,
        version: "2.9.5".to_owned(),
        objects: 0,
        images: Vec::new(),
        data: Vec::new(),
        imported_by: "test".to_owned(),
        origin: None,
    };
    store.add_bundle(bundle, now).await.unwrap();
    let new = NewClusterRow {
        name: name.clone(),
        labels: BTreeMap::default(),
        engine: EngineKind::Flux,
        engine_version: "2.9.5".to_owned(),
        bundle: digest,
        catalog_path: format!("clusters/{name}"),
        git_route: GitRoute::Auto,
        adoption: AdoptionOptions::default(),
    };
    store.create_cluster(new, now).await.unwrap().id
}

/// A grant on all clusters, without limits.
pub(in crate::proxy) fn everywhere(id: &str, user: &str, groups: &[&str]) -> Grant {
    Grant {
        id: id.to_owned(),
        subject: Subject::User(user.to_owned()),
        clusters: Clusters::All,
        groups: groups.iter().map(|g| (*g).to_owned()).collect(),
        act_as: [].into(),
        namespaces: None,
        mode: Mode::Full,
        expires_at: None,
        revoked_at: None,
        revoked_by: None,
        reason: String::new(),
        created_by: "admin".to_owned(),
        created_at: clock::now(),
        rev: 1,
    }
}
