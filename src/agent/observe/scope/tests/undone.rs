//! An API server whose store was put back from a backup.

use super::*;

/// An API server with one Service, of another version in the first list than in all that follow, each as of a resourceVersion; and from
/// where it is asked to watch.
fn restored(lists: [(u64, u64); 2], asked: Arc<Mutex<Vec<String>>>) -> kube::Client {
    let listed = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let query = request.uri().query().unwrap_or_default();
        let body = if query.contains("watch=") {
            let mut pairs = query.split('&');
            let from = pairs.find_map(|pair| pair.strip_prefix("resourceVersion="));
            asked.lock().unwrap().push(from.unwrap().to_owned());
            Body::from_stream(futures_util::stream::pending::<Result<Bytes, Infallible>>())
        } else {
            let (at, version) = lists[listed.fetch_add(1, Ordering::Relaxed).min(1)];
            let list = json!({
                "kind": "ServiceList", "apiVersion": "v1",
                "metadata": {"resourceVersion": at.to_string()}, "items": [service_of("a", version)],
            });
            Body::from(list.to_string())
        };
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    kube::Client::new(service, "default")
}

/// The version of the Service that is known after two such lists, and from where watches were begun.
async fn known(lists: [(u64, u64); 2]) -> (Option<u64>, Vec<String>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kube = restored(lists, Arc::clone(&asked));
    let install = install_of(EngineKind::Flux);
    let view = View::new(&install);
    let scopes = scopes_of(&kube, &install, crate::manifests::scope::Extent::Cluster);
    let mut scopes = scopes.into_iter();
    let scope = scopes.find(|s| matches!(s.what, What::Objects(Kind::Service)));
    let two = Duration::from_secs(100);
    drop(timeout(two, scope.unwrap().observe(&view)).await);
    let id = ObjectId::new(Kind::Service, "flux-system", "source-controller");
    let version = view.get(&id).map(|there| there.version);
    let asked = asked.lock().unwrap().clone();
    (version, asked)
}

/// The objects of the backup have the UIDs of those that were known, and older versions: they are what there is.
#[tokio::test(start_paused = true)]
async fn a_store_that_was_put_back_is_believed() {
    let texts = |all: &[u64]| all.iter().map(u64::to_string).collect::<Vec<_>>();
    for (second, version, from) in [
        // The store counts on from the backup, or was set ahead of all that there was.
        ((1_010, 900), 900, &[5_000, 1_010][..]),
        ((9_000, 900), 900, &[5_000, 9_000]),
        // As ever: one watch, beside which the list is read.
        ((5_000, 4_800), 4_800, &[5_000]),
        ((5_100, 5_050), 5_050, &[5_000]),
    ] {
        let found = known([(5_000, 4_800), second]).await;
        assert_eq!(found, (Some(version), texts(from)), "{second:?}");
    }
}
