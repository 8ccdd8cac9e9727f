//! `engine import` from releases, served over HTTPS as their projects and mirrors serve them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use linesman::keys::sha256_hex;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::hub::{Hub, flux, json_of};
use super::{Home, Ran};

/// What a path answers.
#[derive(Clone)]
pub(super) enum Answer {
    File(Vec<u8>),
    To(String),
    /// Bytes without an end.
    Endless,
}

type Files = Arc<Mutex<BTreeMap<String, Answer>>>;

/// An HTTPS server, and a proxy before it that counts what it carries; both end when dropped.
pub(super) struct Mirror {
    address: SocketAddr,
    proxy: SocketAddr,
    pub(super) ca: String,
    files: Files,
    carried: Arc<Mutex<Vec<String>>>,
    runtime: tokio::runtime::Runtime,
}

impl Mirror {
    pub(super) fn start() -> Self {
        let (acceptor, ca) = crate::tls::loopback();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let bind = || runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let (listener, proxy) = (bind(), bind());
        let (files, carried) = (Files::default(), Arc::default());
        let mirror = Self {
            address: listener.local_addr().unwrap(),
            proxy: proxy.local_addr().unwrap(),
            ca,
            files: Arc::clone(&files),
            carried: Arc::clone(&carried),
            runtime,
        };
        let handle = mirror.runtime.handle();
        handle.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, files) = (acceptor.clone(), Arc::clone(&files));
                open.spawn(async move {
                    if let Ok(tls) = acceptor.accept(socket).await {
                        drop(serve(tls, &files).await);
                    }
                });
            }
        });
        handle.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((socket, _)) = proxy.accept().await {
                let carried = Arc::clone(&carried);
                open.spawn(async move { drop(tunnel(socket, &carried).await) });
            }
        });
        mirror
    }

    pub(super) fn url(&self) -> String {
        format!("https://{}/flux2", self.address)
    }

    pub(super) fn put(&self, path: &str, answer: Answer) {
        let path = format!("/flux2{path}");
        self.files.lock().unwrap().insert(path, answer);
    }

    /// A release as Flux publishes it, whose list has the digest of `listed`.
    fn release(&self, manifest: &str, listed: &str) {
        let list = format!(
            "{}  flux_1.8.0_linux_amd64.tar.gz\n{}  install.yaml\n",
            "0".repeat(64),
            sha256_hex(listed.as_bytes())
        );
        self.put("/v1.8.0/install.yaml", Answer::File(manifest.into()));
        self.put(
            "/v1.8.0/flux_1.8.0_checksums.txt",
            Answer::File(list.into()),
        );
    }
}

async fn head(reader: &mut (impl AsyncRead + Unpin)) -> std::io::Result<String> {
    let mut reader = BufReader::new(reader);
    let mut first = String::new();
    reader.read_line(&mut first).await?;
    let mut line = String::new();
    while reader.read_line(&mut line).await? > 2 {
        line.clear();
    }
    Ok(first.split(' ').nth(1).unwrap_or_default().to_owned())
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    files: &Files,
) -> std::io::Result<()> {
    let path = head(&mut stream).await?;
    let found = files.lock().unwrap().get(&path).cloned();
    let close = "connection: close\r\n";
    match found {
        None => {
            let text = format!("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n{close}\r\n");
            stream.write_all(text.as_bytes()).await?;
        }
        Some(Answer::To(to)) => {
            let text =
                format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n{close}\r\n");
            stream.write_all(text.as_bytes()).await?;
        }
        Some(Answer::File(bytes)) => {
            let length = bytes.len();
            let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n{close}\r\n");
            stream.write_all(text.as_bytes()).await?;
            stream.write_all(&bytes).await?;
        }
        Some(Answer::Endless) => {
            let text = format!("HTTP/1.1 200 OK\r\n{close}\r\n");
            stream.write_all(text.as_bytes()).await?;
            loop {
                stream.write_all(&[b'#'; 8_192]).await?;
            }
        }
    }
    stream.shutdown().await
}

/// `CONNECT`, as proxies carry TLS.
async fn tunnel(mut client: TcpStream, carried: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let to = head(&mut client).await?;
    let mut server = TcpStream::connect(&to).await?;
    carried.lock().unwrap().push(to);
    client
        .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
        .await?;
    tokio::io::copy_bidirectional(&mut client, &mut server)
        .await
        .map(drop)
}

/// A hub, a mirror that is trusted, and who imports from it.
struct World {
    home: Home,
    _hub: Hub,
    mirror: Mirror,
    ca: String,
}

