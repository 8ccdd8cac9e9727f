//! L1: forms of answers that kubectl's own commands do not show, subresources, pages, and deletions of many at once.

use std::fs;

use http::Request;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{NAMESPACE, ready};
use crate::support::api::deployment;
use crate::support::audit::Mark;
use crate::support::place::{output, run};
use crate::support::world::{self, CLUSTER, World};
use crate::support::{eventually, seconds};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Code, kind and bytes of an answer.
pub(super) type Told = (u16, String, Vec<u8>);

/// A client of the hub that is not kubectl.
pub(super) struct Line<'a> {
    world: &'a World,
    client: reqwest::Client,
    runtime: Runtime,
}

impl<'a> Line<'a> {
    pub(super) fn of(world: &'a World) -> Self {
        Self::by(world, reqwest::Client::builder())
    }

    /// By the protocol in which a connection can be switched to another one.
    pub(super) fn by_http1(world: &'a World) -> Self {
        Self::by(world, reqwest::Client::builder().http1_only())
    }

    fn by(world: &'a World, client: reqwest::ClientBuilder) -> Self {
        let ca = reqwest::Certificate::from_pem(&fs::read(world.hub.ca()).unwrap()).unwrap();
        Self {
            world,
            client: client.tls_certs_only([ca]).no_proxy().build().unwrap(),
            runtime: Runtime::new().unwrap(),
        }
    }

    pub(super) fn ask(&self, request: Request<Vec<u8>>) -> Told {
        self.ask_as(request, &self.world.hub.token())
    }

    pub(super) fn ask_as(&self, request: Request<Vec<u8>>, token: &str) -> Told {
        let (head, body) = request.into_parts();
        let hub = &self.world.hub;
        let url = format!("{}/clusters/{CLUSTER}{}", hub.url(), head.uri);
        let request = self.client.request(head.method, url).headers(head.headers);
        let request = request.bearer_auth(token).body(body);
        self.runtime.block_on(async {
            let answer = request.send().await.unwrap();
            let kind = answer.headers().get("content-type");
            let kind = kind.map_or("", |kind| kind.to_str().unwrap()).to_owned();
            let code = answer.status().as_u16();
            (code, kind, answer.bytes().await.unwrap().to_vec())
        })
    }
}

fn get(path: &str, accept: &str) -> Request<Vec<u8>> {
    let request = Request::get(path).header("accept", accept);
    request.body(Vec::new()).unwrap()
}

/// The same both ways; what changes by itself is looked at again.
fn same(line: &Line<'_>, path: &str, accept: &str) -> Told {
    let what = format!("{path} as {accept}");
    let compared = || {
        let direct = line.world.api.raw(get(path, accept));
        if line.ask(get(path, accept)) == direct {
            Ok(direct)
        } else {
            Err("it differs")
        }
    };
    eventually(&what, seconds(10), compared).0
}

/// L1: protobuf, tables, metadata alone, discovery of all in one, and what cannot be had in a form.
#[test]
#[ignore = "needs a real cluster: make test"]
fn every_form_of_an_answer_is_the_same_as_without_the_hub() {
    let world = world::adopted();
    ready(&world);
    let line = Line::of(&world);
    let pod = format!("/api/v1/namespaces/{NAMESPACE}/pods/box");
    let pod = pod.as_str();
    let flux =
        "/apis/source.toolkit.fluxcd.io/v1/namespaces/flux-system/gitrepositories/flux-system";
    let status = format!("{flux}/status");
    let (protobuf, list) = (
        format!("{PROTOBUF},{JSON}"),
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    );
    let discovery = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList";
    let table = format!("{PROTOBUF};as=Table;v=v1;g=meta.k8s.io,{TABLE}");
    for (path, accept, code, kind) in [
        ("/version", JSON, 200, JSON),
        (pod, PROTOBUF, 200, PROTOBUF),
        (pod, TABLE, 200, JSON),
        // Of tables there is no protobuf.
        (pod, table.as_str(), 200, JSON),
        (pod, "application/yaml", 200, "application/yaml"),
        ("/api/v1/namespaces/none", PROTOBUF, 404, PROTOBUF),
        ("/apis", discovery, 200, JSON),
        (
            "/openapi/v2",
            "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
            200,
            "application/",
        ),
        // Nor of custom resources, which it says in protobuf.
        (flux, PROTOBUF, 406, PROTOBUF),
        (status.as_str(), protobuf.as_str(), 200, JSON),
        (pod, "text/none", 406, ""),
    ] {
        let (found, shown, body) = same(&line, path, accept);
        assert_eq!(found, code, "{path} as {accept}");
        assert!(shown.starts_with(kind), "{path} as {accept}: {shown}");
        assert!(!body.is_empty(), "{path} as {accept}");
    }
    pages(&line, &[JSON, PROTOBUF, TABLE, list]);
    // And back: what was read as protobuf is written as that, unchanged.
    let path = format!("/api/v1/namespaces/{NAMESPACE}");
    let (_, _, read) = same(&line, &path, PROTOBUF);
    let put = Request::put(&path)
        .header("accept", PROTOBUF)
        .header("content-type", PROTOBUF);
    let put = put.body(read.clone()).unwrap();
    assert_eq!(line.ask(put), (200, PROTOBUF.to_owned(), read));
}

