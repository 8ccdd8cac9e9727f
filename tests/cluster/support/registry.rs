//! A registry of images that asks who pulls: the part of the OCI distribution specification that pulling takes, with its Basic
//! authentication, over HTTP. What it asks and is asked is between it and the node; how a node trusts a registry is not the agent's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, StatusCode, header};
use linesman::keys::sha256_hex;
use serde_json::{Value, json};
use tokio::fs::File;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_util::io::ReaderStream;

use super::place::{Place, lab, run};

pub(crate) const USER: &str = "lab";
pub(crate) const PASSWORD: &str = "let-me-pull";

/// Media types of the OCI image specification.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

pub(crate) struct Registry {
    /// `HOST:PORT`, as the node reaches it.
    pub(crate) address: String,
    /// `HOST:PORT/PATH`, below which its images are.
    pub(crate) below: String,
    shared: Arc<Shared>,
    _runtime: Runtime,
}

/// By whom something was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// Without a word on who it is, as each first request of a pull is.
    Nobody,
    /// With another user or password.
    Stranger,
    Friend,
}

struct Shared {
    /// By the paths at which they are asked for.
    contents: BTreeMap<String, Content>,
    /// What a friend's `Authorization` reads.
    friend: String,
    asked: Mutex<BTreeSet<(Who, String)>>,
}

/// A manifest or a blob.
#[derive(Clone)]
struct Content {
    kind: &'static str,
    digest: String,
    /// Bytes.
    size: u64,
    file: PathBuf,
}

impl Registry {
    /// One on the host's address, which the lab's containerd is told to ask. For each of these of the lab's images it has one at the
    /// same path below its own.
    pub(crate) fn serve(place: &Place, directory: &Path, path: &str, images: &[String]) -> Self {
        let contents = images.iter();
        let contents = contents.flat_map(|named| image(directory, path, named));
        let said = STANDARD.encode(format!("{USER}:{PASSWORD}"));
        let shared = Arc::new(Shared {
            contents: contents.collect(),
            friend: format!("Basic {said}"),
            asked: Mutex::default(),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind((place.host.as_str(), 0)));
        let listener = listener.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let app = Router::new().fallback(answer);
        let app = app.with_state(Arc::clone(&shared));
        runtime.spawn(async move { axum::serve(listener, app).await });
        without_tls(place, &address);
        Self {
            below: format!("{address}/{path}"),
            address,
            shared,
            _runtime: runtime,
        }
    }

    /// What one of the lab's images is called here.
    pub(crate) fn name_of(&self, image: &str) -> String {
        let (_, path) = image.split_once('/').unwrap();
        format!("{}/{path}", self.below)
    }

    /// Who came until now.
    pub(crate) fn askers(&self) -> BTreeSet<Who> {
        let asked = self.shared.asked.lock().unwrap();
        asked.iter().map(|(who, _)| *who).collect()
    }

    /// The paths of all that a friend asked for until now.
    pub(crate) fn given(&self) -> BTreeSet<String> {
        let asked = self.shared.asked.lock().unwrap();
        let friends = asked.iter().filter(|(who, _)| *who == Who::Friend);
        friends.map(|(_, path)| path.clone()).collect()
    }

    /// The paths of all that there is.
    pub(crate) fn all(&self) -> BTreeSet<String> {
        self.shared.contents.keys().cloned().collect()
    }
}

/// The lab's containerd looks here at each pull (containerd, `docs/hosts.md`); a file without a `host` it does not take.
fn without_tls(place: &Place, address: &str) {
    let state = place.kubeconfig.parent().unwrap();
    let directory = state.join("etc/certs.d").join(address);
    fs::create_dir_all(&directory).unwrap();
    let hosts = format!(
        "server = \"http://{address}\"\n[host.\"http://{address}\"]\ncapabilities = [\"pull\", \"resolve\"]\n"
    );
    fs::write(directory.join("hosts.toml"), hosts).unwrap();
}

/// An image of the program that the lab's own is of, with a directory more in its layer: so the node has no part of it yet, and
/// its kubelet does not take the two for one.
fn image(directory: &Path, path: &str, named: &str) -> [(String, Content); 4] {
    let (_, rest) = named.split_once('/').unwrap();
    let (name, tag) = rest.rsplit_once(':').unwrap();
    let program = name.rsplit('/').next().unwrap();
    let directory = directory.join(program);
    fs::create_dir_all(&directory).unwrap();
    let archive = directory.join("archive.tar");
    let [labtool, binary] = ["tools", program].map(|built| run(lab().args(["path", built])));
    run(Command::new(labtool.trim())
        .args(["image", "-tag", named, "-o"])
        .arg(&archive)
        .args([binary.trim(), "/mirrored/"]));
    run(Command::new("tar")
        .arg("-C")
        .arg(&directory)
        .arg("-xf")
        .arg(&archive));
    fs::remove_file(&archive).unwrap();

    let read = |file: &str| -> Value {
        serde_json::from_slice(&fs::read(directory.join(file)).unwrap()).unwrap()
    };
    let content = |kind: &'static str, digest: &str, file: &str| {
        let (digest, file) = (digest.to_owned(), directory.join(file));
        let size = fs::metadata(&file).unwrap().len();
        Content {
            kind,
            digest,
            size,
            file,
        }
    };
    // A Docker archive names its configuration by its digest, and that its layers by theirs.
    let archived = read("manifest.json");
    let file = archived[0]["Config"].as_str().unwrap();
    let digest = format!("sha256:{}", file.strip_suffix(".json").unwrap());
    let config = content(CONFIG, &digest, file);
    let layers = read(file)["rootfs"]["diff_ids"].clone();
    let layer = content(LAYER, layers[0].as_str().unwrap(), "layer.tar");
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": config.described(), "layers": [layer.described()],
    });
    let manifest = manifest.to_string();
    fs::write(directory.join("manifest"), &manifest).unwrap();
    let digest = format!("sha256:{}", sha256_hex(manifest.as_bytes()));
    let manifest = content(MANIFEST, &digest, "manifest");
    let at = |of: &str, reference: &str| format!("/v2/{path}/{name}/{of}/{reference}");
    [
        (at("manifests", tag), manifest.clone()),
        (at("manifests", &digest), manifest),
        (at("blobs", &config.digest), config),
        (at("blobs", &layer.digest), layer),
    ]
}

impl Content {
    /// As a manifest names it.
    fn described(&self) -> Value {
        json!({ "mediaType": self.kind, "digest": self.digest, "size": self.size })
    }

    async fn answer(&self) -> Response {
        let file = File::open(&self.file).await.unwrap();
        let head = [
            ("content-type", self.kind.to_owned()),
            ("content-length", self.size.to_string()),
            ("docker-content-digest", self.digest.clone()),
        ];
        (head, Body::from_stream(ReaderStream::new(file))).into_response()
    }
}

impl Shared {
    fn who(&self, headers: &HeaderMap) -> Who {
        match headers.get(header::AUTHORIZATION) {
            None => Who::Nobody,
            Some(said) if said.as_bytes() == self.friend.as_bytes() => Who::Friend,
            Some(_) => Who::Stranger,
        }
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let who = shared.who(request.headers());
    let path = request.uri().path().to_owned();
    shared.asked.lock().unwrap().insert((who, path.clone()));
    if who != Who::Friend {
        let challenge = [("www-authenticate", "Basic realm=\"lab\"")];
        return (StatusCode::UNAUTHORIZED, challenge).into_response();
    }
    match shared.contents.get(&path) {
        Some(content) => content.answer().await,
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
