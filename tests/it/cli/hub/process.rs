//! The hub as the verbs find it: on ports of its own, with an admin token.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use linesman::hub::access::GrantRules;
use linesman::hub::tls::TlsSource;
use linesman::hub::{HubConfig, Listeners, oidc, serve};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::cli::{Home, Ran};

/// A hub on ports of its own, ended and waited for when dropped.
pub(in crate::cli) struct Hub {
    pub(in crate::cli) url: String,
    data: PathBuf,
    stop: CancellationToken,
    crash: CancellationToken,
    thread: Option<std::thread::JoinHandle<anyhow::Result<()>>>,
}

impl Hub {
    pub(in crate::cli) fn start(home: &Home) -> Self {
        Self::serve(home, 0, |_| {})
    }

    /// That says of its catalog that it is somewhere else.
    pub(super) fn with_git_at(home: &Home, git: SocketAddr) -> Self {
        Self::serve(home, 0, move |config| {
            config.git_url = format!("ssh://git@{git}");
        })
    }

    /// That shows this certificate.
    pub(super) fn with_certificate(home: &Home, tls: TlsSource) -> Self {
        Self::serve(home, 0, move |config| config.tls = tls)
    }

    /// That asks this of the grants that people give.
    pub(in crate::cli) fn granting(home: &Home, rules: GrantRules) -> Self {
        Self::serve(home, 0, move |config| config.grants = rules)
    }

    /// Where one was that ended.
    pub(in crate::cli) fn start_at(home: &Home, port: u16) -> Self {
        Self::serve(home, port, |_| {})
    }

    /// Ends in the middle of everything; gives the port on which it was.
    pub(in crate::cli) fn crash(mut self) -> u16 {
        self.crash.cancel();
        let thread = self.thread.take().unwrap();
        thread.join().unwrap().unwrap();
        let (_, port) = self.url.rsplit_once(':').unwrap();
        port.parse().unwrap()
    }

    /// With an identity provider, which is made for the hub's URL.
    pub(in crate::cli) fn with_oidc(
        home: &Home,
        oidc: impl FnOnce(&str) -> oidc::Config + Send + 'static,
    ) -> Self {
        Self::serve(home, 0, |config| config.oidc = Some(oidc(&config.url)))
    }

