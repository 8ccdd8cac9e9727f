//! What people and programs hand to a hub in confidence, and its own private keys, stand in no log, answer or argument list.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use serde_json::json;

use crate::cli::{Home, flux};

/// Every one is sent somewhere below.
const CANARIES: [(&str, &str); 7] = [
    (
        "wrong bearer token",
        "lmt1.AAAAAAAAAAAAAAAAAAAAAA.canary-bearer-4fK2s9QpLx7Zc1Vb",
    ),
    ("basic password", "Y2FuYXJ5LWJhc2ljOnA0c3N3MHJkLTkxMjM0NTY="),
    ("cookie", "canary-cookie-8Hn3Rk5Wq0"),
    ("query", "canary-query-6Jd2Mx4Tz8"),
    ("body of a call", "canary-body-1Gb7Yc9Uf3"),
    ("body for a cluster", "canary-manifest-5Ev0Pa2Kj6"),
    (
        "wrong join token",
        "lmj1.AAAAAAAAAAAAAAAAAAAAAA.canary-join-3Sw8Dl6Nh4Xo2",
    ),
];

/// The real program as a hub that logs all it can.
struct Hub {
    process: Child,
    data: PathBuf,
    url: String,
    health: String,
    log: Option<JoinHandle<String>>,
}

impl Hub {
    fn start(home: &Home) -> Self {
        let data = home.path().join("hub");
        let any = "127.0.0.1:0";
        let mut process = home
            .linesman(&[
                "--log",
                "trace",
                "hub",
                "--listen",
                any,
                "--git-listen",
                any,
            ])
            .args(["--health-listen", any, "--drain", "1s", "--data"])
            .arg(&data)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = process.stderr.take().unwrap();
        let log = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            errors.read_to_end(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let banner: Vec<String> = lines.map(Result::unwrap).take(4).collect();
        let value = |key: &str| {
            let line = banner.iter().find_map(|l| l.strip_prefix(key));
            line.unwrap_or_else(|| panic!("no {key} in {banner:?}"))
                .trim()
                .to_owned()
        };
        let health = value("health");
        Self {
            process,
            data,
            url: value("hub"),
            health: health.split_once("/readyz").unwrap().0.to_owned(),
            log: Some(log),
        }
    }

    fn file(&self, name: &str) -> String {
        self.data.join(name).display().to_string()
    }

    fn token(&self) -> String {
        fs::read_to_string(self.file("admin.token"))
            .unwrap()
            .trim()
            .to_owned()
    }

    /// A piece of each private key in its directory, of what is the key's own: not the beginning, which all such files share.
    fn keys(&self) -> Vec<(String, String)> {
        let entries = fs::read_dir(&self.data).unwrap().map(Result::unwrap);
        let key = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path()).ok()?;
            let own = match text.lines().next()? {
                // The line in which the seed is, and the one that the secret number goes on in.
                "-----BEGIN OPENSSH PRIVATE KEY-----" => 4,
                "-----BEGIN PRIVATE KEY-----" => 2,
                _ => return None,
            };
            let piece = text.lines().nth(own).unwrap()[8..36].to_owned();
            Some((entry.file_name().into_string().unwrap(), piece))
        };
        entries.filter_map(key).collect()
    }

    fn arguments(&self) -> String {
        fs::read_to_string(format!("/proc/{}/cmdline", self.process.id())).unwrap()
    }

    /// Ends as by a signal; gives the whole log.
    fn end(mut self) -> String {
        let asked = Command::new("kill")
            .arg(self.process.id().to_string())
            .status();
        assert!(asked.unwrap().success());
        assert!(self.process.wait().unwrap().success());
        self.log.take().unwrap().join().unwrap()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if self.log.is_some() {
            drop(self.process.kill());
            drop(self.process.wait());
        }
    }
}

