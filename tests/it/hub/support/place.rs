//! Where a test's hub has its records, and what replicas of one hub have in common: notes in the data directory say it, also to
//! the hub that goes on with that.

use std::path::Path;

use linesman::hub::store::Records;
use linesman::hub::store::postgres::Target;
use tokio::net::TcpListener;

/// What the test chose; else `LINESMAN_TEST_STORE=postgres` runs it on that.
pub(super) async fn records(data: &Path) -> Records {
    let chosen = data.join(CHOSEN);
    if !chosen.exists() {
        if std::env::var_os("LINESMAN_TEST_STORE").is_none_or(|store| store != "postgres") {
            return Records::File;
        }
        choose_postgres(data).await;
    }
    let url = std::fs::read_to_string(chosen).unwrap();
    Records::Server(Target::parse(&url).unwrap())
}

/// Names the database of a test's hub, also for the hub that goes on with the data directory.
pub(super) const CHOSEN: &str = "test-database";
/// Says that several replicas share the data directory, and has their common URLs.
pub(super) const SEVERAL: &str = "test-replicas";

/// The hub's URL and its Git server's, which replicas have in common.
pub(super) fn shared_urls(data: &Path, port: u16, git: u16) -> (String, String) {
    let own = (
        format!("https://localhost:{port}"),
        format!("ssh://git@localhost:{git}"),
    );
    let path = data.join(SEVERAL);
    let Ok(text) = std::fs::read_to_string(&path) else {
        return own;
    };
    if let Some((url, git_url)) = text.split_once(' ') {
        return (url.to_owned(), git_url.to_owned());
    }
    std::fs::write(path, format!("{} {}", own.0, own.1)).unwrap();
    own
}

/// For the other replicas, where there are some.
pub(super) async fn several_listener(data: &Path) -> Option<TcpListener> {
    if !data.join(SEVERAL).exists() {
        return None;
    }
    Some(TcpListener::bind("127.0.0.1:0").await.unwrap())
}

/// Gives the URL of a new database.
pub(super) async fn choose_postgres(data: &Path) -> String {
    let url = crate::postgres::database().await;
    std::fs::create_dir_all(data).unwrap();
    std::fs::write(data.join(CHOSEN), &url).unwrap();
    url
}