impl World {
    fn new() -> Self {
        let home = Home::new();
        let hub = Hub::start(&home);
        hub.log_in(&home);
        let mirror = Mirror::start();
        let ca = home.write("mirror.pem", &mirror.ca).display().to_string();
        Self {
            home,
            _hub: hub,
            mirror,
            ca,
        }
    }

    fn import(&self, what: &[&str], more: &[&str]) -> Ran {
        let from = self.mirror.url();
        let mut args = vec!["engine", "import"];
        args.extend(what);
        args.extend(["--from", from.as_str(), "--ca-file", self.ca.as_str()]);
        args.extend(more);
        self.home.run(&args)
    }

    fn held(&self) -> usize {
        let list = json_of(&self.home.run(&["engine", "list", "-o", "json"]));
        list.as_array().unwrap().len()
    }
}

#[test]
fn a_release_is_fetched_verified_by_its_own_list_and_told() {
    let world = World::new();
    let manifest = flux();
    world.mirror.release(&manifest, &manifest);
    let told = world.import(&["flux", "v1.8.0"], &[]);
    assert_eq!((told.code, told.out.as_str()), (0, ""), "{told:?}");
    for text in [
        "imported flux 1.8.0: 10 objects, sha256:",
        "verified by checksums that the mirror itself gave",
        "image   ghcr.io/fluxcd/source-controller:v1.8.0",
    ] {
        assert!(told.err.contains(text), "{told:?}");
    }
    let again = json_of(&world.import(&["flux", "1.8.0"], &["-o", "json"]));
    assert_eq!(again["version"], "1.8.0");
    assert_eq!(again["verifiedBy"], "checksums that the mirror itself gave");
    assert_eq!(again["manifestSha256"], sha256_hex(manifest.as_bytes()));
    assert_eq!(
        again["source"],
        format!("{}/v1.8.0/install.yaml", world.mirror.url())
    );
    assert_eq!(world.held(), 1);
    let few = "source-controller,kustomize-controller";
    let chosen = world.import(&["flux", "1.8.0"], &["--components", few]);
    assert_eq!(chosen.code, 0, "{chosen:?}");
    let lacks = world.import(&["flux", "1.8.0"], &["--components", "source-watcher"]);
    lacks.fails(1, "has no source-watcher");
    let unknown = world.import(&["flux", "1.8.0"], &["--components", "nginx"]);
    unknown.fails(1, "'nginx' is none of Flux' controllers");
}

/// W45: an altered manifest is refused with both digests, an Argo CD that nobody vouches for with the one that was seen, which is not
/// what to give: its digest comes from the project's tag.
#[test]
fn what_nobody_vouches_for_is_refused_and_nothing_is_stored() {
    let world = World::new();
    let (manifest, other) = (flux(), format!("{}# altered\n", flux()));
    world.mirror.release(&other, &manifest);
    let [expected, found] = [&manifest, &other].map(|text| sha256_hex(text.as_bytes()));
    let altered = world.import(&["flux", "1.8.0"], &[]);
    altered.fails(1, "not imported: ");
    assert!(
        altered.err.contains(&expected) && altered.err.contains(&found),
        "{altered:?}"
    );
    // Whoever gives the digest takes the word of the list upon himself.
    let wrong = world.import(&["flux", "1.8.0"], &["--sha256", &expected]);
    wrong.fails(1, &found);
    assert_eq!(world.held(), 0);

    let core = "/v3.99.0/manifests/core-install.yaml";
    world.mirror.put(core, Answer::File(manifest.into()));
    let full = "/v3.99.0/manifests/install.yaml";
    world.mirror.put(full, Answer::File(other.into()));
    for (flags, file, digest) in [
        (&[][..], "core-install.yaml", &expected),
        (&["--full"], "install.yaml", &found),
    ] {
        let unknown = world.import(&["argocd", "3.99.0"], flags);
        unknown.fails(1, "its project publishes none");
        let seen = format!("/v3.99.0/manifests/{file} has the SHA-256 {digest}; ");
        let tag = format!(
            "git clone --depth 1 --branch v3.99.0 https://github.com/argoproj/argo-cd && sha256sum argo-cd/manifests/{file}; "
        );
        let err = &unknown.err;
        assert!(err.contains(&seen) && err.contains(&tag), "{unknown:?}");
        assert!(!err.contains(&format!("--sha256 {digest}")), "{unknown:?}");
    }
    let one = world.import(&["flux", "1.8.0"], &["--full"]);
    one.fails(2, "Flux has one manifest for all of it");
    // Vouched for, and yet it is not what was asked for: the hub says so.
    let misnamed = world.import(&["argocd", "3.99.0"], &["--sha256", &expected]);
    misnamed.fails(1, "the manifest is of flux 1.8.0");
    assert_eq!(world.held(), 0);
    let given = world.import(&["flux", "1.8.0"], &["--sha256", &found]);
    assert_eq!(given.code, 0, "{given:?}");
    assert_eq!(world.held(), 1);
}

