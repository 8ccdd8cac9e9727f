//! The program against a real hub in this process.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Home, Ran, mode};

mod catalog;
mod doctor;
mod kubeconfig;
mod process;

pub(crate) use process::flux;
pub(super) use process::{Hub, json_of};

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

/// H35: what the YAML covers is asked for in words, and a new YAML covers no more by the way.
#[test]
fn namespaces_are_kept_over_a_readoption_and_grow_by_the_operators_word_only() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    for (list, says) in [
        ("shop,Shop", "'Shop' is not the name of a namespace"),
        ("shop,shop", "namespace shop is named twice"),
        ("linesman", "namespace linesman holds keys"),
    ] {
        home.run(&["cluster", "add", "eu1", "--namespaces", list])
            .fails(2, says);
    }
    let covered = |args: &[&str]| -> String {
        let ran = home.run(args);
        assert_eq!(ran.code, 0, "{ran:?}");
        let objects = ran.out.split("---\n");
        let map = objects.filter(|o| o.contains("  namespaces: |"));
        let map = map.last().unwrap_or_default();
        let lines = map.lines().filter(|l| l.starts_with("    "));
        let names: Vec<&str> = lines.map(str::trim).filter(|l| !l.contains(':')).collect();
        names.join(",")
    };
    let add = ["cluster", "add", "eu1", "--namespaces", "shop-db,shop"];
    assert_eq!(covered(&add), "shop,shop-db");
    let readopt = ["cluster", "readopt", "eu1"];
    let with = |more: &[&str]| covered(&[&readopt[..], more].concat());
    assert_eq!(with(&[]), "shop,shop-db");
    assert_eq!(with(&["--access", "edit"]), "shop,shop-db");
    assert_eq!(with(&["--namespaces", "mail"]), "mail");
    assert_eq!(with(&["--strict"]), "flux-system,linesman");
    assert_eq!(with(&["--whole-cluster"]), "");
    let shown = home.run(&["cluster", "show", "eu1"]).out;
    assert!(shown.contains("namespaces shop-db, shop"), "{shown}");
    let shown = json_of(&home.run(&["cluster", "show", "eu1", "-o", "json"]));
    assert_eq!(shown["scope"]["namespaces"], json!(["shop-db", "shop"]));
}

/// H59
#[test]
fn a_clusters_life_ends_each_verb_with_its_code() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);

    home.run(&["cluster", "show", "eu1"])
        .fails(3, "show cluster eu1");
    let garbage = home.write("garbage.yaml", "kind: Nonsense\n");
    home.run(&["engine", "import", garbage.to_str().unwrap()])
        .fails(
            1,
            "bundle: neither a Flux nor an Argo CD install: no CRD of theirs is in it\n",
        );
    Hub::import(&home);
    assert_eq!(
        json_of(&home.run(&["engine", "list", "-o", "json"]))[0]["engine"],
        "flux"
    );

    let added = home.run(&["cluster", "add", "eu1", "--label", "env=prod"]);
    assert_eq!(added.code, 0, "{added:?}");
    assert!(
        added.out.starts_with("---\n") && added.out.contains("lmj1."),
        "{added:?}"
    );
    assert!(!added.err.contains("lmj1."), "{added:?}");
    home.run(&["cluster", "add", "eu1"])
        .fails(5, "add cluster eu1");

    let waited = home.run(&["cluster", "wait", "eu1", "--timeout", "1s"]);
    waited.fails(6, "no word from cluster eu1 yet");

    let told = home.run(&["cluster", "engine", "eu1", "flux"]);
    assert!(
        told.code == 0 && told.out.contains("flux 1.8.0"),
        "{told:?}"
    );
    let other = home.run(&["cluster", "engine", "eu1", "argocd"]);
    other.fails(5, "prune each other's work");

    let again = home.run(&["cluster", "readopt", "eu1", "--file", "adopt.yaml"]);
    assert_eq!((again.code, again.out.as_str()), (0, ""), "{again:?}");
    assert_eq!(mode(&home.0.join("adopt.yaml")), 0o600);
    assert_ne!(
        fs::read_to_string(home.0.join("adopt.yaml")).unwrap(),
        added.out
    );

    assert_eq!(home.run(&["cluster", "list", "-o", "name"]).out, "eu1\n");
    let table = home.run(&["cluster", "list", "-l", "env=prod"]).out;
    assert!(
        table.starts_with("NAME ") && table.contains("\neu1 "),
        "{table}"
    );
    home.run(&["cluster", "remove", "eu1"])
        .fails(2, "needs a yes");
    assert_eq!(home.run(&["cluster", "remove", "eu1", "--yes"]).code, 0);
    home.run(&["cluster", "show", "eu1"])
        .fails(3, "show cluster eu1");

    let audit = home.run(&["audit", "list", "-o", "json"]);
    assert!(
        json_of(&audit)
            .as_array()
            .is_some_and(|records| records.len() >= 3),
        "{audit:?}"
    );
    assert!(
        !audit.out.contains("lmj1.") && !audit.out.contains(&hub.token()),
        "{audit:?}"
    );
}

