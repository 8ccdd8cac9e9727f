//! The program against a real hub in this process.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use linesman::hub::tls::TlsSource;
use serde_json::json;

use super::{Home, Ran, mode};

mod catalog;
mod clusters;
mod doctor;
mod kubeconfig;
mod process;

pub(crate) use process::flux;
pub(super) use process::{Hub, json_of};

/// As `openssl req -x509` makes it. Neither name nor URL has to do with it.
#[test]
fn a_cas_own_certificate_as_the_hubs_is_told_as_that() {
    let home = Home::new();
    let pair = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = params.self_signed(&pair).unwrap().pem();
    let cert = home.write("own.crt", &pem);
    let key = home.write("own.key", &pair.serialize_pem());
    let tls = TlsSource::Files {
        ca: Some(cert.clone()),
        cert: cert.clone(),
        key,
    };
    let hub = Hub::with_certificate(&home, tls);
    let (token, ca) = (hub.token_file(), cert.to_str().unwrap());
    let login = home.run(&["login", &hub.url, "--token-file", &token, "--ca", ca]);
    login.fails(7, "it is a CA's own, and nobody takes that as a server's");
    assert!(login.err.contains("basicConstraints=CA:FALSE"), "{login:?}");
}

#[test]
fn a_login_proves_the_token_and_trusts_the_given_ca_only() {
    let home = Home::new();
    let hub = Hub::start(&home);
    let login = |file: &str| {
        home.run(&[
            "login",
            &hub.url,
            "--token-file",
            file,
            "--ca",
            &hub.ca_file(),
        ])
    };

    let untrusted = home.run(&["login", &hub.url, "--token-file", &hub.token_file()]);
    untrusted.fails(7, "unknown CA");
    assert!(untrusted.err.contains("--ca FILE"), "{untrusted:?}");
    // Whoever gave one is not told to give one.
    let (_, other) = crate::tls::loopback();
    let other = home.write("other.crt", &other);
    let token = hub.token_file();
    let given = ["login", &hub.url, "--token-file", &token, "--ca"];
    let untrusted = home.run(&[&given[..], &[other.to_str().unwrap()]].concat());
    untrusted.fails(7, "does not come from the CA that was given for it");
    let next = format!("give the CA of {} itself with --ca FILE", hub.url);
    assert!(untrusted.err.contains(&next), "{untrusted:?}");

    let wrong = home.write(
        "wrong.token",
        &hub.token().replace('.', "0").replacen("lmt10", "lmt1.", 1),
    );
    login(wrong.to_str().unwrap()).fails(4, "does not know this token");
    let made_up = home.write(
        "other.token",
        "lmt1.00000000-0000-7000-8000-000000000000.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n",
    );
    login(made_up.to_str().unwrap()).fails(4, "does not know this token");
    assert!(!home.0.join("state/linesman/sessions.json").exists());

    let ran = login(&hub.token_file());
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{ran:?}");
    assert!(!ran.err.contains(&hub.token()), "{ran:?}");
    assert_eq!(mode(&home.0.join("state/linesman/sessions.json")), 0o600);
    assert_eq!(
        json_of(&home.run(&["whoami", "-o", "json"]))["user"],
        "admin"
    );
}

#[test]
fn the_environment_takes_the_place_of_a_login() {
    let home = Home::new();
    let hub = Hub::start(&home);
    let mut command = home.linesman(&["cluster", "list", "-o", "json"]);
    command
        .env("LINESMAN_HUB", &hub.url)
        .env("LINESMAN_TOKEN_FILE", hub.token_file());
    command.env("LINESMAN_CA_FILE", hub.ca_file());
    let ran = Ran::of(&command.output().unwrap());
    assert_eq!(json_of(&ran), json!([]));
}

/// H59
#[test]
fn a_version_that_no_cluster_needs_is_removed_by_its_name_or_digest() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    let digest = home.run(&["engine", "list", "-o", "name"]).out;
    let digest = digest.trim();
    let by_name = ["engine", "remove", "flux", "1.8.0"];
    // The role that may remove it is enough to find it.
    let create = ["token", "create", "--title", "ci", "--scope", "operator"];
    let made = home.run(&[&create[..], &["--file", "ci.token"]].concat());
    assert_eq!(made.code, 0, "{made:?}");
    let narrow = ["--token-file", "ci.token", "-o", "json"];
    let removed = json_of(&home.run(&[&by_name[..], &narrow].concat()));
    let expected = json!({"digest": digest, "engine": "flux", "version": "1.8.0"});
    assert_eq!(removed, expected);
    let empty = home.run(&["engine", "list"]);
    assert!(empty.err.contains("the hub holds no engine"), "{empty:?}");
    home.run(&by_name).fails(3, "the hub holds no flux 1.8.0");
    home.run(&["engine", "remove", digest])
        .fails(3, &format!("the hub holds no bundle {digest}"));
    home.run(&["engine", "remove", "flux"])
        .fails(2, "no version of flux is named");

    Hub::import(&home);
    assert_eq!(home.run(&["cluster", "add", "eu1"]).code, 0);
    home.run(&by_name).fails(5, "eu1 shall run it");
}

