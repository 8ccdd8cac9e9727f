//! L35: what proves no identity, whom the role does not name, and what has no token is refused: nothing goes to the API server
//! as the line's account alone.

use ::http::{Method, Request};
use bytes::Bytes;
use linesman::agent::forward::subjects::Want;
use linesman::agent::forward::upstream::{Credential, Upstream};
use linesman::agent::gate::policy::Policy;
use linesman::assertion::{ApiMeta, Mode};
use linesman::clock;
use linesman::hub::assertion::{self, Subject};
use linesman::keys::KeyPair;
use linesman::kubeapi::trace::TraceParent;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::apiserver::{ApiServer, Seen};
use super::pair::Pair;
use super::told::{Row, told};
use super::world::{PATIENCE, World, get, post};
use super::{header, status};

/// A request for Pods of the first stream of a [`Pair`], as a hub that asserts what it likes.
fn meta(signer: [u8; 32], user: &str, groups: &[&str]) -> ApiMeta {
    let request = assertion::Request {
        hub_id: "hub",
        cluster_id: "cluster",
        epoch: 3,
        id: &clock::now().unix_timestamp_nanos().to_string(),
        attempt: 0,
        method: &Method::GET,
        target: "/api/v1/pods",
        ip: "10.1.2.3",
        trace: TraceParent::begin([7; 16], [7; 8]),
    };
    let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
    let subject = Subject {
        user,
        groups: &groups,
        actor: None,
        mode: Mode::Full,
        namespaces: None,
    };
    let key = KeyPair::from_seed(&signer);
    assertion::issue(&request, &subject, clock::now(), "k1", |input| {
        key.sign(input)
    })
    .unwrap()
}

#[tokio::test]
async fn what_proves_nobodys_identity_is_not_sent() {
    const HUB: [u8; 32] = [5; 32];
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let asserted = |assertion: &str| ApiMeta {
        assertion: assertion.to_owned(),
        ..meta(HUB, "linesman:ada", &[])
    };
    let ada = meta(HUB, "linesman:ada", &[]).assertion;
    let unsigned = format!("{}.", ada.rsplit_once('.').unwrap().0);
    for (what, meta, reason) in [
        ("none", asserted(""), "Assertion"),
        ("no signature", asserted(&unsigned), "Assertion"),
        (
            "a stranger's",
            meta([6; 32], "linesman:ada", &[]),
            "Assertion",
        ),
        ("nobody", meta(HUB, "", &[]), "Name"),
        ("an empty name", meta(HUB, "linesman:", &[]), "Name"),
        ("an admin", meta(HUB, "system:admin", &[]), "Name"),
        (
            "the line itself",
            meta(HUB, "system:serviceaccount:linesman:linesman-line", &[]),
            "Name",
        ),
        (
            "masters",
            meta(HUB, "linesman:ada", &["system:masters"]),
            "Name",
        ),
        ("an empty group", meta(HUB, "linesman:ada", &[""]), "Name"),
    ] {
        let request = Request::get("/api/v1/pods").header("host", "h");
        let request = request.body(Bytes::new()).unwrap();
        let answer = pair.send_with(request, meta).await.unwrap();
        assert_eq!(answer.status(), 403, "{what}");
        let said = status(answer).await;
        let cause = &said["details"]["causes"][0];
        assert_eq!(
            (&cause["field"], &cause["reason"]),
            (&"agent".into(), &reason.into()),
            "{what}: {said}"
        );
    }
    assert_eq!(server.seen().len(), 0, "{:?}", server.seen());
}

