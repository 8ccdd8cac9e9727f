//! Lists whose pages are more than comes within a call.

use super::*;

/// An API server with so many Applications, which never gets done with a page of more than `most`; each page that it was
/// asked for, by its limit.
fn slow(all: usize, most: usize, asked: Arc<Mutex<Vec<usize>>>) -> kube::Client {
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let query: std::collections::BTreeMap<&str, &str> = pairs.collect();
        let limit: usize = query["limit"].parse().unwrap();
        let from: usize = query
            .get("continue")
            .map_or(0, |from| from.parse().unwrap());
        asked.lock().unwrap().push(limit);
        async move {
            if limit > most {
                std::future::pending::<()>().await;
            }
            let end = all.min(from + limit);
            let item = |n| json!({"metadata": {"name": format!("app-{n}"), "namespace": "argocd", "uid": format!("u{n}"), "resourceVersion": "5"}});
            let items: Vec<serde_json::Value> = (from..end).map(item).collect();
            let next = if end < all {
                end.to_string()
            } else {
                String::new()
            };
            let list = json!({
                "kind": "ApplicationList", "apiVersion": "argoproj.io/v1alpha1",
                "metadata": {"resourceVersion": "7", "continue": next}, "items": items,
            });
            Ok::<_, Infallible>(Response::new(Body::from(list.to_string())))
        }
    });
    kube::Client::new(service, "default")
}

async fn listed(most: usize) -> (bool, usize, Vec<usize>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let install = install_of(EngineKind::Argocd);
    let view = View::new(&install);
    let client = slow(47, most, asked.clone());
    let extent = crate::manifests::scope::Extent::Cluster;
    let mut scopes = scopes_of(&client, &install, extent).into_iter();
    let scope = scopes.find(|s| matches!(s.what, What::Children(Kind::Application)));
    let done = matches!(scope.unwrap().list(&view).await, Listed::At(version) if version == "7");
    let known = view.0.borrow().children.len();
    let asked = asked.lock().unwrap().clone();
    (done, known, asked)
}

/// A page that does not come in time is asked for in smaller ones, from where it was; no list is given up that can be had.
#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_much_is_asked_for_in_smaller_ones() {
    assert_eq!(listed(100).await, (true, 47, vec![100]));
    assert_eq!(listed(20).await, (true, 47, vec![100, 20, 20, 20]));
    let mut smallest = vec![100, 20];
    smallest.extend([4; 12]);
    assert_eq!(listed(4).await, (true, 47, smallest));
    assert_eq!(listed(3).await, (false, 0, vec![100, 20, 4]));
}
