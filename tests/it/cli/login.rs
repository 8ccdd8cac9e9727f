//! Logging in as a person does, with the built program, a real identity provider and a browser.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use linesman::hub::auth::Role;
use linesman::hub::oidc::Config;
use serde_json::{Value, json};

use super::hub::{Hub, flux, json_of};
use super::{Home, mode};
use crate::provider::{Browser, Idp};

struct World {
    home: Home,
    idp: Idp,
    hub: Hub,
}

impl World {
    async fn start() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Config) + Send + 'static) -> Self {
        let home = Home::new();
        let (send, made) = mpsc::channel();
        let hub = Hub::with_oidc(&home, move |url| {
            let idp = Idp::start(url, json!({}));
            let mut config = idp.config();
            change(&mut config);
            send.send(idp).unwrap();
            config
        });
        let idp = made.recv().unwrap();
        idp.account("ada", "ada", &["sre"]).await;
        Self { home, idp, hub }
    }

    fn browser(&self) -> Browser {
        let mut browser = Browser::new(&std::fs::read_to_string(self.hub.ca_file()).unwrap());
        // It goes all the way to the program's listener.
        "nowhere".clone_into(&mut browser.until);
        browser
    }

    fn login(&self, more: &[&str]) -> Command {
        let ca = self.hub.ca_file();
        let mut command = self.home.linesman(&["login", &self.hub.url, "--ca", &ca]);
        command
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn sessions(&self) -> Value {
        let text = std::fs::read_to_string(self.sessions_file()).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn sessions_file(&self) -> std::path::PathBuf {
        self.home.path().join("state/linesman/sessions.json")
    }

    /// As time would: the token is near its end.
    fn age(&self) {
        let mut sessions = self.sessions();
        sessions["hubs"][&self.hub.url]["expiresAt"] = "2026-01-01T00:00:00Z".into();
        std::fs::write(self.sessions_file(), sessions.to_string()).unwrap();
    }
}

/// What a child says on stderr, up to the first line that begins with this.
fn until(child: &mut Child, begins: &str) -> (String, BufReader<std::process::ChildStderr>) {
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut all = String::new();
    loop {
        let mut line = String::new();
        assert!(
            said.read_line(&mut line).unwrap() > 0,
            "no line '{begins}' in: {all}"
        );
        if line.trim_start().starts_with(begins) {
            return (line.trim().to_owned(), said);
        }
        all += &line;
    }
}

/// H31, H32: a browser comes up, the session is kept for its user alone, ten parallel plugins renew it once, and a
/// person who is gone is told what to do.
#[tokio::test]
async fn a_login_with_a_browser_lasts_by_itself() {
    let world = World::start().await;
    let opened = world.home.path().join("opened");
    let script = world.home.write(
        "browser",
        "#!/bin/sh\nprintf %s \"$1\" > \"$HOME/opened\"\n",
    );
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).unwrap();
    let mut child = world.login(&[]).env("BROWSER", &script).spawn().unwrap();
    let (url, rest) = until(&mut child, "https://");
    let seen = world.browser().open(&url).await;
    let done = format!("You are logged in to {}. Go back", world.hub.url);
    assert!(
        seen.status == 200 && seen.body.contains(&done) && seen.body.contains("cluster list"),
        "{seen:?}"
    );
    let said: Vec<String> = rest.lines().map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success(), "{said:?}");
    assert!(
        said.join("\n")
            .contains(&format!("logged in to {} as ada, until ", world.hub.url)),
        "{said:?}"
    );
    assert_eq!(std::fs::read_to_string(opened).unwrap(), url);
    assert_eq!(mode(&world.sessions_file()), 0o600);
    let me = json_of(&world.home.run(&["whoami", "-o", "json"]));
    assert_eq!(
        (&me["user"], &me["groups"]),
        (&json!("ada"), &json!(["sre"]))
    );

    world.age();
    let plugin = ["credential", "--hub", &world.hub.url];
    let run = |_| {
        let mut command = world.home.linesman(&plugin);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children: Vec<Child> = (0..10).map(run).collect();
    for child in children {
        let out = child.wait_with_output().unwrap();
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        let credential: Value = serde_json::from_slice(&out.stdout).unwrap();
        let token = credential["status"]["token"].as_str().unwrap().to_owned();
        assert_eq!(token, world.sessions()["hubs"][&world.hub.url]["token"]);
    }
    assert_eq!(world.idp.refreshes().await, 1);

    // Every other verb renews, too; a hub admin's word and the provider's end it.
    world.age();
    assert_eq!(world.home.run(&["whoami"]).code, 0);
    world.idp.forget("ada").await;
    world.age();
    let gone = world.home.run(&plugin);
    gone.fails(1, "has ended");
    assert!(
        gone.err
            .contains(&format!("next:  run: linesman login {}", world.hub.url)),
        "{gone:?}"
    );
    world.home.run(&["whoami"]).fails(4, "expired");
    assert!(!gone.err.contains("lma1.") && !gone.err.contains("lmr1."));
}

