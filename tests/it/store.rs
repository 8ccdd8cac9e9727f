//! H53: the store's contract: each behaviour on SQLite and on PostgreSQL.

use std::path::PathBuf;

use linesman::hub::registration::{Claim, TokenText};
use linesman::hub::store::postgres::{Postgres, Target};
use linesman::hub::store::sqlite::Sqlite;
use linesman::hub::store::{
    ApiToken, Cluster, JoinToken, NewBundle, NewClusterRow, Share, Store, TokenKind, UserRow,
};
use linesman::keys::KeyPair;
use linesman::wire::api::{AdoptionOptions, AgentBuild, EngineKind, GitRoute};
use linesman::wire::id::Digest;
use time::OffsetDateTime;

use crate::postgres;

mod access;
mod audit;
mod bundles;
mod clusters;
mod keys;
mod logins;
mod lookups;
mod replicas;
mod reports;
mod server;
mod tokens;

/// Each of these functions takes an open store, and is a test on either database.
macro_rules! on_both {
    ($($name:ident,)*) => {
        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let at = crate::store::Place::file(concat!(module_path!(), stringify!($name)));
                    super::$name(at.open().await).await;
                }
            )*
        }
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let at = crate::store::Place::server().await;
                    super::$name(at.open().await).await;
                }
            )*
        }
    };
}
use on_both;

/// Where a test's store is.
enum Place {
    File(PathBuf),
    Server(String),
}

impl Place {
    fn file(test: &str) -> Self {
        let name = test.replace("::", "-");
        let path = std::env::temp_dir().join(format!("linesman-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir_all(&path).unwrap();
        Self::File(path)
    }

    async fn server() -> Self {
        Self::Server(postgres::database().await)
    }

    async fn open(&self) -> Store {
        self.try_open().await.unwrap()
    }

    async fn try_open(&self) -> linesman::hub::store::Result<Store> {
        Ok(match self {
            Self::File(path) => Store::Sqlite(Sqlite::open(path).await?),
            Self::Server(url) => {
                Store::Postgres(Postgres::open(Target::parse(url).unwrap(), Share::Alone).await?)
            }
        })
    }

    /// Behind the hub's back.
    async fn execute(&self, statement: &'static str) {
        use sqlx::Connection as _;
        match self {
            Self::File(path) => {
                let url = format!("sqlite://{}", path.join("hub.db").display());
                let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
                sqlx::query(statement)
                    .execute(&mut connection)
                    .await
                    .unwrap();
                connection.close().await.unwrap();
            }
            Self::Server(url) => postgres::execute(url, statement).await,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Self::File(path) = self {
            drop(std::fs::remove_dir_all(path));
        }
    }
}

/// So many milliseconds into a day of 2026.
fn at(ms: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_790_000_000).unwrap() + time::Duration::milliseconds(ms)
}

fn digest() -> Digest {
    Digest::from_bytes([1; 32])
}

async fn with_bundle(store: &Store) {
    let bundle = NewBundle {
        digest: digest(),
        engine: EngineKind::Flux,
        version: "2.9.5".to_owned(),
        objects: 31,
        images: vec!["registry.invalid/a:1".to_owned()],
        data: vec![0, 1, 255],
        imported_by: "admin".to_owned(),
        origin: None,
    };
    store.add_bundle(bundle, at(0)).await.unwrap();
}

fn new(name: &str) -> NewClusterRow {
    NewClusterRow {
        name: name.parse().unwrap(),
        labels: [("env".to_owned(), "prod".to_owned())].into(),
        engine: EngineKind::Flux,
        engine_version: "2.9.5".to_owned(),
        bundle: digest(),
        catalog_path: format!("clusters/{name}"),
        git_route: GitRoute::Auto,
        adoption: AdoptionOptions::default(),
    }
}

async fn cluster(store: &Store, name: &str) -> Cluster {
    with_bundle(store).await;
    store.create_cluster(new(name), at(0)).await.unwrap()
}

fn join_token(cluster: &Cluster, n: u8) -> (JoinToken, TokenText) {
    let text = TokenText::new([n; 16], [n; 32]);
    let token = JoinToken {
        id: text.id.clone(),
        cluster_id: cluster.id.clone(),
        hash: text.hash(),
        kind: TokenKind::Join,
        new_cluster: false,
        adoption: AdoptionOptions::default(),
        issued_by: "admin".to_owned(),
        expires_at: at(3_600_000),
        redeemed: None,
        revoked_at: None,
        created_at: at(0),
    };
    (token, text)
}

fn claim(token: &TokenText, cluster: &str, seed: u8) -> Claim {
    Claim {
        token: token.clone(),
        cluster: cluster.to_owned(),
        incarnation: format!("uid-{seed}"),
        identity: KeyPair::from_seed(&[seed; 32]).public(),
        deploy: KeyPair::from_seed(&[seed + 100; 32]).public(),
        agent: AgentBuild::default(),
        facts: [("kubernetes".to_owned(), "1.34".to_owned())].into(),
        addr: "192.0.2.1".to_owned(),
    }
}

async fn user(store: &Store, name: &str, role: &str) -> UserRow {
    let user = UserRow {
        id: format!("id-{name}"),
        name: name.to_owned(),
        roles: vec![role.to_owned()],
        groups: vec!["sre".to_owned()],
        disabled: false,
        provider: None,
        rev: 1,
    };
    store.ensure_user(user).await.unwrap()
}

fn api_token(user: &UserRow, n: u8) -> ApiToken {
    ApiToken {
        id: format!("token-{n}"),
        user_id: user.id.clone(),
        hash: [n; 32],
        title: "for a test".to_owned(),
        scopes: vec![],
        clusters: None,
        created_by: user.name.clone(),
        created_at: at(0),
        expires_at: None,
        revoked_at: None,
    }
}
