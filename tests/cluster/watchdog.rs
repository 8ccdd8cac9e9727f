//! The watchdog alone against a real cluster, with the rights that the adoption YAML gives it: brings Flux up and
//! keeps it while somebody breaks it. Driven by hand; the whole product is tested elsewhere.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use linesman::agent::watchdog::{self, Context};
use linesman::agent::{DeployKey, Desired, Hint};
use linesman::bundle::{Bundle, Kind};
use linesman::hub::githost::embedded::{self, GitAccess, GitServer, Limits};
use linesman::keys::KeyPair;
use linesman::manifests::{self, AdoptionValues};
use linesman::wire::api::{
    Assignment, CatalogRef, ClusterRef, DeployKeyState, DeployKeyStatus, EngineKind, EngineRef,
    HubRef, Policy, Via,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

#[expect(clippy::disallowed_methods, reason = "the test's own parameters")]
fn parameter(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("set {name}"))
}

async fn client(user: Option<&str>) -> kube::Client {
    let file = Kubeconfig::read_from(parameter("KUBECONFIG")).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(file, &options)
        .await
        .unwrap();
    config.auth_info.impersonate = user.map(str::to_owned);
    kube::Client::try_from(config).unwrap()
}

async fn adopt(admin: &kube::Client) {
    for object in manifests::adoption(&AdoptionValues::placeholders()) {
        let text = |p: &str| {
            object
                .pointer(p)
                .and_then(|v| v.as_str())
                .unwrap_or_default()
                .to_owned()
        };
        let kind = Kind::parse(&text("/apiVersion"), &text("/kind")).unwrap();
        if kind == Kind::Deployment {
            continue;
        }
        let (group, version, plural) = kind.resource();
        let resource = kube::api::ApiResource {
            group: group.into(),
            version: version.into(),
            api_version: kind.api_version(),
            kind: kind.as_str().into(),
            plural: plural.into(),
        };
        let api: Api<DynamicObject> = if kind.namespaced() {
            Api::namespaced_with(admin.clone(), "linesman", &resource)
        } else {
            Api::all_with(admin.clone(), &resource)
        };
        let params = PatchParams::apply("test").force();
        api.patch(&text("/metadata/name"), &params, &Patch::Apply(&object))
            .await
            .unwrap();
    }
}

fn desired(bundle: Bundle, host: &KeyPair, deploy: &KeyPair, port: u16) -> Desired {
    let public = host.public().openssh("").unwrap();
    Desired {
        assignment: Assignment {
            cluster: ClusterRef {
                name: "w".parse().unwrap(),
                id: String::new(),
            },
            hub: HubRef {
                id: String::new(),
                urls: vec![],
                ca: String::new(),
                keyset: vec![],
            },
            catalog: CatalogRef {
                url: format!("ssh://git@git.lab.test:{port}/catalog.git"),
                via: Via::Direct,
                branch: "main".to_owned(),
                path: "clusters/w".to_owned(),
                known_hosts: format!("[git.lab.test]:{port} {}", public.trim()),
                deploy_key: DeployKeyStatus {
                    state: DeployKeyState::Registered,
                    reason: String::new(),
                },
            },
            engine: EngineRef {
                kind: EngineKind::Flux,
                version: bundle.version.clone(),
                bundle: bundle.digest.clone(),
                size: 0,
            },
            policy: Policy {
                snapshot_after: 120,
                ..Policy::default()
            },
            agent_image: None,
            revision: 1,
        },
        bundle: Arc::new(bundle),
        deploy_key: DeployKey {
            private: deploy.openssh("w").unwrap(),
            public: deploy.public().openssh("w").unwrap(),
        },
    }
}

/// `KUBECONFIG`, `HOST` (the address that the cluster sees), `REPO` (a bare repository with clusters/w) and
/// `BUNDLE` (a Flux manifest) say where; it prints the news until the file `REPO/stop` is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "driven by hand against a disposable cluster"]
#[expect(
    clippy::too_many_lines,
    reason = "the wiring of a whole agent and its Git host"
)]
async fn keeps_an_engine() {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .ok();
    tracing_subscriber::fmt()
        .with_env_filter("linesman=debug")
        .with_writer(std::io::stderr)
        .init();
    let repo = PathBuf::from(parameter("REPO"));
    let bundle = Bundle::import(&std::fs::read(parameter("BUNDLE")).unwrap()).unwrap();
    let (host, deploy) = (KeyPair::from_seed(&[1; 32]), KeyPair::from_seed(&[2; 32]));
    let stop = CancellationToken::new();
    let listener = tokio::net::TcpListener::bind((parameter("HOST").as_str(), 2222))
        .await
        .unwrap();
    let server = GitServer {
        repo: repo.clone(),
        repo_name: "catalog.git".to_owned(),
        branch: "main".to_owned(),
        host_key: host.clone(),
        limits: Limits::default(),
    };
    let (pushed, _pushes) = mpsc::channel(8);

    let allowed = deploy.public();
    let authorize = move |key: linesman::keys::Public| {
        let known = key == allowed;

        async move {
            known.then(|| GitAccess {
                who: "w".to_owned(),
                push: false,
            })
        }
        .boxed()
    };
    let git = embedded::serve(listener, server, authorize, pushed, stop.clone());
    adopt(&client(None).await).await;
    let kube = client(Some("system:serviceaccount:linesman:linesman-agent")).await;
    let context = Context {
        kube,
        namespace: "linesman".to_owned(),
        pod: "driver".to_owned(),
    };
    let (_desired, wanted) = watch::channel(Some(desired(bundle, &host, &deploy, 2222)));
    let (hint, hints) = mpsc::channel(8);
    let (news, mut told) = mpsc::channel(64);
    let dog = watchdog::run(context, wanted, hints, news, stop.clone());
    let print = async {
        while let Some(news) = told.recv().await {
            println!(
                "{} {news:?}",
                linesman::clock::rfc3339(linesman::clock::now())
            );
        }
    };
    let wait = async {
        let mut head = String::new();
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            let now = std::fs::read_to_string(repo.join("refs/heads/main")).unwrap_or_default();
            if now.trim() != head {
                now.trim().clone_into(&mut head);
                hint.send(Hint::CatalogHead(head.clone())).await.ok();
            }
            if repo.join("stop").exists() {
                stop.cancel();
                return;
            }
        }
    };
    tokio::select! {
        ended = dog => ended.unwrap(),
        ended = git => ended.unwrap(),
        () = print => {}
        () = wait => {}
    }
}
