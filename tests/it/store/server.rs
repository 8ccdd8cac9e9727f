//! What only a server can do: be gone, be taken, cut a connection; and what a newer build left in either database.

use std::time::Duration;

use linesman::hub::audit::Durability;
use linesman::hub::store::postgres::{Postgres, Target};
use linesman::hub::store::{Cluster, JoinToken, Share, Store};
use linesman::wire::api::{AdoptionOptions, Policy, ScopeOptions};
use tokio::time::timeout;

use super::{Place, at, cluster, join_token, new};
use crate::postgres;
use crate::wait::{until, until_some};

/// How long anything may take that is not measured.
const PATIENCE: Duration = Duration::from_secs(30);

async fn refused(url: &str) -> String {
    let opened = Postgres::open(Target::parse(url).unwrap(), Share::Alone);
    let opened = timeout(Duration::from_secs(15), opened).await.unwrap();
    opened.err().expect("it is refused").to_string()
}

async fn a_newer_schema_is_refused_and_stays(place: Place) {
    let store = place.open().await;
    let id = store.hub_id().await.unwrap();
    drop(store);
    let later =
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
        SELECT 9999, 'later', success, checksum, 0 FROM _sqlx_migrations WHERE version = 1";
    place.execute(later).await;
    // The pool lets go of its connections, and so of the database, in the background.
    let open = async || match place.try_open().await {
        Err(why) if why.to_string().contains("another hub") => Err(why),
        opened => Ok(opened.err().unwrap().to_string()),
    };
    let why = until_some("no other hub runs", PATIENCE, open).await;
    assert_eq!(
        why,
        "the database has schema 9999, which this build does not know; start the newer linesman that wrote it"
    );
    place
        .execute("DELETE FROM _sqlx_migrations WHERE version = 9999")
        .await;
    let open = async || place.try_open().await;
    let store = until_some("it opens", PATIENCE, open).await;
    assert_eq!(store.hub_id().await.unwrap(), id);
}

/// All others that readiness needs are there; the audit's is made with the first record, and each request waits for that.
#[tokio::test]
async fn a_server_without_a_connection_for_the_audit_is_not_ready() {
    let url = postgres::database().await;
    let (_, database) = url.rsplit_once('/').unwrap();
    let role = format!("few_{database}");
    let own = format!(
        "CREATE ROLE {role} LOGIN; ALTER DATABASE {database} OWNER TO {role};
        ALTER SCHEMA public OWNER TO {role}"
    );
    postgres::execute(&url, &own).await;
    let limited = async |limit: i32| {
        let limit = format!("ALTER ROLE {role} CONNECTION LIMIT {limit}");
        postgres::execute(&url, &limit).await;
    };
    let as_role = url.replace("postgres://linesman@", &format!("postgres://{role}@"));
    let store = Postgres::open(Target::parse(&as_role).unwrap(), Share::Alone);
    let store = Store::Postgres(store.await.unwrap());
    store.hub_id().await.unwrap();
    limited(1).await;
    let why = store.check().await.unwrap_err().to_string();
    assert_eq!(why, "make ready for records in the database");
    limited(-1).await;
    store.check().await.unwrap();
}

/// H56
#[tokio::test]
async fn a_newer_schema_is_refused_by_sqlite() {
    a_newer_schema_is_refused_and_stays(Place::file("newer-schema")).await;
}

/// H56
#[tokio::test]
async fn a_newer_schema_is_refused_by_postgres() {
    a_newer_schema_is_refused_and_stays(Place::server().await).await;
}

async fn what_a_newer_build_said_of_an_adoption_hides_no_record(place: Place) {
    let store = place.open().await;
    let eu1 = cluster(&store, "eu1").await;
    let (token, _) = join_token(&eu1, 1);
    store.issue_join_token(token.clone()).await.unwrap();
    for newer in [
        r#"UPDATE cluster SET adoption = '{"later":1,"scope":{"namespaces":["shop"],"later":[]}}'"#,
        r#"UPDATE join_token SET adoption = '{"later":1,"scope":{"namespaces":["shop"],"later":[]}}'"#,
    ] {
        place.execute(newer).await;
    }
    let adoption = AdoptionOptions {
        scope: Some(ScopeOptions {
            namespaces: vec!["shop".to_owned()],
            strict: false,
        }),
        ..AdoptionOptions::default()
    };
    let id = token.id.clone();
    let token = JoinToken {
        adoption: adoption.clone(),
        ..token
    };
    assert_eq!(store.join_token(&id).await.unwrap(), Some(token));
    let eu1 = Cluster { adoption, ..eu1 };
    assert_eq!(store.clusters(None, 10).await.unwrap(), [eu1]);
}