/// No bar: what people wait for with each command that asks the hub, process and TLS handshake included. It fails where that is
/// felt, in any build and beside other tests.
#[test]
fn a_command_that_asks_the_hub_is_there_and_gone() {
    const MOST: Duration = Duration::from_secs(2);
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    let run = || {
        let begun = Instant::now();
        let ran = home.run(&["whoami"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        begun.elapsed()
    };
    let mut times: Vec<Duration> = (0..20).map(|_| run()).collect();
    times.sort_unstable();
    let median = times[10];
    println!("figure |  | whoami, a command that asks the hub, median of 20 |  | {median:.1?}");
    assert!(median < MOST, "{median:?}");
}

/// What it takes to replace the hub's key and CA is a command and a start; what is no hub's is left alone.
#[test]
fn key_and_ca_are_replaced_while_the_hub_runs() {
    let home = Home::new();
    let nowhere = home.0.join("nowhere");
    let args = ["hub", "rotate", "key", "--data", nowhere.to_str().unwrap()];
    home.run(&args).fails(1, "is not a hub's data directory");
    assert!(!nowhere.exists());

    let hub = Hub::start(&home);
    let data = hub.data().to_owned();
    let rotate = |what: &str, lead: &str| {
        let at = data.to_str().unwrap();
        let args = ["hub", "rotate", what, "--in", lead, "--data", at];
        let ran = home.run(&[&args[..], &["--yes", "-o", "json"]].concat());
        let told = json_of(&ran);
        assert!(ran.err.contains("told from now on, used from "), "{ran:?}");
        ["before", "after"].map(|when| told[when].as_str().unwrap().to_owned())
    };
    let authorities = || fs::read_to_string(data.join("ca.crt")).unwrap();
    let before = authorities();
    let keys = [rotate("key", "5m"), rotate("key", "5m")];
    assert_eq!(keys[0][1], keys[1][0]);
    let first = rotate("ca", "5m");
    // It is told beside the one that the hub has.
    let both = authorities();
    assert!(
        both.len() > before.len() && both.starts_with(before.trim_end()),
        "{both}"
    );
    hub.log_in(&home);
    for secret in ["hub.key", "ca.next", "trust.json"] {
        assert_eq!(mode(&data.join(secret)), 0o600, "{secret}");
    }
    // One that does not serve yet never will, and this one does.
    let second = rotate("ca", "0");
    assert_eq!(second[0], first[0]);
    assert!(!data.join("ca.next").exists());
    let both = authorities();
    let has_before_last = both.trim_end().ends_with(before.trim_end());
    assert!(has_before_last && both.len() > before.len(), "{both}");
    drop(hub);

    let hub = Hub::start(&home);
    let (token, authority) = (hub.token_file(), hub.ca_file());
    let login = [
        "login",
        &hub.url,
        "--token-file",
        &token,
        "--ca",
        &authority,
    ];
    let ran = home.run(&login);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(rotate("ca", "5m")[0], second[1]);
    assert_eq!(rotate("key", "5m")[0], keys[1][1]);
}

/// What nobody was told of cuts off whoever has the CA of before.
#[test]
fn another_ca_at_once_asks_first() {
    let home = Home::new();
    let hub = Hub::start(&home);
    let data = hub.data().to_str().unwrap().to_owned();
    let authorities = || fs::read_to_string(hub.data().join("ca.crt")).unwrap();
    let before = authorities();
    let rotate =
        |what: &str, lead: &str| home.run(&["hub", "rotate", what, "--in", lead, "--data", &data]);
    for (lead, shown) in [("0", "0s"), ("9s", "9s")] {
        let next = format!("run: linesman hub rotate ca --in {shown} --data {data} --yes");
        rotate("ca", lead).fails(2, &next);
    }
    assert_eq!(authorities(), before);
    // A key has to end now where it was stolen, and agents take the next one without a gap.
    for (what, lead) in [("ca", "10s"), ("key", "0")] {
        let ran = rotate(what, lead);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}

/// A hub stays in the foreground: what stands behind it would be run when it has ended.
#[test]
fn no_documented_step_waits_for_a_hub_to_end() {
    let pages = fs::read_dir("docs").unwrap();
    let mut pages: Vec<_> = pages.map(|page| page.unwrap().path()).collect();
    pages.retain(|page| page.extension().is_some_and(|e| e == "md"));
    pages.push("README.md".into());
    let mut found = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for block in text.split("```sh\n").skip(1) {
            let (block, _) = block.split_once("```").unwrap();
            let block = block.replace("\\\n", " ");
            let waits = |line: &&str| {
                let mut steps: Vec<&str> = line.split("&&").collect();
                steps.pop();
                let runs = |step: &str| {
                    step.contains("linesman hub") && !step.contains("linesman hub rotate")
                };
                steps.into_iter().any(runs)
            };
            let lines = block.lines().filter(waits);
            found.extend(lines.map(|line| format!("{}: {line}", page.display())));
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

/// What a hub makes is either in the backup that is documented, or left out there by name.
#[test]
fn the_documented_backup_knows_every_file_of_a_fresh_hub() {
    let home = Home::new();
    let hub = Hub::start(&home);
    let data = hub.data().to_owned();
    drop(hub);
    let entries = fs::read_dir(&data).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    // SQLite's own files beside the database come and go.
    let made: BTreeSet<String> = names.filter(|name| !name.starts_with("hub.db-")).collect();

    let text = fs::read_to_string("docs/operating.md").unwrap();
    let between = |begin: &str, end: &str| -> String {
        let (_, rest) = text.split_once(begin).expect(begin);
        rest.split_once(end).expect(end).0.to_owned()
    };
    let copied = between("cp -a /var/lib/linesman/{", "}");
    let left_out = between("\nLeft out are ", ". A\n");
    let quoted = left_out.split('`').skip(1).step_by(2);
    let known = ["hub.db"]
        .into_iter()
        .chain(copied.split(','))
        .chain(quoted);
    assert_eq!(made, known.map(str::to_owned).collect());
}
