//! Adoption YAML: where the token comes from, where the YAML goes, and what is refused before a cluster is recorded.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use super::access::execute;
use super::hub::Hub;
use super::{Home, Ran};

/// A home that is not logged in, and the flags that name hub and CA.
fn flags(hub: &Hub) -> Vec<String> {
    ["--hub", &hub.url, "--ca", &hub.ca_file()]
        .map(str::to_owned)
        .to_vec()
}

/// Runs with the admin's token on stdin.
fn with_token(home: &Home, hub: &Hub, args: &[&str]) -> Ran {
    let mut command = home.linesman(args);
    command.args(flags(hub)).args(["--token-file", "-"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // One that refuses its command line reads nothing.
    drop(stdin.write_all(hub.token().as_bytes()));
    drop(stdin);
    Ran::of(&child.wait_with_output().unwrap())
}

/// Stdin gives the token once, and these verbs need it more than once.
#[test]
fn a_token_from_stdin_serves_the_whole_command() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    let added = with_token(&home, &hub, &["cluster", "add", "eu1"]);
    assert!(added.code == 0 && added.out.contains("lmj1."), "{added:?}");
    let again = with_token(&home, &hub, &["cluster", "readopt", "eu1"]);
    assert!(again.code == 0 && again.out.contains("lmj1."), "{again:?}");
    // The wait after it goes on as another command.
    let waited = with_token(&home, &hub, &["cluster", "add", "eu2", "--wait=1s"]);
    assert!(
        waited.code == 6 && waited.err.contains("no word from cluster eu2 yet"),
        "{waited:?}"
    );
    let looked = with_token(&home, &hub, &["doctor", "-o", "name"]);
    assert_eq!((looked.code, looked.out.as_str()), (0, ""), "{looked:?}");
}

#[test]
fn stdin_is_not_read_for_two_things() {
    let home = Home::new();
    let hub = Hub::start(&home);
    for (args, says) in [
        (
            &["engine", "import", "-"][..],
            "the token and the manifests cannot both come from stdin",
        ),
        (
            &["catalog", "signer", "add", "-"],
            "the token and the key cannot both come from stdin",
        ),
        (&["kubeconfig", "eu1"], "stdin has it once"),
        (
            &["cluster", "add", "eu1", "--https-proxy-file", "-"],
            "the token and the proxy's URL cannot both come from stdin",
        ),
    ] {
        with_token(&home, &hub, args).fails(2, says);
    }
}

#[test]
fn a_cluster_is_recorded_only_where_its_yaml_can_be_kept() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    let add = |more: &[&str]| home.run(&[&["cluster", "add", "eu1"], more].concat());
    let nowhere = home.path().join("nowhere/adopt.yaml").display().to_string();
    add(&["--file", &nowhere]).fails(1, "write ");
    let folder = home.path().display().to_string();
    add(&["--file", &folder]).fails(1, "write ");
    add(&["-o", "name"]).fails(2, "the YAML with its join token would be lost");
    home.run(&["cluster", "show", "eu1"])
        .fails(3, "show cluster eu1");
    let file = home.path().join("adopt.yaml").display().to_string();
    let added = add(&["-o", "name", "--file", &file]);
    assert_eq!((added.code, added.out.as_str()), (0, "eu1\n"), "{added:?}");
    let yaml = std::fs::read_to_string(&file).unwrap();
    assert!(yaml.contains("lmj1."), "{yaml}");
    let left = std::fs::read_dir(home.path()).unwrap();
    let left = left.filter(|e| e.as_ref().unwrap().file_name() != "adopt.yaml");
    let parts = left.filter(|e| {
        let name = e.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with("adopt.yaml")
    });
    assert_eq!(parts.count(), 0);
    let again = ["cluster", "readopt", "eu1", "--file", &file, "-o", "json"];
    let again = home.run(&again);
    let told: serde_json::Value = serde_json::from_str(&again.out).expect("a document");
    assert_eq!(told["cluster"]["name"], "eu1", "{again:?}");
    assert!(!again.out.contains("lmj1."), "{again:?}");
}

#[test]
fn values_that_no_cluster_could_use_are_refused_by_the_hub() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    for (flag, value, says) in [
        ("--image", ":::bad", "':::bad' is not an image"),
        (
            "--image-pull-secret",
            "A_B",
            "'A_B' is not the name of a Secret",
        ),
        (
            "--no-proxy",
            "lan,10.0.0.0/99",
            "'10.0.0.0/99' is no name, address or network",
        ),
    ] {
        home.run(&["cluster", "add", "eu1", flag, value])
            .fails(2, says);
    }
    let bare = home.run(&["cluster", "add", "eu1", "--image", "linesman-agent:1"]);
    assert_eq!(bare.code, 0, "{bare:?}");
    let warning = "warning: the agent's image linesman-agent:1 names no registry: a cluster runs it only where";
    assert!(bare.err.contains(warning), "{bare:?}");
    let pulled = home.run(&["cluster", "readopt", "eu1", "--image", "r.org/agent:1"]);
    assert!(
        pulled.code == 0 && !pulled.err.contains("warning"),
        "{pulled:?}"
    );
}