#[tokio::test]
async fn what_a_newer_build_said_of_an_adoption_hides_no_record_of_sqlite() {
    let place = Place::file("newer-adoption");
    what_a_newer_build_said_of_an_adoption_hides_no_record(place).await;
}

#[tokio::test]
async fn what_a_newer_build_said_of_an_adoption_hides_no_record_of_postgres() {
    what_a_newer_build_said_of_an_adoption_hides_no_record(Place::server().await).await;
}

/// A newer replica brings the schema further while this one runs.
#[tokio::test]
async fn columns_of_a_newer_replica_break_no_statement_of_before() {
    let place = Place::server().await;
    let store = place.open().await;
    let eu1 = cluster(&store, "eu1").await;
    let (token, _) = join_token(&eu1, 1);
    store.issue_join_token(token.clone()).await.unwrap();
    // Often enough for each connection to have prepared them.
    let read = async || {
        for _ in 0..20 {
            let known = store.cluster_by_id(&eu1.id).await.unwrap();
            assert_eq!(known.as_ref(), Some(&eu1));
            let known = store.join_token(&token.id).await.unwrap();
            assert_eq!(known.as_ref(), Some(&token));
        }
    };
    let create = async |of: &str| {
        let mut failed = 0;
        for n in 0..8 {
            let created = store.create_cluster(new(&format!("{of}{n}")), at(1)).await;
            failed += usize::from(created.is_err());
        }
        failed
    };
    read().await;
    assert_eq!(create("a").await, 0);
    place
        .execute("ALTER TABLE cluster ADD COLUMN later TEXT; ALTER TABLE join_token ADD COLUMN later TEXT")
        .await;
    read().await;
    // What a read has found, those that write know.
    assert_eq!(create("b").await, 0);
    place
        .execute("ALTER TABLE cluster ADD COLUMN even_later TEXT")
        .await;
    // A transaction that finds it has no second try.
    assert!(create("c").await <= 1);
    read().await;
}

/// The server is asked what it does: a power cut cannot be made here.
#[tokio::test]
async fn audit_rows_wait_for_the_servers_disk_where_they_shall() {
    let url = postgres::database().await;
    let target = Target::parse(&url).unwrap();
    let store = Store::Postgres(Postgres::open(target, Share::Alone).await.unwrap());
    assert_eq!(store.audit_durability().await.unwrap(), Durability::Crash);
    let store = store.audit_survives(Durability::Fsync);
    assert_eq!(store.audit_durability().await.unwrap(), Durability::Fsync);
}