    fn serve(home: &Home, at: u16, change: impl FnOnce(&mut HubConfig) + Send + 'static) -> Self {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let data = home.0.join("hub");
        let (stop, crash) = (CancellationToken::new(), CancellationToken::new());
        let (ready, started) = std::sync::mpsc::channel();
        let (token, crashes, directory) = (stop.clone(), crash.clone(), data.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(async {
                let port = async |at: u16| TcpListener::bind(("127.0.0.1", at)).await;
                let listeners = Listeners {
                    https: port(at).await?,
                    git: port(0).await?,
                    health: port(0).await?,
                    peer: None,
                };
                let mut config = config(&directory, &listeners)?;
                change(&mut config);
                let url = config.url.clone();
                let (hub, chain) = serve::start(config, token).await?;
                ready.send(url)?;
                tokio::select! {
                    ended = serve::run(listeners, hub, chain) => ended,
                    () = crashes.cancelled() => Ok(()),
                }
            })
        });
        let Ok(url) = started.recv() else {
            panic!("the hub did not start: {:?}", thread.join());
        };
        Self {
            url,
            data,
            stop,
            crash,
            thread: Some(thread),
        }
    }

    pub(in crate::cli) fn token_file(&self) -> String {
        self.data.join("admin.token").display().to_string()
    }

    pub(in crate::cli) fn token(&self) -> String {
        fs::read_to_string(self.token_file())
            .unwrap()
            .trim()
            .to_owned()
    }

    pub(in crate::cli) fn data(&self) -> &Path {
        &self.data
    }

    pub(in crate::cli) fn ca_file(&self) -> String {
        self.data.join("ca.crt").display().to_string()
    }

    /// A home that is logged in.
    pub(in crate::cli) fn log_in(&self, home: &Home) {
        let ran = home.run(&[
            "login",
            &self.url,
            "--token-file",
            &self.token_file(),
            "--ca",
            &self.ca_file(),
        ]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }

    /// As any HTTP client would.
    pub(in crate::cli) fn get(&self, url: &str, token: &str) -> (u16, Value) {
        let ca = fs::read_to_string(self.ca_file()).unwrap();
        let request = linesman::client::http(Some(&ca))
            .unwrap()
            .get(url)
            .bearer_auth(token);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let answer = request.send().await.unwrap();
            (answer.status().as_u16(), answer.json().await.unwrap())
        })
    }

    /// With an engine to give to clusters.
    pub(in crate::cli) fn import(home: &Home) {
        let file = home.write("flux.yaml", &flux());
        let ran = home.run(&["engine", "import", file.to_str().unwrap(), "-o", "name"]);
        assert!(ran.code == 0 && ran.out.starts_with("sha256:"), "{ran:?}");
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn config(data: &Path, listeners: &Listeners) -> anyhow::Result<HubConfig> {
    let (https, git) = (listeners.https.local_addr()?, listeners.git.local_addr()?);
    Ok(HubConfig {
        trusted_proxies: [].into(),
        records: linesman::hub::store::Records::File,
        keys: linesman::hub::rotation::KeyPolicy::default(),
        bounds: linesman::hub::Bounds::default(),
        data: data.to_owned(),
        url: format!("https://{https}"),
        listen: https,
        health_listen: listeners.health.local_addr()?,
        git_listen: git,
        git_url: format!("ssh://git@{git}"),
        tls: TlsSource::Own { names: Vec::new() },
        agent_image: "registry.invalid/linesman-agent:1".to_owned(),
        offline_after: std::time::Duration::from_secs(40),
        drain: std::time::Duration::from_secs(1),
        git_over_line: linesman::hub::gitline::Allowed::Auto,
        audit: linesman::hub::AuditConfig::default(),
        notify: linesman::hub::notify::Config::default(),
        oidc: None,
        grants: GrantRules::default(),
        sessions: oidc::Lifetimes::default(),
        peer: None,
    })
}

/// The least that an import takes for Flux.
pub(crate) fn flux() -> String {
    let object = |api: &str, kind: &str, name: &str, namespace: Option<&str>| {
        let mut object = json!({ "apiVersion": api, "kind": kind, "metadata": { "name": name } });
        if let Some(namespace) = namespace {
            object["metadata"]["namespace"] = json!(namespace);
        }
        if kind == "Deployment" {
            let image = format!("ghcr.io/fluxcd/{name}:v1.8.0");
            object["spec"] = json!({ "template": { "spec": { "containers": [{ "name": "manager", "image": image }] } } });
        }
        object
    };
    let ours = Some("flux-system");
    let rbac = "rbac.authorization.k8s.io/v1";
    let crd = |name| {
        object(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            name,
            None,
        )
    };
    let objects = [
        object("v1", "Namespace", "flux-system", None),
        crd("gitrepositories.source.toolkit.fluxcd.io"),
        crd("kustomizations.kustomize.toolkit.fluxcd.io"),
        object(rbac, "ClusterRole", "crd-controller-flux-system", None),
        object(
            rbac,
            "ClusterRoleBinding",
            "cluster-reconciler-flux-system",
            None,
        ),
        object("v1", "ServiceAccount", "source-controller", ours),
        object("v1", "ServiceAccount", "kustomize-controller", ours),
        object("v1", "Service", "source-controller", ours),
        object("apps/v1", "Deployment", "source-controller", ours),
        object("apps/v1", "Deployment", "kustomize-controller", ours),
    ];
    linesman::yaml::print_all(&objects).unwrap()
}

pub(in crate::cli) fn json_of(ran: &Ran) -> Value {
    assert_eq!(ran.code, 0, "{ran:?}");
    serde_json::from_str(&ran.out).unwrap()
}