/// H12: a password of a proxy is in no argument, and in no error.
#[test]
fn a_proxys_password_comes_by_a_file_or_stdin() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    let add = ["cluster", "add", "eu1"];
    for url in [
        "http://me:hunter2@proxy:3128",
        "me%3Ahunter2@proxy:3128",
        "https://me:hunter2@proxy",
    ] {
        let refused = home.run(&[&add[..], &["--https-proxy", url]].concat());
        refused.fails(2, "--https-proxy");
        assert!(refused.err.contains("--https-proxy-file"), "{refused:?}");
        assert!(!refused.err.contains("hunter2"), "{refused:?}");
    }
    home.write("no.proxy", "https://me:hunter2@proxy\n");
    let refused = home.run(&[&add[..], &["--https-proxy-file", "no.proxy"]].concat());
    refused.fails(2, "a proxy is asked over http://");
    assert!(!refused.err.contains("hunter2"), "{refused:?}");
    home.run(&["cluster", "show", "eu1"])
        .fails(3, "show cluster eu1");

    let piped = |args: &[&str], text: &str| {
        let mut command = home.linesman(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
        drop(stdin);
        Ran::of(&child.wait_with_output().unwrap())
    };
    let from_stdin = [&add[..], &["--https-proxy-file", "-"]].concat();
    let added = piped(&from_stdin, "http://me:hunter2@proxy:3128\n");
    assert_eq!(added.code, 0, "{added:?}");
    assert!(
        added.out.contains("http://me:hunter2@proxy:3128"),
        "no proxy"
    );
    assert!(!added.err.contains("hunter2"), "{added:?}");
    // What is not given stays; another one from a file; none by an empty word.
    let readopt = |more: &[&str]| {
        let again = home.run(&[&["cluster", "readopt", "eu1"], more].concat());
        assert_eq!(again.code, 0, "{again:?}");
        again.out
    };
    assert!(readopt(&[]).contains("http://me:hunter2@proxy:3128"));
    home.write("other.proxy", "http://me:hunter3@proxy:3128");
    assert!(readopt(&["--https-proxy-file", "other.proxy"]).contains("me:hunter3@proxy"));
    assert!(readopt(&["--https-proxy", "http://proxy:8080"]).contains("http://proxy:8080"));
    assert!(!readopt(&["--https-proxy", ""]).contains("http://proxy:8080"));
}

/// The adoption of before was taken for the new one's end, and a refusal of before for its own.
#[test]
fn a_readoption_is_waited_for_by_what_comes_after_it() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    assert_eq!(home.run(&["cluster", "add", "eu1"]).code, 0);
    let put = |statement: &str| execute(hub.data(), statement.to_owned());
    let still = |ran: Ran| {
        let waits = "cluster eu1 has not joined anew yet; waiting for its new YAML to be applied";
        assert!(ran.code == 6 && ran.err.contains(waits), "{ran:?}");
    };
    let readopt = ["cluster", "readopt", "eu1", "--file", "adopt.yaml"];
    // The command that it names, for a second.
    let named = || {
        let told = home.run(&readopt).err;
        let (_, command) = told.split_once("then:  linesman ").unwrap();
        let words = command.trim_end().split(' ').chain(["--timeout", "1s"]);
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let run = |words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        home.run(&words)
    };
    put("INSERT INTO step (cluster_id, step, state, reason, at)
         SELECT id, 'adopted', 'done', '', '2026-01-01T00:00:00.000Z' FROM cluster");
    assert_eq!(home.run(&["cluster", "wait", "eu1"]).code, 0);
    still(home.run(&[&readopt[..], &["--wait=1s"]].concat()));
    // The YAML goes into a pipe, and the wait on as another command.
    still(home.run(&["cluster", "readopt", "eu1", "--wait=1s"]));
    let wait = named();
    still(run(&wait));
    // As a join does.
    put("UPDATE cluster SET rev = rev + 1");
    assert_eq!(run(&wait).code, 0);

    put("INSERT INTO condition (cluster_id, type, source, status, reason, message, since, observed_at)
         SELECT id, 'JoinConflict', 'hub', 'True', 'TokenRedeemed', 'key SHA256:x from 192.0.2.1:4001 tried it again',
           '2026-01-01T00:00:00.000Z', 1 FROM cluster");
    home.run(&["cluster", "wait", "eu1"])
        .fails(5, "cluster eu1 cannot join: key SHA256:x");
    still(home.run(&[&readopt[..], &["--wait=1s"]].concat()));
    let wait = named();
    put("UPDATE condition SET message = 'key SHA256:x from 192.0.2.1:4002 tried it again'");
    still(run(&wait));
    put("UPDATE condition SET message = 'key SHA256:y from 192.0.2.1:4002 tried it again'");
    run(&wait).fails(5, "cluster eu1 cannot join: key SHA256:y");
}

/// Who begins to wait while the hub restarts waits as those do who began before.
#[test]
fn a_wait_that_begins_while_the_hub_is_away_sees_it_come_back() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    assert_eq!(home.run(&["cluster", "add", "eu1"]).code, 0);
    let adopted = "INSERT INTO step (cluster_id, step, state, reason, at)
         SELECT id, 'adopted', 'done', '', '2026-01-01T00:00:00.000Z' FROM cluster";
    execute(hub.data(), adopted.to_owned());
    let away = waits_over_a_restart(&home, hub);
    assert!(away.starts_with("show cluster eu1: "), "{away}");
}