#[tokio::test]
async fn a_second_hub_on_the_database_is_refused_and_readers_are_not() {
    let url = postgres::database().await;
    let target = Target::parse(&url).unwrap();
    let store = Store::Postgres(Postgres::open(target.clone(), Share::Alone).await.unwrap());
    let id = store.hub_id().await.unwrap();
    assert_eq!(
        refused(&url).await,
        format!("another hub runs on the database {target}; stop it first")
    );
    let reader = Postgres::open_read_only(target.clone()).await.unwrap();
    let reader = Store::Postgres(reader);
    assert_eq!(reader.hub_id().await.unwrap(), id);
    assert!(reader.set_default_registry(None, None).await.is_err());
    // The connection that holds the database breaks: the hub takes it again.
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    postgres::execute(&url, cut).await;
    let again = async || store.check().await.is_ok();
    until("it has the database again", PATIENCE, again).await;
    assert!(refused(&url).await.contains("another hub runs"));
    // It breaks again, and another hub was faster.
    postgres::execute(&url, cut).await;
    let other = Postgres::open(target, Share::Alone).await.unwrap();
    let check = async || match store.check().await {
        Err(why) if why.to_string().contains("another hub") => Ok(why.to_string()),
        other => Err(other),
    };
    let why = until_some("it knows of the other hub", PATIENCE, check).await;
    assert!(why.contains("stop it first"), "{why}");
    drop(other);
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_refused_and_may_be_read() {
    let url = postgres::database().await;
    let target = Target::parse(&url).unwrap();
    let store = Store::Postgres(Postgres::open(target.clone(), Share::Alone).await.unwrap());
    let id = store.hub_id().await.unwrap();
    let (server, name) = url.rsplit_once('/').unwrap();
    let closed = format!("ALTER DATABASE {name} SET default_transaction_read_only = on");
    postgres::execute(&format!("{server}/postgres"), &closed).await;
    assert_eq!(
        refused(&url).await,
        format!(
            "the database {target}: it takes no writes (a standby?): give the primary's address"
        )
    );
    let reader = Postgres::open_read_only(target).await.unwrap();
    assert_eq!(Store::Postgres(reader).hub_id().await.unwrap(), id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_cut_in_a_transaction_leaves_nothing_half() {
    use sqlx::Connection as _;
    let place = Place::server().await;
    let Place::Server(url) = &place else {
        unreachable!()
    };
    let store = place.open().await;
    let eu1 = cluster(&store, "eu1").await;
    let mut other = sqlx::PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql("BEGIN; UPDATE fact SET at = 0; LOCK TABLE join_token IN ACCESS EXCLUSIVE MODE")
        .execute(&mut other)
        .await
        .unwrap();
    // It has changed the cluster and its keys, and waits for the tokens.
    let removal = timeout(Duration::from_secs(9), store.remove_cluster(&eu1.id, at(1)));
    let cut = async {
        let waiting = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE wait_event_type = 'Lock' AND datname = current_database()";
        until("it is cut", PATIENCE, async || {
            let ended: i64 = sqlx::query_scalar(waiting)
                .fetch_one(&mut other)
                .await
                .unwrap();
            ended > 0
        })
        .await;
    };
    let (removed, ()) = tokio::join!(removal, cut);
    assert!(removed.expect("it does not hang").is_err());
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    assert_eq!(
        store.cluster_by_id(&eu1.id).await.unwrap(),
        Some(eu1.clone())
    );
    let set = store.set_policy(eu1.revision(), Policy::default(), at(2));
    assert!(set.await.unwrap());
    let removed = store.remove_cluster(&eu1.id, at(3)).await.unwrap();
    assert!(removed.is_some());
}

#[tokio::test]
async fn what_keeps_the_hub_from_its_database_is_said_without_the_password() {
    let url = postgres::database().await;
    let wrong = postgres::with_wrong_password(&url).await;
    let why = refused(&wrong).await;
    assert!(
        why.starts_with("the database hub")
            && why.contains("as locked: ")
            && why.contains("password"),
        "{why}"
    );
    assert!(!why.contains("hunter2"), "{why}");
    // Nobody listens there.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let why = refused(&format!("postgres://l:hunter2@127.0.0.1:{port}/hub")).await;
    let begin = format!("the database hub at 127.0.0.1:{port} as l: ");
    assert!(why.starts_with(&begin) && !why.contains("hunter2"), "{why}");
    // Somebody does, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let why = refused(&format!("postgres://l@127.0.0.1:{port}/hub")).await;
    let begin = format!("the database hub at 127.0.0.1:{port} as l: no answer within 10 s; ");
    assert!(why.starts_with(&begin), "{why}");
    let latin = "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE_PROVIDER libc LOCALE 'C'";
    postgres::execute(&url, latin).await;
    let (server, _) = url.rsplit_once('/').unwrap();
    let why = refused(&format!("{server}/latin")).await;
    assert!(
        why.ends_with("its encoding is LATIN1; make one with ENCODING 'UTF8'"),
        "{why}"
    );
}

#[tokio::test]
async fn a_server_proves_who_it_is_before_it_gets_anything() {
    let url = postgres::database().await;
    let (tls, cert) = postgres::with_tls(&url).await;
    let full = format!("{tls}?sslmode=verify-full");
    let why = refused(&full).await;
    assert!(why.contains("certificate"), "{why}");
    let root = cert.to_str().unwrap();
    // It is `localhost` that the certificate names.
    let other = full.replace("localhost", "127.0.0.1");
    let why = refused(&format!("{other}&sslrootcert={root}")).await;
    assert!(why.contains("certificate"), "{why}");
    let trusted = Target::parse(&format!("{full}&sslrootcert={root}")).unwrap();
    let store = Store::Postgres(Postgres::open(trusted, Share::Alone).await.unwrap());
    store.hub_id().await.unwrap();
    drop(store);
    // On loopback, what the server offers is taken.
    let here = Postgres::open(Target::parse(&tls).unwrap(), Share::Alone)
        .await
        .unwrap();
    Store::Postgres(here).check().await.unwrap();
}
