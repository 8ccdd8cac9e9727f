use super::*;
use crate::hub::store::Store;

fn directory(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("linesman-store-{name}-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&path));
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// A power cut cannot be made here; what SQLite says it does about one can be asked.
#[tokio::test]
async fn audit_rows_wait_for_the_disk_where_they_shall() {
    let data = directory("durability");
    let store = Store::Sqlite(Sqlite::open(&data).await.unwrap());
    assert_eq!(store.audit_durability().await.unwrap(), Durability::Crash);
    let store = store.audit_survives(Durability::Crash);
    assert_eq!(store.audit_durability().await.unwrap(), Durability::Crash);
    let store = store.audit_survives(Durability::Fsync);
    assert_eq!(store.audit_durability().await.unwrap(), Durability::Fsync);
    std::fs::remove_dir_all(data).unwrap();
}

#[tokio::test]
async fn the_hub_keeps_its_id_and_a_second_hub_is_refused() {
    let data = directory("id");
    let store = Store::Sqlite(Sqlite::open(&data).await.unwrap());
    let id = store.hub_id().await.unwrap();
    let second = Sqlite::open(&data).await.err().unwrap().to_string();
    assert!(second.contains("another hub"), "{second}");
    drop(store);
    let again = Sqlite::open(&data).await.unwrap();
    assert_eq!(again.hub_id().await.unwrap(), id);
    std::fs::remove_dir_all(data).unwrap();
}
