//! The agent's own look at a Git path names the step that fails.

use std::time::{Duration, Instant};

use linesman::hub::git::{self, BRANCH};
use linesman::keys::KeyPair;
use linesman::secret::Secret;
use linesman::ssh::known_hosts::{HostKey, known_hosts_line};
use linesman::ssh::{GitUrl, Head, Probe, ProbeError, Step, probe};
use tokio::net::TcpListener;

use super::host::{Host, Standing, Who, host_key};

const LIMIT: Duration = Duration::from_secs(5);

struct Case {
    url: String,
    key: Secret<String>,
    known_hosts: String,
    branch: &'static str,
}

impl Case {
    fn good(host: &Host) -> Self {
        Self {
            url: host.url(),
            key: Who::Deploy.key().openssh("test").unwrap(),
            known_hosts: host.known_hosts(),
            branch: BRANCH,
        }
    }

    async fn run(&self) -> Result<Head, ProbeError> {
        self.within(LIMIT).await
    }

    async fn within(&self, limit: Duration) -> Result<Head, ProbeError> {
        let url: GitUrl = self.url.parse().unwrap();
        let what = Probe {
            url: &url,
            private_key: &self.key,
            known_hosts: &self.known_hosts,
            branch: self.branch,
        };
        probe(what, limit).await
    }

    async fn fails_at(&self, step: Step, words: &str) {
        let error = self.run().await.unwrap_err();
        assert_eq!(error.step(), step, "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(!error.to_string().contains("PRIVATE KEY"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_path_answers_the_branchs_head() {
    let host = Host::start().await;
    let head = git::head(&host.repo(), BRANCH).await.unwrap().unwrap();
    let read = Head {
        commit: head,
        host_key: HostKey::ed25519(host_key().public()),
    };
    assert_eq!(Case::good(&host).run().await, Ok(read));
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_host_key_is_never_offered_a_credential() {
    let host = Host::start().await;
    let other = KeyPair::from_seed(&[77; 32]).public();
    let case = Case {
        known_hosts: known_hosts_line("127.0.0.1", host.port(), other),
        ..Case::good(&host)
    };
    let Err(ProbeError::HostKey {
        presented,
        expected,
        text,
    }) = case.run().await
    else {
        panic!("a wrong host key is refused at its step");
    };
    let presented = presented.unwrap();
    assert_eq!(presented, HostKey::ed25519(host_key().public()));
    assert_eq!(expected, [other.fingerprint()]);
    assert!(
        text.contains(&presented.fingerprint) && text.contains(&expected[0]),
        "{text}"
    );
    assert_eq!(host.asked(), 0, "no key was offered");
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_failure_names_its_step_and_what_to_do() {
    type Spoil = fn(&mut Case);
    let host = Host::start().await;
    let table: [(Spoil, Step, &str); 8] = [
        (
            |case| case.key = Who::Stranger.key().openssh("x").unwrap(),
            Step::Auth,
            "register it there as a read-only deploy key",
        ),
        (
            |case| case.key = Secret::new("not a key".to_owned()),
            Step::Auth,
            "not an OpenSSH private key",
        ),
        (
            |case| case.branch = "release",
            Step::Branch,
            "has no branch 'release'",
        ),
        (
            |case| case.url = case.url.replace("catalog.git", "other.git"),
            Step::Repo,
            "there is one repository here, /catalog.git",
        ),
        (
            |case| case.known_hosts.clear(),
            Step::HostKey,
            "known_hosts has no key for 127.0.0.1",
        ),
        (
            |case| case.known_hosts = "127.0.0.1 nonsense".to_owned(),
            Step::HostKey,
            "known_hosts line 1",
        ),
        (
            |case| case.known_hosts = format!("@cert-authority {}", case.known_hosts),
            Step::HostKey,
            "only a certificate authority",
        ),
        (
            |case| case.known_hosts = format!("{0}\n@revoked {0}", case.known_hosts),
            Step::HostKey,
            "no key",
        ),
    ];
    for (spoil, step, words) in table {
        let mut case = Case::good(&host);
        spoil(&mut case);
        case.fails_at(step, words).await;
    }
    host.end().await;
}

/// F26: a host that hangs up has said nothing of the key. Taken for a refusal, it has a good key registered again.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_hangs_up_has_not_refused_the_key() {
    let host = Host::start().await;
    for (standing, step, words) in [
        (
            Standing::Away,
            Step::Offer,
            "before it answered for the key",
        ),
        (Standing::Revoked, Step::Auth, "does not accept the key"),
        (
            Standing::Away,
            Step::Offer,
            "before it answered for the key",
        ),
    ] {
        host.stand(standing);
        Case::good(&host).fails_at(step, words).await;
    }
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_rsa_deploy_key_is_refused_with_words() {
    let host = Host::start().await;
    let file = host.folder().join("rsa");
    let made = tokio::process::Command::new("ssh-keygen")
        .args(["-q", "-t", "rsa", "-b", "2048", "-N", "", "-f"])
        .arg(&file)
        .status()
        .await
        .unwrap();
    assert!(made.success());
    let case = Case {
        key: Secret::new(std::fs::read_to_string(&file).unwrap()),
        ..Case::good(&host)
    };
    case.fails_at(Step::Auth, "RSA keys are not supported")
        .await;
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_port_and_an_unknown_name_are_told_apart() {
    let host = Host::start().await;
    let dead = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = dead.local_addr().unwrap().port();
    drop(dead);
    let case = Case {
        url: format!("ssh://git@127.0.0.1:{port}/catalog.git"),
        known_hosts: known_hosts_line("127.0.0.1", port, host_key().public()),
        ..Case::good(&host)
    };
    case.fails_at(Step::Tcp, "connect to 127.0.0.1").await;
    let case = Case {
        url: "ssh://git@catalog.invalid/catalog.git".to_owned(),
        known_hosts: known_hosts_line("catalog.invalid", 22, host_key().public()),
        ..Case::good(&host)
    };
    case.fails_at(Step::Dns, "catalog.invalid").await;
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_says_nothing_is_given_up_in_time() {
    let host = Host::start().await;
    let silent = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let case = Case {
        url: format!("ssh://git@127.0.0.1:{port}/catalog.git"),
        known_hosts: known_hosts_line("127.0.0.1", port, host_key().public()),
        ..Case::good(&host)
    };
    let start = Instant::now();
    let error = case.within(Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(error.step(), Step::HostKey, "{error}");
    assert!(start.elapsed() < Duration::from_secs(5));
    host.end().await;
}