/// The same where the session has to be renewed before the first question: that ended at once.
#[test]
fn a_session_that_is_due_while_the_hub_is_away_is_renewed_when_it_is_back() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    let code = ["user", "login-code", "ada", "--file", "ada.code"];
    for verb in [
        &["cluster", "add", "eu1"][..],
        &["user", "add", "ada", "--role", "viewer"],
        &code,
        &["login", &hub.url, "--code-file", "ada.code"],
    ] {
        let ran = home.run(verb);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    let adopted = "INSERT INTO step (cluster_id, step, state, reason, at)
         SELECT id, 'adopted', 'done', '', '2026-01-01T00:00:00.000Z' FROM cluster";
    execute(hub.data(), adopted.to_owned());
    let file = home.path().join("state/linesman/sessions.json");
    let kept = std::fs::read_to_string(&file).unwrap();
    let mut sessions: serde_json::Value = serde_json::from_str(&kept).unwrap();
    // As time would.
    sessions["hubs"][&hub.url]["expiresAt"] = "2026-01-01T00:00:00Z".into();
    std::fs::write(&file, sessions.to_string()).unwrap();
    let away = waits_over_a_restart(&home, hub);
    assert!(away.starts_with("renew the session: "), "{away}");
}

/// Has a wait begin while the hub is away, which ends well when that is back; gives what it said meanwhile.
fn waits_over_a_restart(home: &Home, hub: Hub) -> String {
    let port = hub.crash();
    let mut waits = home
        .linesman(&["cluster", "wait", "eu1"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(waits.stderr.take().unwrap()).lines();
    let mut said = said.map(Result::unwrap);
    let Some(away) = said.find(|line| line.ends_with("; asking again")) else {
        panic!("it ended: {:?}", waits.wait());
    };
    let _hub = Hub::start_at(home, port);
    assert!(waits.wait().unwrap().success(), "{away}");
    away
}

/// The end of its time was taken for the hub's silence, which sent people to the firewall; and a push that had just failed for well.
#[test]
fn a_wait_that_runs_out_names_what_it_waited_for() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    assert_eq!(home.run(&["cluster", "add", "eu1"]).code, 0);
    let put = |statement: &str| execute(hub.data(), statement.to_owned());
    let wait = [
        "cluster",
        "wait",
        "eu1",
        "--for",
        "healthy",
        "--timeout",
        "2s",
    ];
    let ends = |says: &str| {
        let ran = home.run(&wait);
        ran.fails(6, &format!("error: 2s passed and {says}"));
        assert!(!ran.err.contains("did not answer"), "{ran:?}");
    };
    ends("no word from cluster eu1 yet; waiting for its YAML to be applied\n");

    put("INSERT INTO step (cluster_id, step, state, reason, at)
         SELECT id, 'adopted', 'done', '', '2026-01-01T00:00:00.000Z' FROM cluster");
    put("INSERT INTO condition (cluster_id, type, source, status, reason, message, since, observed_at)
         SELECT id, 'ChildrenReady', 'agent', 'False', 'BuildFailed', 'web: BuildFailed',
           '2026-01-01T00:00:00.000Z', 1 FROM cluster");
    // Heard a moment ago, and for as long as this takes.
    let heard = "UPDATE cluster SET joined_at = created_at, last_seen = (strftime('%s', 'now') + 10) * 1000";
    put(heard);
    ends("cluster eu1 is Degraded: ChildrenReady is False (web: BuildFailed)");
    put("UPDATE condition SET status = 'Unknown', reason = 'Waits' WHERE type = 'ChildrenReady'");
    put(heard);
    ends(
        "cluster eu1 is Healthy, and what the catalog brought is not known to be Ready yet: web: BuildFailed\n",
    );
    put(
        "UPDATE condition SET status = 'True', reason = 'Ready', message = '' WHERE type = 'ChildrenReady'",
    );
    put(heard);
    assert_eq!(home.run(&wait).code, 0);
}