/// Each call with something in it that must not come back; gives the answers.
async fn calls(hub: &Hub, adopt: &str) -> Vec<(String, String)> {
    let [bearer, basic, cookie, query, body, manifest, join] = CANARIES.map(|(_, text)| text);
    let ca = fs::read_to_string(hub.file("ca.crt")).unwrap();
    let client = linesman::client::http(Some(&ca)).unwrap();
    let url = |path: &str| format!("{}{path}", hub.url);
    let token = hub.token();
    let requests = [
        client.get(url("/v1/clusters")).bearer_auth(bearer),
        client
            .get(url("/v1/clusters"))
            .header("authorization", format!("Basic {basic}")),
        client
            .get(url("/v1/whoami"))
            .bearer_auth(&token)
            .header("cookie", format!("session={cookie}")),
        client
            .get(url(&format!("/v1/clusters?token={query}")))
            .bearer_auth(&token),
        client
            .post(url("/v1/clusters"))
            .bearer_auth(&token)
            .json(&json!({ "name": "eu2", "password": body })),
        client
            .post(url("/v1/clusters"))
            .bearer_auth(&token)
            .body(format!("{{\"name\": \"{body}")),
        client
            .post(url("/v1/join"))
            .json(&json!({ "token": join, "cluster": "eu1" })),
        client.get(url(&format!("/adopt/{join}.yaml"))),
        client
            .get(url("/clusters/eu1/api/v1/secrets"))
            .bearer_auth(bearer),
        client
            .post(url(&format!(
                "/clusters/eu1/api/v1/namespaces/a/secrets?fieldManager={query}"
            )))
            .bearer_auth(&token)
            .header("cookie", cookie)
            .body(manifest),
        client.get(format!("{}/metrics", hub.health)),
        client.get(url("/openapi.json")),
        client.get(url("/v1/audit")).bearer_auth(&token),
    ];
    let mut answers = Vec::new();
    for request in requests {
        let response = request.send().await.unwrap();
        let place = format!("{} from {}", response.status(), response.url().path());
        let headers = format!("{:?}", response.headers());
        answers.push((place, headers + &response.text().await.unwrap()));
    }
    // The YAML is where the join token belongs; only the hub's log of this call is looked at.
    let yaml = client
        .get(adopt)
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(yaml.contains("lmj1."), "{yaml}");
    answers
}

/// H12, L49
#[test]
fn no_secret_is_in_a_log_at_any_level_nor_in_an_answer() {
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let home = Home::new();
    let hub = Hub::start(&home);
    let verbose = |args: &[&str]| home.run(&[&["--log", "trace"], args].concat());
    let ran = verbose(&[
        "login",
        &hub.url,
        "--token-file",
        &hub.file("admin.token"),
        "--ca",
        &hub.file("ca.crt"),
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let mut places = vec![("login".to_owned(), ran.out + &ran.err)];
    let bundle = home.write("flux.yaml", &flux());
    assert_eq!(
        home.run(&["engine", "import", bundle.to_str().unwrap()])
            .code,
        0
    );
    let added = verbose(&["cluster", "add", "eu1", "-o", "json"]);
    assert_eq!(added.code, 0, "{added:?}");
    places.push(("progress of cluster add".to_owned(), added.err));
    let added: serde_json::Value = serde_json::from_str(&added.out).unwrap();
    let adopt = added["adoptUrl"].as_str().unwrap();
    let join_token = adopt.rsplit('/').next().unwrap().trim_end_matches(".yaml");
    assert!(join_token.starts_with("lmj1."), "{adopt}");

    let runtime = tokio::runtime::Runtime::new().unwrap();
    places.extend(runtime.block_on(calls(&hub, adopt)));
    for verb in [
        &["cluster", "show", "eu1"][..],
        &["audit", "list"],
        &["whoami"],
        &["doctor"],
    ] {
        let ran = verbose(verb);
        places.push((verb.join(" "), ran.out + &ran.err));
    }
    places.push(("the hub's arguments".to_owned(), hub.arguments()));
    let token = hub.token();
    let keys = hub.keys();
    for name in ["hub.key", "ca.key", "git_host_key"] {
        assert!(keys.iter().any(|(file, _)| file == name), "no {name}");
    }
    let log = hub.end();
    assert!(
        log.contains("TRACE") && log.contains("eu1") && log.len() > 100_000,
        "the log is no trace: {} bytes",
        log.len()
    );
    places.push(("the hub's log".to_owned(), log));

    let secret_part = |token: &str| token.rsplit('.').next().unwrap().to_owned();
    let mut canaries: Vec<_> = CANARIES
        .map(|(what, text)| (what, secret_part(text)))
        .to_vec();
    canaries.push(("admin token", secret_part(&token)));
    canaries.push(("join token", secret_part(join_token)));
    let own = keys.iter();
    canaries.extend(own.map(|(file, piece)| (file.as_str(), piece.clone())));
    let found = found(&places, &canaries);
    assert!(found.is_empty(), "{found:#?}");
}

/// Which of them is where, with the line.
fn found(places: &[(String, String)], canaries: &[(&str, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for (place, text) in places {
        let hits = canaries
            .iter()
            .filter(|(_, canary)| text.contains(canary.as_str()));
        found.extend(hits.map(|(what, canary)| {
            let line = text.lines().find(|l| l.contains(canary.as_str())).unwrap();
            format!(
                "{what} in {place}: {}",
                line.chars().take(300).collect::<String>()
            )
        }));
    }
    found
}
