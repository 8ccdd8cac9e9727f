//! What the same work costs somebody else: nginx before the same API server. It ends TLS, asks the API server over kept connections
//! with a client's certificate, and writes a line for each request into a file. It looks up no user and no grant, chains no record,
//! signs nothing, and has no line between.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use kube::config::Kubeconfig;
use serde_json::json;

use super::client;
use crate::support::world::World;

pub(super) struct Nginx {
    child: Child,
    place: PathBuf,
    address: SocketAddr,
    ca: String,
}

impl Nginx {
    /// None where it is not installed.
    pub(super) fn before(world: &World) -> Option<Self> {
        let place = world.directory.join("nginx");
        fs::create_dir_all(&place).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let put = |name: &str, text: &[u8]| fs::write(place.join(name), text).unwrap();
        put("front.pem", made.cert.pem().as_bytes());
        put("front.key", made.signing_key.serialize_pem().as_bytes());
        let server = credentials(&world.place.kubeconfig, &put);
        put("nginx.conf", config(&place, address, &server).as_bytes());
        // It ends with this process in any case.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "nginx", "-c"])
            .arg(place.join("nginx.conf"))
            .arg("-e")
            .arg(place.join("error.log"))
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut nginx = Self {
            child,
            place,
            address,
            ca: made.cert.pem(),
        };
        let began = Instant::now();
        while TcpStream::connect(nginx.address).is_err() {
            let ended = nginx.child.try_wait().unwrap().is_some();
            if ended || began.elapsed() > Duration::from_secs(10) {
                let why = fs::read_to_string(nginx.place.join("error.log"));
                println!("nginx: not measured: {}", why.unwrap_or_default());
                return None;
            }
            thread::yield_now();
        }
        Some(nginx)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) async fn client(&self) -> Client {
        let (server, ca) = (
            format!("https://{}", self.address),
            STANDARD.encode(&self.ca),
        );
        let file = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "peer",
            "clusters": [{"name": "peer", "cluster": {"server": server, "certificate-authority-data": ca}}],
            "users": [{"name": "peer", "user": {}}],
            "contexts": [{"name": "peer", "context": {"cluster": "peer", "user": "peer"}}],
        });
        client(Kubeconfig::from_yaml(&file.to_string()).unwrap()).await
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Puts what the API server is asked with into files, and gives its address.
fn credentials(kubeconfig: &Path, put: &impl Fn(&str, &[u8])) -> String {
    let text = fs::read_to_string(kubeconfig).unwrap();
    let value = |key: &str| {
        let (_, rest) = text.split_once(&format!("{key}:")).unwrap();
        let part = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
        let rest = rest.trim_start();
        let end = rest.find(|c| !part(c)).unwrap_or(rest.len());
        STANDARD.decode(&rest[..end]).unwrap()
    };
    put("ca.pem", &value("certificate-authority-data"));
    put("client.pem", &value("client-certificate-data"));
    put("client.key", &value("client-key-data"));
    let file = Kubeconfig::read_from(kubeconfig).unwrap();
    let cluster = file.clusters[0].cluster.as_ref().unwrap();
    cluster.server.clone().unwrap()
}

fn config(place: &Path, address: SocketAddr, server: &str) -> String {
    let host = server.trim_start_matches("https://").trim_end_matches('/');
    let place = place.display();
    let scratch = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let scratch = scratch.map(|kind| format!("{kind}_temp_path {place}/{kind};"));
    let scratch = scratch.join(" ");
    format!(
        "daemon off; master_process off; pid {place}/pid; events {{}}
        http {{
            access_log {place}/access.log; {scratch}
            upstream api {{ server {host}; keepalive 64; }}
            server {{
                listen {address} ssl;
                keepalive_requests 10000000;
                ssl_certificate {place}/front.pem; ssl_certificate_key {place}/front.key;
                ssl_protocols TLSv1.3;
                location / {{
                    proxy_pass https://api;
                    proxy_http_version 1.1;
                    proxy_set_header Connection '';
                    proxy_ssl_protocols TLSv1.3;
                    proxy_ssl_trusted_certificate {place}/ca.pem;
                    proxy_ssl_certificate {place}/client.pem; proxy_ssl_certificate_key {place}/client.key;
                    proxy_buffering off;
                }}
            }}
        }}"
    )
}