/// Roles that stayed would be those of whoever makes the agent's namespace and ServiceAccount anew.
#[test]
fn what_an_agent_out_of_reach_leaves_is_named_with_the_commands_that_take_it_away() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    assert_eq!(home.run(&["cluster", "add", "eu1"]).code, 0);
    let removed = home.run(&["cluster", "remove", "eu1", "--yes"]);
    assert_eq!((removed.code, removed.out.as_str()), (0, ""), "{removed:?}");
    let lines: Vec<&str> = removed.err.lines().collect();
    assert_eq!(
        lines,
        [
            "cluster eu1 removed from the hub; its engine, workloads and catalog stay",
            "it never joined; if its YAML was applied, end the agent there and take its rights away:",
            "  kubectl delete namespace linesman",
            "  kubectl delete clusterrolebindings,clusterroles -l app.kubernetes.io/name=linesman-agent",
            "  kubectl delete rolebindings -A -l app.kubernetes.io/name=linesman-agent",
            "  kubectl delete rolebindings -A --field-selector metadata.name=linesman-engine",
            "  kubectl delete validatingadmissionpolicies,validatingadmissionpolicybindings linesman-guard",
        ]
    );
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

#[test]
fn the_yaml_reaches_the_pipe_before_the_wait() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    let mut child = home
        .linesman(&["cluster", "add", "eu1", "--wait=20s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Ends only when the program has closed its stdout, which kubectl waits for.
    let yaml = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
    assert!(yaml.contains("lmj1."));
    // From there on the same process is `cluster wait`.
    let file = format!("/proc/{}/cmdline", child.id());
    let until = Instant::now() + Duration::from_secs(10);
    let mut arguments = String::new();
    while !arguments.contains("wait\0") && Instant::now() < until {
        arguments = fs::read_to_string(&file).unwrap();
        std::thread::yield_now();
    }
    assert!(
        arguments.contains("wait\0") && !arguments.contains("lmt1") && !arguments.contains("lmj1"),
        "{arguments:?}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Labels as kubectl has them; what cannot be undone is asked for, and what is not there is said.
#[test]
fn clusters_are_labelled_revoked_and_accepted_in_words() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    let added = home.run(&["cluster", "add", "eu1", "--label", "env=dev"]);
    assert_eq!(added.code, 0, "{added:?}");
    let label = |changes: &[&str]| {
        let words = ["cluster", "label", "eu1", "-o", "json"];
        home.run(&[&words, changes].concat())
    };
    let told = json_of(&label(&["team=shop"]));
    assert_eq!(told, json!({"labels": {"env": "dev", "team": "shop"}}));
    label(&["env=prod"]).fails(5, "the cluster has the label env=dev");
    let told = label(&["env=prod", "team-", "--overwrite"]);
    assert!(
        told.err.contains("cluster eu1 has now: env=prod"),
        "{told:?}"
    );
    assert_eq!(json_of(&told), json!({"labels": {"env": "prod"}}));
    for (changes, says) in [
        (&["env"][..], "write KEY=VALUE, or KEY- to remove it"),
        (&[], "<KEY=VALUE|KEY->"),
    ] {
        let ran = label(changes);
        assert!(ran.code == 2 && ran.err.contains(says), "{ran:?}");
    }

    let revoke = ["cluster", "revoke", "eu1"];
    home.run(&revoke)
        .fails(2, "run: linesman cluster revoke eu1 --yes");
    home.run(&[&revoke[..], &["--yes"]].concat())
        .fails(3, "cluster eu1 has not joined: there is no key to revoke");
    let accept = ["cluster", "accept", "SHA256:dGhlIGZpbmdlcnByaW50"];
    home.run(&accept)
        .fails(3, "see: linesman cluster list --unknown");
    home.run(&[&accept[..], &["--yes"]].concat()).fails(3, "");
    let unknown = home.run(&["cluster", "list", "--unknown", "-o", "json"]);
    assert_eq!(json_of(&unknown), json!([]));
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
