//! Keeps a Secret of ours as it is in memory: deleted or garbled, it is back within seconds.

use std::time::Duration;

use anyhow::Result;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Secret as Object;
use kube::api::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::stored::{data, write};
use crate::agent::identity::SecretData;

const RETRY: Duration = Duration::from_secs(2);

/// Watches Secret `name` until `stop`, and writes `wanted` where `same` says that it is not there. Whoever wants something else
/// writes it first; whether that went well is looked at a little later.
pub async fn secret(
    api: Api<Object>,
    name: &'static str,
    mut wanted: watch::Receiver<Option<SecretData>>,
    same: impl Fn(&SecretData) -> bool,
    stop: CancellationToken,
) -> Result<()> {
    let events = watcher::watch_object(api.clone(), name).default_backoff();
    tokio::pin!(events);
    let mut seen = None::<SecretData>;
    let (mut wrong, mut doubt) = (false, false);
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            event = events.next() => match event {
                Some(Ok(object)) => {
                    seen = object.map(|object| data(&object));
                    wrong = !seen.as_ref().is_some_and(&same);
                }
                Some(Err(error)) => debug!(%error, name, "watch failed"),
                None => anyhow::bail!("the watch of Secret {name} ended"),
            },
            Ok(()) = wanted.changed() => {
                doubt = !wrong;
                wrong = wrong && !seen.as_ref().is_some_and(&same);
            }
            () = tokio::time::sleep(RETRY), if wrong || doubt => {
                doubt = false;
                wrong = !seen.as_ref().is_some_and(&same);
            }
        }
        let data = wanted.borrow().clone();
        if let (true, Some(data)) = (wrong, data) {
            warn!(name, "secret missing or changed; writing it again");
            match write(&api, name, &data).await {
                Ok(()) => wrong = false,
                Err(error) => warn!(error = format!("{error:#}"), "secret not written"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    const NAME: &str = "linesman-state";

    /// An API server that has the Secret, tells of nothing new, and notes what it is asked to write.
    fn server(writes: &Arc<Mutex<usize>>) -> Api<Object> {
        let writes = Arc::clone(writes);
        let service = tower::service_fn(move |request: Request<Body>| {
            let writes = Arc::clone(&writes);
            async move {
                let secret = json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME, "resourceVersion": "1"},
                    "data": {"a": "eA=="},
                });
                let watches = request
                    .uri()
                    .query()
                    .is_some_and(|q| q.contains("watch=true"));
                let answer = if *request.method() != Method::GET {
                    *writes.lock().unwrap() += 1;
                    secret
                } else if watches {
                    return std::future::pending().await;
                } else {
                    json!({
                        "apiVersion": "v1", "kind": "SecretList", "metadata": {"resourceVersion": "1"},
                        "items": [secret],
                    })
                };
                let body = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(Response::new(body))
            }
        });
        Api::namespaced(kube::Client::new(service, "linesman"), "linesman")
    }

    fn content(value: &str) -> SecretData {
        BTreeMap::from([("a".to_owned(), value.as_bytes().to_vec())])
    }

    /// A leader reads its state, and says `value` later: what was written by then, and in the end.
    async fn writes_where_it_has_to_be(values: [Option<&str>; 2]) -> [usize; 2] {
        let writes = Arc::new(Mutex::new(0));
        let [first, second] = values.map(|value| value.map(content));
        let (wanted_out, wanted) = watch::channel(first);
        let known = wanted.clone();
        let same = move |data: &SecretData| known.borrow().as_ref() == Some(data);
        let stop = CancellationToken::new();
        let keeping = secret(server(&writes), NAME, wanted, same, stop.clone());
        let told = async {
            tokio::time::sleep(RETRY / 2).await;
            let before = *writes.lock().unwrap();
            wanted_out.send_replace(second);
            tokio::time::sleep(RETRY * 4).await;
            stop.cancel();
            before
        };
        let (kept, before) = tokio::join!(keeping, told);
        kept.unwrap();
        let writes = *writes.lock().unwrap();
        [before, writes]
    }

    /// W27: a process that only begins to lead writes nothing that is there already.
    #[tokio::test(start_paused = true)]
    async fn what_is_wanted_later_and_is_there_is_not_written() {
        assert_eq!(writes_where_it_has_to_be([None, Some("x")]).await, [0, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_wanted_later_and_is_not_there_is_written_once() {
        assert_eq!(writes_where_it_has_to_be([None, Some("y")]).await, [0, 1]);
    }

    /// W25: whoever changed it could not write it, and the Secret tells nothing new.
    #[tokio::test(start_paused = true)]
    async fn a_change_that_could_not_be_written_is_written_later() {
        assert_eq!(
            writes_where_it_has_to_be([Some("x"), Some("y")]).await,
            [0, 1]
        );
    }
}