/// Such a file is imported, and was not told from what somebody vouched for afterwards.
#[test]
fn a_file_that_nobody_vouches_for_is_told_until_somebody_does() {
    let world = World::new();
    let manifest = flux();
    let file = world.home.write("flux.yaml", &manifest);
    let file = file.to_str().unwrap();
    let listed = || {
        let listed = world.home.run(&["engine", "list", "-o", "json"]);
        json_of(&listed)[0]["origin"].clone()
    };
    let on_record = || {
        let records = ["audit", "list", "--action", "bundle.import", "-o", "json"];
        let records = json_of(&world.home.run(&records));
        let all = records.as_array().unwrap().iter();
        let targets = all.map(|record| record["target"].as_str().unwrap().to_owned());
        targets.collect::<Vec<String>>()
    };
    let imported = world.home.run(&["engine", "import", file]);
    assert_eq!(imported.code, 0, "{imported:?}");
    let nobody = serde_json::json!({"source": file, "verifiedBy": ""});
    assert_eq!(listed(), nobody);
    let table = world.home.run(&["engine", "list"]);
    assert!(table.out.contains(" no "), "{table:?}");
    let said = format!(", not verified, from {file}");
    let records = on_record();
    assert!(records[0].ends_with(&said), "{records:?}");

    let sum = sha256_hex(manifest.as_bytes());
    let given = world
        .home
        .run(&["engine", "import", file, "--sha256", &sum]);
    assert_eq!(given.code, 0, "{given:?}");
    assert_eq!(listed()["verifiedBy"], "--sha256");
    assert_eq!(on_record().len(), 2);
}

#[test]
fn a_mirror_is_followed_over_https_only_and_within_bounds() {
    let world = World::new();
    let manifest = flux();
    world.mirror.release(&manifest, &manifest);
    let to = |path: &str| Answer::To(format!("{}{path}", world.mirror.url()));
    let at = "/v1.8.0/install.yaml";
    world
        .mirror
        .put("/elsewhere", Answer::File(manifest.into()));
    world.mirror.put(at, to("/elsewhere"));
    assert_eq!(world.import(&["flux", "1.8.0"], &[]).code, 0);

    world.mirror.put(at, to(at));
    world
        .import(&["flux", "1.8.0"], &[])
        .fails(7, "led on more than 5 times");
    let plain = world.mirror.url().replace("https:", "http:");
    world.mirror.put(at, Answer::To(plain));
    world
        .import(&["flux", "1.8.0"], &[])
        .fails(7, "which is not https");
    world.mirror.put(at, Answer::Endless);
    world
        .import(&["flux", "1.8.0"], &[])
        .fails(7, "larger than 16777216 bytes");
    world
        .import(&["flux", "1.9.0"], &[])
        .fails(3, "HTTP 404 Not Found");
    let from = world.mirror.url();
    let untrusted = ["engine", "import", "flux", "1.8.0", "--from", &from];
    world.home.run(&untrusted).fails(7, "UnknownIssuer");
    for (args, says) in [
        (&["flux"][..], "no version of flux is named"),
        (&["flux", "latest"], "'latest' is not a version"),
        (&["file.yaml", "1.8.0"], "'file.yaml' is no engine"),
        (
            &["flux", "1.8.0", "--from", "http://mirror.lan"],
            "is not the address of a mirror",
        ),
    ] {
        let args = [&["engine", "import"], args].concat();
        world.home.run(&args).fails(2, says);
    }
}

#[test]
fn the_environments_proxy_carries_it() {
    let world = World::new();
    let manifest = flux();
    world.mirror.release(&manifest, &manifest);
    let from = world.mirror.url();
    let args = ["engine", "import", "flux", "1.8.0", "--from", &from];
    let mut command = world.home.linesman(&args);
    command
        .args(["--ca-file", &world.ca])
        .env("HTTPS_PROXY", format!("http://{}", world.mirror.proxy));
    let ran = Ran::of(&command.output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");
    let carried = world.mirror.carried.lock().unwrap();
    let ours = world.mirror.address.to_string();
    assert!(carried.contains(&ours), "{carried:?}");
}
