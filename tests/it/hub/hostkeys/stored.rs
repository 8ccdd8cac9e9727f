//! What is told and shown of the built-in Git host's keys is what the store and the files have, whoever changed them.

use std::time::Duration;

use linesman::hub::githost::hostkeys::{BUILTIN, Standing, TrustedKey};
use linesman::hub::serve;
use linesman::ssh::known_hosts::HostKey;
use serde_json::{Value, json};

use super::super::support::TestHub;
use super::{PATH, ROTATE, joined, key, known_hosts, prints, says, shown, until_keys};
use crate::wait::until;

const PATIENCE: Duration = Duration::from_mins(1);

/// A rotation that has begun: the key that is shown, and the next one.
async fn begun(hub: &TestHub) -> (HostKey, HostKey) {
    let old = hub.hub.git_keys.served();
    let (code, host) = hub.post(ROTATE, &json!({})).await;
    assert_eq!(code, 200, "{host}");
    let next = host["keys"][1]["key"].as_str().unwrap();
    let next = HostKey::parse(next, 1000).unwrap();
    assert_eq!(
        prints(&host),
        [(&*old.fingerprint, "current"), (&*next.fingerprint, "next")]
    );
    (old, next)
}

async fn now(hub: &TestHub) -> (u16, Value) {
    hub.post(ROTATE, &json!({ "now": true })).await
}

async fn actions(hub: &TestHub) -> Vec<String> {
    let rows = hub.hub.store.audit_tail(None, 100).await.unwrap();
    let actions = rows.into_iter().map(|row| row.action);
    actions.filter(|a| a.starts_with("githost.")).collect()
}

/// H18: a change that is stored although nobody heard so (its answer was lost on the way) is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_are_told_what_the_store_has_although_nobody_heard_that_it_changed() {
    let hub = TestHub::start("hostkey-unheard").await;
    let agent = joined(&hub, "eu1", 1).await;
    let (own, new) = (hub.hub.git_keys.served(), key(50));
    let before = hub.hub.store.host_keys(BUILTIN).await.unwrap();
    let at = before[0].added_at + time::Duration::SECOND;
    let added = TrustedKey {
        key: new.clone(),
        standing: Standing::Old,
        source: "file".to_owned(),
        added_by: "ada".to_owned(),
        added_at: at,
        since: at,
    };
    let after = before.iter().cloned().chain([added]).collect();
    let changed = hub.hub.store.change_host_keys(BUILTIN, before, after).await;
    assert!(changed.unwrap());
    says(&agent, &hub, &[&own], &own).await;
    until_keys(&hub, &[(&own, "current"), (&new, "old")]).await;
    let (_, lines) = known_hosts(&agent, &hub, "eu1").await;
    assert!(
        lines[0].ends_with(&own.text) && lines[1].ends_with(&new.text),
        "{lines:?}"
    );
    hub.stop().await;
}

/// W42: the key that another replica, or a hub that was killed, put in the present one's place is shown; its file is no more
/// where the next one was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_next_key_that_is_in_its_place_already_is_shown() {
    let hub = TestHub::start("hostkey-placed").await;
    joined(&hub, "eu1", 1).await;
    let (_, next) = begun(&hub).await;
    let data = hub.data();
    std::fs::rename(serve::next_host_key(data), serve::host_key(data)).unwrap();
    let (code, host) = now(&hub).await;
    assert_eq!(
        (code, &host["keys"][1]["served"]),
        (200, &json!(true)),
        "{host}"
    );
    assert_eq!(shown(&hub).await, next.text);
    hub.stop().await;
}

/// W42: where the next key's file is lost, the present one is shown on, nothing else is on record, and another rotation goes
/// through once the lost key is dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_present_key_is_shown_on_where_the_next_one_is_lost() {
    let hub = TestHub::start("hostkey-next-lost").await;
    joined(&hub, "eu1", 1).await;
    let (old, next) = begun(&hub).await;
    std::fs::remove_file(serve::next_host_key(hub.data())).unwrap();
    let (code, problem) = now(&hub).await;
    assert_eq!(code, 500, "{problem}");
    assert_eq!(shown(&hub).await, old.text);
    let (_, host) = hub.get(PATH).await;
    assert_eq!(
        prints(&host),
        [(&*old.fingerprint, "current"), (&*next.fingerprint, "next")]
    );
    assert_eq!(actions(&hub).await, ["githost.rotate-host-key"]);
    let drop = "/v1/githosts/builtin/host-keys/drop";
    let lost = json!({ "fingerprint": next.fingerprint });
    let (code, host) = hub.post(drop, &lost).await;
    assert_eq!(code, 200, "{host}");
    let (_, next) = begun(&hub).await;
    assert_eq!(now(&hub).await.0, 200);
    assert_eq!(shown(&hub).await, next.text);
    hub.stop().await;
}

/// W42: two replicas that are asked at once rotate once, and both show what the store says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_rotate_at_once_do_it_one_after_the_other() {
    let (hubs, _database) = TestHub::replicas("hostkey-replicas").await;
    let [a, b] = &hubs;
    // It does not say that it has the next key: nothing goes on by itself.
    joined(a, "eu1", 1).await;
    for _ in 0..3 {
        let body = json!({});
        let ((one, said), (other, too)) =
            tokio::join!(a.post(ROTATE, &body), b.post(ROTATE, &body));
        assert_eq!((one, other), (200, 200), "{said} {too}");
        let stored = a.hub.store.host_keys(BUILTIN).await.unwrap();
        let next = stored.into_iter().find(|t| t.standing == Standing::Next);
        let next = next.unwrap().key;
        let ((one, said), (other, too)) = tokio::join!(now(a), now(b));
        let mut codes = [one, other];
        codes.sort_unstable();
        // Who comes second is told that none is under way any more.
        assert_eq!(codes, [200, 404], "{said} {too}");
        for hub in [a, b] {
            let served = async || hub.hub.git_keys.served() == next;
            until("both show the new key", PATIENCE, served).await;
        }
    }
    let [a, b] = hubs;
    a.leave().await;
    b.stop().await;
}
