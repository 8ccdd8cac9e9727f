use super::*;
use crate::hub::store::Store;

fn directory(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("linesman-store-{name}-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&path));
    std::fs::create_dir_all(&path).unwrap();
    path
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