/// Commands that run for longer than a token: the record is followed, and a cluster waited for, on and on.
#[tokio::test]
async fn a_long_command_outlives_its_token() {
    const TOKEN: Duration = Duration::from_secs(2);
    let world = World::with(|config| {
        config.sessions.access = TOKEN;
        config.roles = [Role::Auditor, Role::Viewer]
            .map(|role| (role, "sre".to_owned()))
            .into();
    })
    .await;
    let admin = world.home.path().join("hub/admin.token");
    let as_admin = |args: &[&str]| {
        let access = [
            "--hub",
            &world.hub.url,
            "--ca",
            &world.hub.ca_file(),
            "--token-file",
        ];
        let ran = world
            .home
            .run(&[args, &access, &[admin.to_str().unwrap()]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
    };
    let file = world.home.write("flux.yaml", &flux());
    as_admin(&["engine", "import", file.to_str().unwrap()]);
    as_admin(&["cluster", "add", "eu1", "--file", "adopt.yaml"]);
    let mut child = world.login(&[]).spawn().unwrap();
    let (line, _rest) = until(&mut child, "or open ");
    let (page, code) = line
        .trim_start_matches("or open ")
        .split_once("?code=")
        .unwrap();
    world.browser().submit(page, &format!("code={code}")).await;
    assert!(child.wait().unwrap().success());

    let filter = [
        "audit", "tail", "--follow", "--last", "1", "--user", "admin",
    ];
    let mut tail = world.home.linesman(&filter);
    let mut tail = tail.stdout(Stdio::piped()).spawn().unwrap();
    let mut records = BufReader::new(tail.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&records.next().unwrap().unwrap()).unwrap() };
    // It follows from here on.
    next();
    // Two tokens long: the cluster that nobody adopts is waited for to the end, not to the token's.
    let wait = ["cluster", "wait", "eu1", "--timeout", "5s"];
    let waited = world.home.run(&wait);
    assert!(waited.code == 6, "{waited:?}");
    for name in ["bob", "eve"] {
        as_admin(&["user", "add", name]);
        assert!(next()["target"].as_str().unwrap().starts_with(name));
    }
    tail.kill().unwrap();
    tail.wait().unwrap();
}

/// H31: a browser elsewhere; Ctrl-C while it waits; logging out ends the session at the hub.
#[tokio::test]
async fn a_login_with_a_code_and_its_end() {
    let world = World::start().await;
    let mut child = world.login(&[]).spawn().unwrap();
    let (line, rest) = until(&mut child, "or open ");
    let complete = line.trim_start_matches("or open ").to_owned();
    let (page, code) = complete.split_once("?code=").unwrap();
    let done = world.browser().submit(page, &format!("code={code}")).await;
    assert!(
        done.status == 200 && done.body.contains("goes on as ada"),
        "{done:?}"
    );
    let said: Vec<String> = rest.lines().map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success(), "{said:?}");
    let token = world.sessions()["hubs"][&world.hub.url]["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let file = world.home.write("kept", &token);
    let as_before = [
        "whoami",
        "--hub",
        &world.hub.url,
        "--token-file",
        file.to_str().unwrap(),
        "--ca",
    ];
    let ca = world.hub.ca_file();
    let whoami = || world.home.run(&[&as_before[..], &[&ca]].concat());
    assert_eq!(whoami().code, 0);
    assert_eq!(world.home.run(&["logout"]).code, 0);
    whoami().fails(4, "expired or revoked");

    let mut child = world.login(&["--device"]).spawn().unwrap();
    let (_, _rest) = until(&mut child, "waiting for");
    let ended = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(ended.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// The person says no at the provider: the program ends at once and says so.
#[tokio::test]
async fn a_refused_login_is_told_in_the_terminal() {
    let world = World::start().await;
    world.idp.comes(None).await;
    let mut child = world.login(&["--no-browser"]).spawn().unwrap();
    let (url, rest) = until(&mut child, "https://");
    let seen = world.browser().open(&url).await;
    assert!(
        seen.status == 403 && seen.body.contains("the person said no"),
        "{seen:?}"
    );
    let said: Vec<String> = rest.lines().map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(4), "{said:?}");
    assert!(
        said.iter()
            .any(|l| l.starts_with("error: ") && l.contains("access_denied the person said no")),
        "{said:?}"
    );
    assert!(!world.sessions_file().exists());
}

#[test]
fn a_hub_without_a_provider_says_how_to_log_in() {
    let home = Home::new();
    let hub = Hub::start(&home);
    let ca = hub.ca_file();
    let ran = home.run(&["login", &hub.url, "--ca", &ca]);
    ran.fails(4, "has no identity provider");
    let next = format!("login {} --ca {ca} --token-file FILE", hub.url);
    assert!(ran.err.contains(&next), "{ran:?}");
    assert!(!home.path().join("state/linesman/sessions.json").exists());
}

/// Where there is no provider, the command that `hub rotate ca` names was refused, and people needed an admin for it.
#[test]
fn a_session_that_is_kept_takes_another_ca_without_a_provider() {
    let home = Home::new();
    let hub = Hub::start(&home);
    let (ca, data) = (hub.ca_file(), hub.data().display().to_string());
    hub.log_in(&home);
    let file = home.path().join("state/linesman/sessions.json");
    let sessions = || -> Value {
        let text = std::fs::read_to_string(&file).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let before = sessions();
    let rotated = home.run(&["hub", "rotate", "ca", "--data", &data]);
    assert_eq!(rotated.code, 0, "{rotated:?}");
    let login = ["login", &hub.url, "--ca", &ca];
    let ran = home.run(&login);
    assert!(
        ran.code == 0 && ran.err.contains("goes on as admin, with the CA of"),
        "{ran:?}"
    );
    let mut both = before.clone();
    both["hubs"][&hub.url]["ca"] = std::fs::read_to_string(&ca).unwrap().into();
    assert_eq!(sessions(), both);
    assert_ne!(both, before);
    home.run(&[&login[..], &["--device"]].concat())
        .fails(4, "has no identity provider");

    // One that the hub does not know is none.
    let unknown =
        "lmt1.00000000-0000-7000-8000-000000000000.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    both["hubs"][&hub.url]["token"] = unknown.into();
    std::fs::write(&file, both.to_string()).unwrap();
    home.run(&login).fails(4, "has no identity provider");
}

/// hub.md §6: a local user has a session without a password: an admin gives a code that is good once.
#[test]
fn a_local_user_logs_in_with_a_code_from_an_admin() {
    let home = Home::new();
    let hub = Hub::start(&home);
    let admin = home.path().join("hub/admin.token");
    let ca = hub.ca_file();
    let at = ["--hub", &hub.url, "--ca", &ca];
    let as_admin = |args: &[&str]| {
        let token = ["--token-file", admin.to_str().unwrap()];
        home.run(&[args, &at, &token].concat())
    };
    assert_eq!(
        as_admin(&["user", "add", "ada", "--role", "viewer"]).code,
        0
    );
    let file = home.path().join("ada.code");
    let path = file.to_str().unwrap();
    as_admin(&["user", "login-code", "ada", "-o", "name"]).fails(2, "the code would be lost");
    let made = as_admin(&["user", "login-code", "ada", "--file", path, "-o", "name"]);
    assert!(
        made.code == 0
            && made.out == "ada\n"
            && made.err.contains("ada logs in with it once, until"),
        "{made:?}"
    );
    let code = std::fs::read_to_string(&file).unwrap();
    assert!(code.starts_with("lml1.") && !made.err.contains(code.trim()));
    assert_eq!(mode(&file), 0o600);
    let log_in = || home.run(&["login", &hub.url, "--ca", &ca, "--code-file", path]);
    let done = log_in();
    assert!(
        done.code == 0 && done.err.contains("as ada, until"),
        "{done:?}"
    );
    let me = home.run(&["whoami", "-o", "json"]);
    assert_eq!(
        (me.code, &json_of(&me)["user"]),
        (0, &json!("ada")),
        "{me:?}"
    );
    // What its user cares for is the session's end, as the login told it, and not that of the token which it renews.
    let until = done.err.rsplit(", until ").next().unwrap().trim_end();
    let table = home.run(&["whoami"]);
    assert!(table.out.contains(until), "{until}: {table:?}");
    let again = log_in();
    again.fails(4, "login code is unknown, was used or replaced");
    assert!(
        again.err.contains("linesman user login-code NAME"),
        "{again:?}"
    );
    // The session of before is not touched by that.
    assert_eq!(home.run(&["whoami"]).code, 0);
    assert_eq!(home.run(&["logout"]).code, 0);
    home.run(&["whoami"]).fails(2, "no session is kept");
    let nobody = as_admin(&["user", "login-code", "nobody"]);
    nobody.fails(3, "there is no user 'nobody'");
}