/// What becomes of a wish for a name in the role.
#[derive(Debug, Clone, Copy)]
enum Keeper {
    Refuses,
    Forgets,
    IsGone,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_in_the_role_is_not_acted_as() {
    const NEXT: &str = "run 'linesman doctor', or apply the adoption YAML again";
    const WHY: &str = "ClusterRole linesman-line-subjects cannot be written";
    for (keeper, code, what) in [
        (Keeper::Refuses, 502, WHY),
        (
            Keeper::Forgets,
            504,
            "ClusterRole linesman-line-subjects was not extended in time",
        ),
        (Keeper::IsGone, 503, "too many first uses of names at once"),
    ] {
        let server = ApiServer::start().await;
        let mut world = World::new().await;
        let url = format!("http://{}/", server.authority());
        let mut parts = Pair::reaching(&url, &world.hub.id, &world.cluster_id, Policy::default());
        let (wants, mut wanted) = mpsc::channel::<Want>(8);
        parts.wants = wants;
        let mut tasks = JoinSet::new();
        match keeper {
            Keeper::IsGone => drop(wanted),
            Keeper::Refuses | Keeper::Forgets => drop(tasks.spawn(async move {
                while let Some(want) = wanted.recv().await {
                    if matches!(keeper, Keeper::Refuses) {
                        drop(want.done.send(Err(WHY.to_owned())));
                    }
                }
            })),
        }
        world.agent_of(parts.into()).await;
        for request in [get("/api/v1/pods"), post("/api/v1/pods", "{}")] {
            let row = Row {
                hop: "agent",
                code,
                reason: "Impersonation",
                what,
                next: NEXT,
                after: None,
            };
            told(world.send(request).await, row).await;
        }
        assert_eq!(server.seen().len(), 0, "{keeper:?}: {:?}", server.seen());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_token_nothing_is_sent() {
    let withdrawn = Credential::Withdrawn {
        namespace: "linesman".to_owned(),
    };
    let missing = Credential::Missing {
        why: "ServiceAccount linesman-line was not found".to_owned(),
    };
    for (credential, row) in [
        (
            withdrawn,
            Row {
                hop: "agent",
                code: 502,
                reason: "Withdrawn",
                what: "the cluster's owner ended access through the line: Secret linesman-line-bind was deleted",
                next: "to allow it again: kubectl -n linesman create secret generic linesman-line-bind",
                after: None,
            },
        ),
        (
            missing,
            Row {
                hop: "api server",
                code: 502,
                reason: "Token",
                what: "ServiceAccount linesman-line was not found",
                next: "check Secret linesman-line-bind in the agent's namespace",
                after: None,
            },
        ),
    ] {
        let server = ApiServer::start().await;
        let mut world = World::new().await;
        let url = format!("http://{}/", server.authority());
        let mut parts = Pair::reaching(&url, &world.hub.id, &world.cluster_id, Policy::default());
        let config = kube::Config::new(url.parse().unwrap());
        let (held, credentials) = watch::channel(credential);
        parts.upstream = Upstream::new(&config, credentials, mpsc::channel(1).0).unwrap();
        world.agent_of(parts.into()).await;
        for request in [get("/api/v1/pods"), post("/api/v1/pods", "{}")] {
            let asked = timeout(PATIENCE, world.send(request)).await;
            told(asked.expect("it is told"), row).await;
        }
        assert_eq!(server.seen().len(), 0, "{:?}", server.seen());
        drop(held);
    }
}

/// What the API server refuses is tried again as the same user, and never as less.
#[tokio::test]
async fn a_refused_pin_or_token_is_never_tried_without_the_user() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    server.refuse_impersonation(usize::MAX);
    let answer = pair.send(get("/api/v1/pods")).await.unwrap();
    assert_eq!(answer.status(), 403);
    let said = status(answer).await;
    let cause = &said["details"]["causes"][0];
    assert_eq!(cause["reason"], "Impersonation", "{said}");
    server.refuse_impersonation(0);
    server.accept_only("Bearer of nobody");
    let answer = pair.send(get("/api/v1/pods")).await.unwrap();
    assert_eq!(answer.status(), 502);
    let seen = server.seen();
    // Whose refusal it is, the line asks as itself.
    let asks = |one: &Seen| one.target.ends_with("/selfsubjectaccessreviews");
    let (asked, seen): (Vec<_>, Vec<_>) = seen.into_iter().partition(asks);
    assert_eq!((asked.len(), seen.len()), (2, 4 + 2), "{seen:?}");
    for one in seen {
        assert_eq!(header(&one, "impersonate-user"), ["linesman:ada"]);
        assert_eq!(
            header(&one, "impersonate-group"),
            ["linesman:admin", "linesman:ops"]
        );
    }
}
