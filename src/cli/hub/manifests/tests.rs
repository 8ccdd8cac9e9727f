use std::collections::BTreeSet;

use clap::{CommandFactory as _, Parser as _};

use super::*;
use crate::cli::Cli;
use crate::cli::hub::tests::parsed;
use crate::manifests::hub::tests::{full, values as usual};
use crate::manifests::hub::{HEALTH_PORT, HTTPS_PORT};

#[derive(Debug, clap::Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

const NEEDED: [&str; 3] = [
    "--url=https://hub.example.org/",
    "--image=registry.example.org/linesman-hub:0.1.0",
    "--agent-image=registry.example.org/linesman-agent:0.1.0",
];

fn read(flags: &[&str]) -> Result<HubValues> {
    let line = ["manifests"].iter().chain(&NEEDED).chain(flags);
    values(Line::try_parse_from(line).unwrap().args)
}

fn refusal(flags: &[&str]) -> String {
    let failure = read(flags).unwrap_err().downcast::<Failure>().unwrap();
    assert_eq!(failure.code, Code::Usage, "{failure:?}");
    format!("{}; {}", failure.message, failure.next)
}

#[test]
fn the_hubs_yaml_is_what_the_flags_say() {
    let shown = |values: &HubValues| to_yaml(&objects(values));
    assert_eq!(shown(&read(&[]).unwrap()), shown(&usual()));
    let flags = [
        "--image-pull-secret=regcred",
        "--service-annotation=example.org/name=hub",
        "--tls-secret=hub-tls",
        "--tls-ca",
        "--database-secret=hub-database",
        "--replicas=3",
        "--storage-class=shared",
        "--mount-secret=oidc",
        "--set=LINESMAN_OIDC_ISSUER=https://login.example.org/$(realm)",
        "--set",
        "LINESMAN_HEALTH_LISTEN=[::]:8081",
    ];
    assert_eq!(shown(&read(&flags).unwrap()), shown(&full()));
}

#[test]
fn the_services_ports_are_those_of_the_urls() {
    let ports = |flags: &[&str]| {
        let values = read(flags).unwrap();
        (values.ports.https, values.ports.git, values.git_url)
    };
    let git = |url: &str| url.to_owned();
    assert_eq!(
        ports(&[]),
        (443, 2222, git("ssh://git@hub.example.org:2222"))
    );
    assert_eq!(
        ports(&["--git-url=ssh://git@git.example.org"]),
        (443, 22, git("ssh://git@git.example.org"))
    );
    assert_eq!(
        refusal(&["--git-url=ssh://git@hub.example.org:443"]),
        "--url and --git-url are both on port 443; one Service has both: give one of them another port"
    );
}

#[test]
fn replicas_without_a_database_for_all_are_refused() {
    assert_eq!(
        refusal(&["--replicas=2"]),
        "--replicas 2 share one database, and SQLite is for one hub alone; \
         give --database-secret with the Secret that has a PostgreSQL database's URL"
    );
}

/// A Pod that ends at once, over and over, is the dearest way to be told.
#[test]
fn a_setting_that_the_hub_would_not_start_with_is_refused() {
    let set = |setting: &str| refusal(&["--set", setting]);
    assert_eq!(
        set("LINESMAN_NONSENSE=1"),
        "--set LINESMAN_NONSENSE: the hub has no such variable; see those that it has: linesman hub --help"
    );
    assert_eq!(
        set("LINESMAN_URL=https://other.example.org"),
        "--set LINESMAN_URL: another flag says that; give --url"
    );
    assert_eq!(
        set("LINESMAN_LISTEN=127.0.0.1:8443"),
        "--set LINESMAN_LISTEN=127.0.0.1:8443: Service and probes come to port 8443 of the Pod; \
         leave it out, or give [::]:8443 where the cluster has IPv6 alone"
    );
    let keep = set("LINESMAN_AUDIT_KEEP=400");
    assert!(
        keep.starts_with("--set: invalid value '400' for '--audit-keep <TIME>'"),
        "{keep}"
    );
    let alone = set("LINESMAN_OIDC_CLIENT_SECRET_FILE=/etc/linesman/secrets/oidc/secret");
    assert!(alone.contains("--oidc-issuer"), "{alone}");
    // What the grammar takes, and the hub does not.
    assert_eq!(
        set("LINESMAN_ROTATE_KEYS_AFTER=1h"),
        "--rotate-keys-after is 1h, less than 1d; give a longer time, or 0 to replace keys on demand only"
    );
    let log = set("LINESMAN_LOG=verbose");
    assert!(log.starts_with("'verbose' is no log filter; "), "{log}");
    let taken = [
        "LINESMAN_LISTEN=[::]:8443",
        "LINESMAN_LOG=debug",
        // Which are in the Pod alone.
        "LINESMAN_OIDC_CA=/etc/linesman/secrets/oidc/ca.crt",
        "LINESMAN_OIDC_CLIENT_SECRET_FILE=/etc/linesman/secrets/oidc/secret",
        "LINESMAN_OIDC_ISSUER=https://login.example.org",
        "LINESMAN_OIDC_ROLES=admin=platform,viewer=all",
        "NO_PROXY=.example.org",
    ];
    let flags: Vec<String> = taken.iter().map(|text| format!("--set={text}")).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let told = read(&flags).unwrap().settings.into_iter();
    let told: BTreeSet<String> = told
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(told, BTreeSet::from(taken.map(str::to_owned)));
}

#[test]
fn names_and_sizes_that_no_cluster_takes_are_refused() {
    for wrong in [
        "--namespace=linesman",
        "--namespace=Hub",
        "--tls-secret=hub_tls",
        "--mount-secret=a/b",
        "--image-pull-secret=",
        "--storage-class=A",
        "--storage=10",
        "--memory=64Mi",
        "--replicas=0",
        "--replicas=10",
        "--service=Ingress",
        "--service-annotation=key",
        "--drain=10",
        "--set=NAME",
        "--tls-ca",
    ] {
        let line = ["manifests"].iter().chain(&NEEDED).chain([&wrong]);
        assert!(Line::try_parse_from(line).is_err(), "{wrong}");
    }
    for (at, wrong) in ["--url=http://h", "--image=:::bad", "--agent-image=:::bad"]
        .into_iter()
        .enumerate()
    {
        let mut line = NEEDED;
        line[at] = wrong;
        let line = ["manifests"].iter().chain(&line);
        let read = Line::try_parse_from(line);
        assert!(!read.is_ok_and(|line| values(line.args).is_ok()), "{wrong}");
        let without = NEEDED.iter().filter(|flag| **flag != NEEDED[at]);
        let line = ["manifests"].iter().chain(without);
        assert!(
            Line::try_parse_from(line).is_err(),
            "without {}",
            NEEDED[at]
        );
    }
}

/// What is told by a name that the hub does not know is not told.
#[test]
fn each_variable_of_the_manifests_is_one_of_the_hubs() {
    let grammar = Cli::command();
    let all = objects(&full());
    let container = &all.last().unwrap()["spec"]["template"]["spec"]["containers"][0];
    let names = container["env"].as_array().unwrap().iter();
    let unknown = names
        .filter_map(|entry| entry["name"].as_str())
        .filter(|name| settings::flag(&grammar, name).is_none());
    assert_eq!(unknown.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn the_pods_ports_are_those_that_the_hub_has_without_a_flag() {
    let config = parsed(&[]);
    assert_eq!(
        [config.listen, config.git_listen, config.health_listen].map(|listen| listen.port()),
        [HTTPS_PORT, GIT_PORT, HEALTH_PORT]
    );
}