/// A list in pages, at one moment and to its end: each page is the same, with its word for the next.
fn pages(line: &Line<'_>, forms: &[&str]) {
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let found = line.world.api.get(&format!("{roles}?limit=1")).unwrap();
    let at = found["metadata"]["resourceVersion"].as_str().unwrap();
    let selected = "labelSelector=kubernetes.io%2Fbootstrapping%3Drbac-defaults";
    let mut more = String::new();
    let mut count = 0;
    loop {
        let place = if more.is_empty() {
            format!("resourceVersion={at}&resourceVersionMatch=Exact")
        } else {
            format!("continue={more}")
        };
        let path = format!("{roles}?{selected}&limit=20&{place}");
        let forms = forms.iter().map(|form| same(line, &path, form));
        let forms: Vec<Told> = forms.collect();
        assert!(forms.iter().all(|(code, ..)| *code == 200), "{path}");
        count += 1;
        let json: Value = serde_json::from_slice(&forms[0].2).unwrap();
        let next = json["metadata"]["continue"].as_str();
        next.unwrap_or_default().clone_into(&mut more);
        if more.is_empty() {
            break;
        }
    }
    assert!(count >= 3, "{count} pages");
}

/// L1: `/status` and `/scale` of what is built in and of what is not, read and changed; can-i, explain, selectors and pages.
#[test]
#[ignore = "needs a real cluster: make test"]
fn subresources_and_selections_are_the_same_as_without_the_hub() {
    let world = world::adopted();
    ready(&world);
    let create = "create deployment forms --image=lab.invalid/busybox:1 --replicas=0";
    through(&world, create);
    for args in [
        "get deployment forms --subresource=scale -o json",
        "get deployment forms --subresource=status -o json",
        "patch deployment forms --subresource=scale --type=merge -p {\"spec\":{\"replicas\":3}} --dry-run=server -o json",
        "patch deployment forms --subresource=status --type=merge -p {\"status\":{\"replicas\":7}} --dry-run=server -o json",
        "patch deployment forms --type=strategic -p {\"spec\":{\"paused\":true}} --dry-run=server -o json",
        "patch deployment forms --type=json -p [{\"op\":\"add\",\"path\":\"/spec/paused\",\"value\":true}] --dry-run=server -o json",
        "patch deployment forms --type=json -p [{\"op\":\"test\",\"path\":\"/spec/replicas\",\"value\":7}]",
        "patch gitrepository flux-system -n flux-system --subresource=status --type=merge -p {\"status\":{\"observedGeneration\":7}} --dry-run=server -o json",
        "label deployment forms a=b --overwrite --dry-run=server -o json",
        "delete deployment forms --dry-run=server",
        "scale deployment forms --replicas=2 --dry-run=server",
        "scale deployment forms --replicas=2 --current-replicas=5",
        "get gitrepository flux-system -n flux-system --subresource=status -o json",
        "get gitrepository flux-system -n flux-system --subresource=scale",
        "explain gitrepository.spec.ref --recursive",
        "explain pods.spec.containers.ports",
        "auth can-i create pods/exec",
        "auth can-i get /healthz",
        "get configmaps --field-selector metadata.name=kube-root-ca.crt -o name",
        "get configmaps --field-selector metadata.none=x",
        "get clusterroles -l kubernetes.io/bootstrapping=rbac-defaults --chunk-size=7 -o name",
        "get pods -l a=b,c!=d,e,!f",
        "get pods -l a==b==c",
        "get --raw /api/v1/namespaces/kubectl-tests/pods?limit=1&labelSelector=a%3Db&resourceVersion=0",
    ] {
        let words: Vec<&str> = args.split(' ').collect();
        let told = |mut command: std::process::Command| {
            let told = output(command.args(["-n", NAMESPACE]).args(&words));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (told.status.code(), text(&told.stdout), text(&told.stderr))
        };
        eventually(args, seconds(10), || {
            let (direct, line) = (told(world.place.kubectl()), told(world.through_line()));
            if direct == line {
                Ok(())
            } else {
                Err(format!("{direct:?} and {line:?}"))
            }
        });
    }
    through(&world, "scale deployment forms --replicas=1");
    let live = world.api.get(&deployment(NAMESPACE, "forms")).unwrap();
    assert_eq!(live["spec"]["replicas"], 1);
    through(&world, "delete deployment forms --wait=false");
}

fn through(world: &World, args: &str) {
    let mut line = world.through_line();
    run(line.args(["-n", NAMESPACE]).args(args.split(' ')));
}

/// L1: one deletion of all that a selector finds.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_collection_is_deleted_by_one_request() {
    let world = world::adopted();
    ready(&world);
    let maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    for (name, kind) in [("one", "go"), ("two", "go"), ("three", "stay")] {
        let meta = json!({"name": format!("all-{name}"), "labels": {"all": kind}});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta});
        world.api.create(&maps, &map);
    }
    let mark = Mark::now(&world.audit);
    let path = format!("{maps}?labelSelector=all%3Dgo");
    let (code, _, body) = Line::of(&world).ask(Request::delete(path).body(Vec::new()).unwrap());
    let gone: Value = serde_json::from_slice(&body).unwrap();
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        items
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        (code, names(&gone)),
        (200, vec!["all-one".into(), "all-two".into()])
    );
    let left = world.api.get(&format!("{maps}?labelSelector=all")).unwrap();
    assert_eq!(names(&left), ["all-three"]);
    let asked = mark.answered();
    let deletions = asked.iter().filter(|a| a.verb.starts_with("delete"));
    let deletions = deletions.filter(|a| a.resource == "configmaps" && a.namespace == NAMESPACE);
    let verbs: Vec<&str> = deletions.map(|a| a.verb.as_str()).collect();
    assert_eq!(verbs, ["deletecollection"]);
    world.api.delete(&format!("{maps}/all-three"));
}
